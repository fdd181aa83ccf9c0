"""`gpuaug demo` and its parts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.digits import split, write_digits
from lightning_gpuaug.grid import CAPTION_HEIGHT, GAP, draw_grid, to_pixels
from lightning_gpuaug.recipe import Normalize


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.jpg"))}


def test_same_bytes_twice(tmp_path: Path) -> None:
    first, second = write_digits(tmp_path / "a", limit=60), write_digits(tmp_path / "b", limit=60)
    assert first.written == second.written == 60
    assert files(tmp_path / "a") == files(tmp_path / "b")
    with Image.open(next((tmp_path / "a").rglob("*.jpg"))) as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (32, 32), "RGB")


def test_rewrites_only_what_differs(tmp_path: Path) -> None:
    tree = write_digits(tmp_path, limit=60)
    before = files(tmp_path)
    paths = sorted(tree.train.rglob("*.jpg"))
    paths[0].write_bytes(b"spoilt")
    paths[1].unlink()
    (tree.train / "0" / "9999.jpg").write_bytes(b"of an earlier tree")
    assert write_digits(tmp_path, limit=60).written == 2
    assert files(tmp_path) == before
    assert write_digits(tmp_path, limit=60).written == 0


def test_split_is_fixed_stratified_and_follows_the_seed() -> None:
    labels = np.arange(1797) % 10
    chosen = split(labels, seed=0)
    assert (chosen == split(labels, seed=0)).all()
    assert (chosen != split(labels, seed=1)).any()
    share = np.bincount(labels[chosen]) / np.bincount(labels)
    assert np.allclose(share, 0.2, atol=0.01)


def test_pixels_undo_normalisation_exactly() -> None:
    pixels = torch.randint(0, 256, (2, 4, 5, 3), dtype=torch.uint8)
    normalize = Normalize()
    mean, std = torch.tensor(normalize.mean), torch.tensor(normalize.std)
    images = ((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2)
    assert (to_pixels(images, normalize) == pixels.numpy()).all()
    assert (to_pixels(pixels.permute(0, 3, 1, 2) / 255, None) == pixels.numpy()).all()


def test_grid_puts_each_image_in_its_cell() -> None:
    pixels = np.stack([np.full((4, 6, 3), value, np.uint8) for value in (10, 90, 200)])
    pixels[1, 0, 0] = (255, 0, 0)
    grid = np.array(draw_grid(pixels, ["a", "b", "c"], columns=2, scale=2))
    cell_w, cell_h = 12 + GAP, 8 + CAPTION_HEIGHT + GAP
    assert grid.shape == (2 * cell_h + GAP, 2 * cell_w + GAP, 3)
    assert (grid[GAP : GAP + 8, GAP : GAP + 12] == 10).all()
    second = grid[GAP : GAP + 8, GAP + cell_w : GAP + cell_w + 12]
    assert (second[:2, :2] == (255, 0, 0)).all()
    assert (second[2:] == 90).all()
    assert (grid[GAP + cell_h : GAP + cell_h + 8, GAP : GAP + 12] == 200).all()
    assert (grid[GAP + cell_h : GAP + cell_h + 8, GAP + cell_w :] == 255).all()  # no fourth image
    caption = grid[GAP + 8 : GAP + 8 + CAPTION_HEIGHT, GAP : GAP + 12]
    assert (caption < 128).any()


def test_grid_wants_a_caption_for_each_image() -> None:
    with pytest.raises(ValueError, match="captions must be one for each of the 2 images, got 1"):
        draw_grid(np.zeros((2, 4, 4, 3), np.uint8), ["a"])


def test_demo_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["demo", "--out", str(tmp_path), "--epochs", "2", "--limit", "300", "--batch-size", "16"]
    threads = torch.get_num_threads()
    assert main([*args, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["val_top1"] > 0.3  # ten classes, so chance is 0.1
    assert result["images_per_second"] > 0
    assert 0 <= result["data_wait_share"] <= 1
    assert result["decoded_on"] == ("gpu" if torch.cuda.is_available() else "cpu")
    assert all(Path(path).exists() for path in result["files"])
    with Image.open(tmp_path / "preview.png") as preview:
        assert preview.size == (10 * (64 + GAP) + GAP, 4 * (64 + CAPTION_HEIGHT + GAP) + GAP)
    assert torch.get_num_threads() == threads


def test_demo_reports_a_wrong_model_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), "--limit", "100", "--model", "resnet10x"]) == 1
    err = capsys.readouterr().err.strip().splitlines()
    assert err[-1].startswith("gpuaug demo: error: ")
    assert "resnet10x" in err[-1]
