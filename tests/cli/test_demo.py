"""`gpuaug demo` and its parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from lightning_gpuaug import ImageDataModule, grid
from lightning_gpuaug.cli import demo, main
from lightning_gpuaug.cli.digits import FEWEST_IMAGES, NUM_CLASSES, NUM_IMAGES, count_training, split, write_digits
from lightning_gpuaug.grid import CAPTION_HEIGHT, GAP, draw_grid, to_pixels
from lightning_gpuaug.recipe import Normalize, TrainRecipe


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
    drawn = np.array(draw_grid(pixels, ["a", "b", "c"], columns=2, scale=2))
    cell_w, cell_h = 12 + GAP, 8 + CAPTION_HEIGHT + GAP
    assert drawn.shape == (2 * cell_h + GAP, 2 * cell_w + GAP, 3)
    assert (drawn[GAP : GAP + 8, GAP : GAP + 12] == 10).all()
    second = drawn[GAP : GAP + 8, GAP + cell_w : GAP + cell_w + 12]
    assert (second[:2, :2] == (255, 0, 0)).all()
    assert (second[2:] == 90).all()
    assert (drawn[GAP + cell_h : GAP + cell_h + 8, GAP : GAP + 12] == 200).all()
    assert (drawn[GAP + cell_h : GAP + cell_h + 8, GAP + cell_w :] == 255).all()  # no fourth image
    caption = drawn[GAP + 8 : GAP + 8 + CAPTION_HEIGHT, GAP : GAP + 12]
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


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--epochs=0", "--epochs must be at least 1, got 0"),
        ("--epochs=-1", "--epochs must be at least 1, got -1"),
        ("--limit=-3", "--limit must be in 30..1797, got -3"),
        ("--limit=5", "--limit must be in 30..1797, got 5"),
        ("--seed=-1", "--seed must be in 0..4294967295, got -1"),
        ("--batch-size=0", "--batch-size must be in 2..1438, the number of training images, got 0"),
        ("--limit=100 --batch-size=81", "--batch-size must be in 2..80, the number of training images, got 81"),
        ("--out=/proc/x", "--out must be a folder that can be written to, got /proc/x (No such file or directory)"),
        ("--model=resnet10x", "--model must be a timm model name, got 'resnet10x'; nearest: resnet10t"),
        ("--model=vit_tiny_patch16_224", "--model must take images of 32 × 32 pixels, got vit_tiny_patch16_224 ("),
    ],
)
def test_a_wrong_option_is_one_line(
    options: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), *options.split()]) == 2
    [err] = capsys.readouterr().err.strip().splitlines()
    assert err.startswith(f"gpuaug demo: error: {line}")
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_the_fewest_images_have_every_class_on_both_sides() -> None:
    labels = load_digits().target
    for limit, enough in ((FEWEST_IMAGES - 1, False), (FEWEST_IMAGES, True)):
        chosen = split(labels[:limit], seed=3)
        both = [set(labels[:limit][side]) for side in (chosen, ~chosen)]
        assert (both == [set(range(NUM_CLASSES))] * 2) is enough
        assert count_training(limit) == (~chosen).sum()
    assert len(labels) == NUM_IMAGES


def test_the_table_shows_what_was_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    measured = demo.DemoResult(0.98765, 12345.6, 0.0321, "gpu", "cuda", "NVIDIA H200", 41.6, ["a/train", "a/x.png"])
    for result, shown in (
        (measured, ["12,346", "3.2%"]),
        (replace(measured, images_per_second=None, data_wait_share=None), ["run too short to tell"] * 2),
    ):
        monkeypatch.setattr(demo, "run_demo", lambda args, say, result=result: result)
        assert main(["demo"]) == 0
        rows = [
            [cell.strip() for cell in line.split("│")[1:-1]]
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("│")
        ]
        assert rows == [
            ["validation top-1", "0.9877"],
            ["training images/s", shown[0]],
            ["time waiting for data", shown[1]],
            ["JPEGs decoded on", "gpu"],
            ["augmentation op ran on", "cuda"],
            ["model trained on", "NVIDIA H200"],
            ["whole run", "42 s"],
            ["files written", "a/train"],
            ["", "a/x.png"],
        ]


def test_labels_of_the_preview_belong_to_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greys = {"black": 0, "dark": 80, "light": 160, "white": 240}
    for name, grey in greys.items():
        (tmp_path / "train" / name).mkdir(parents=True)
        for copy in range(12):
            Image.new("RGB", (32, 32), (grey,) * 3).save(tmp_path / "train" / name / f"{copy}.jpg")
    recipe = TrainRecipe(hflip=0.0)
    data = ImageDataModule(train=tmp_path / "train", batch_size=16, image_size=32, train_recipe=recipe)
    drawn: list[tuple[np.ndarray, list[str], Image.Image]] = []

    def noted(pixels: np.ndarray, captions: list[str], **options: int) -> Image.Image:
        drawn.append((pixels, captions, draw_grid(pixels, captions, **options)))
        return drawn[-1][2]

    monkeypatch.setattr(grid, "draw_grid", noted)
    path = demo.write_preview(data, recipe.normalize, torch.device("cpu"), tmp_path / "preview.png")
    [(pixels, captions, picture)] = drawn
    assert len(pixels) == len(captions) == 40
    assert set(captions) == set(greys)
    for image, caption in zip(pixels, captions, strict=True):
        assert np.abs(image.astype(int) - greys[caption]).max() <= 3
    with Image.open(path) as saved:
        assert (np.array(saved) == np.array(picture)).all()
