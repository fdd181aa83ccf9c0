"""`gpuaug parity`: what agrees passes, what differs is caught, on both kinds of comparison."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug.augment.policies import GEOMETRIC
from lightning_gpuaug.cli import main, parity, parity_ops, parity_recipes, parity_steps
from lightning_gpuaug.cli.parity_ops import OpParity, compare_ops
from lightning_gpuaug.cli.parity_recipes import compare_recipe
from lightning_gpuaug.cli.peers import Forced, drawing, forced_ops, seeded
from lightning_gpuaug.recipe import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from tests.format_cases import photo

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """A picture with texture, (1, 40, 40, 3)."""
    noise = np.random.default_rng(0).integers(0, 40, (40, 40, 3))
    return (np.asarray(photo(40, 40), int) * 0.8 + noise).astype(np.uint8)[None]


@pytest.fixture(scope="module")
def all_ops(images: np.ndarray) -> list[OpParity]:
    """Every op, with every fourth of its settings."""
    groups: dict[tuple[str, str], list[Forced]] = {}
    for case in forced_ops(40, 40):
        groups.setdefault((case.peer, case.op), []).append(case)
    some = [case for cases in groups.values() for case in cases[::4]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity_ops, "forced_ops", lambda height, width: iter(some))
        return compare_ops(images, ("timm", "torchvision"), CPU)


def test_every_op_agrees(all_ops: list[OpParity]) -> None:
    assert [op.op for op in all_ops if not op.agrees] == []
    assert Counter(op.peer for op in all_ops) == {"timm": 25, "torchvision": 20}
    exact = [op for op in all_ops if not op.op.startswith(("Gaussian", *GEOMETRIC)) and op.op != "Solarize"]
    assert len(exact) > 25
    assert max(op.largest for op in exact) <= 1
    for op in all_ops:
        assert op.median <= op.p99 <= op.p999 <= op.largest
        assert op.over_one <= 1 - op.equal


@pytest.mark.parametrize(
    ("peer", "op"), [("timm", "Rotate"), ("timm", "ColorIncreasing"), ("torchvision", "ShearX (nearest)")]
)
def test_an_op_with_the_wrong_sign_is_caught(
    peer: str, op: str, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [case for case in forced_ops(40, 40) if (case.peer, case.op) == (peer, op)]
    words = [case.words for case in cases]
    # The strongest magnitudes of both signs, exchanged.
    swapped = [dataclasses.replace(case, words=words[::-1][i]) for i, case in enumerate(cases)]
    monkeypatch.setattr(parity_ops, "forced_ops", lambda height, width: iter(swapped))
    [found] = compare_ops(images, (peer,), CPU)
    assert not found.agrees
    assert found.largest > 1


@pytest.mark.parametrize("policy", ["rand-m9-mstd0.5-inc1", "original", "augmix-m5-w3-d2", TrivialAugmentWide()])
def test_policies_agree(policy: str, images: np.ndarray) -> None:
    found = compare_recipe("it", policy, images[:, ::2, ::2].copy(), 40, 0, CPU)
    assert found.agrees
    assert found.draws == 40
    assert 0 < found.mean_apart < parity_recipes.STANDARD_ERRORS
    assert 0 < found.histogram < 60
    assert found.frequency_apart_of in found.frequency


def test_another_policy_is_caught(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity_recipes, "drawing", lambda policy, size: drawing(AutoAugment("svhn"), size))
    found = compare_recipe("cifar10", AutoAugment("cifar10"), images[:, ::2, ::2].copy(), 60, 0, CPU)
    assert not found.agrees
    assert found.frequency_apart > parity_recipes.STANDARD_ERRORS


def test_the_peers_ops_are_counted_under_our_names(images: np.ndarray) -> None:
    for policy, most in (("rand-m5-n3-p1.0", 3), (RandAugment(num_ops=4), 4), (AugMix(chain_depth=2), 6)):
        peer = drawing(policy, 40)
        with seeded(3):
            totals = []
            for _ in range(20):
                peer.applied.clear()
                assert peer.apply(images[0]).shape == images[0].shape
                totals.append(len(peer.applied))
        assert max(totals) == most
        if isinstance(policy, str):
            assert min(totals) == most  # torchvision's have an identity, which does not count
    known = {name for names in parity_recipes._our_names(AugMix(), 40, 30, 0) for name in names}
    assert set(peer.applied) <= known


def test_seeded_puts_the_generators_back() -> None:
    def numbers() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = numbers()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    with seeded(7):
        first = numbers()
    with seeded(7):
        assert numbers() == first
    assert numbers() == expected


def test_json_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    photo(50, 40).save(tmp_path / "deep" / "a.png")
    photo(40, 50).save(tmp_path / "b.JPG")
    (tmp_path / "c.txt").write_text("no image")
    args = ["parity", str(tmp_path), "--only", "recipes", "--recipes", "3a", "--size", "16", "--draws", "8", "--json"]
    assert main(args) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ops"] == []
    [recipe] = found["recipes"]
    assert (recipe["peer"], recipe["recipe"], recipe["draws"], recipe["agrees"]) == ("timm", "3a", 16, True)
    assert set(recipe["frequency"]) == {"solarize", "saturation", "blur"}
    assert sum(ours for ours, _ in recipe["frequency"].values()) == pytest.approx(1.0)
    assert main(args) == 0
    assert json.loads(capsys.readouterr().out) == found  # the same seed, the same numbers


def test_a_difference_is_exit_code_1(
    all_ops: list[OpParity], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = dataclasses.replace(all_ops[0], over_one=0.3)
    for ops, code in ((all_ops, 0), ([*all_ops, wrong], 1)):
        monkeypatch.setattr(parity_ops, "compare_ops", lambda *_, ops=ops: ops)
        monkeypatch.setattr(parity_steps, "compare_steps", lambda *_: [])
        assert main(["parity", "--only", "ops", "--size", "16"]) == code
        out = capsys.readouterr().out
        assert out.count("differs") == code
        assert all(op.op in out for op in ops)  # nothing is cut off in the table


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["/no/such/folder"], "no such folder: /no/such/folder"),
        (["--draws", "1"], "--draws must be at least 2, got 1"),
        (["--only", "recipes", "--recipes", "rand-x9"], "'x9'"),
        (["--device", "tpu"], "tpu"),
    ],
)
def test_errors_are_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", *args]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("gpuaug parity: error: ")
    assert message in line


def test_an_empty_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", str(tmp_path)]) == 2
    assert f"no images in {tmp_path}" in capsys.readouterr().err


def test_default_recipes_are_of_every_kind_and_images_are_square() -> None:
    recipes = parity.default_recipes()
    assert len(recipes) == len(set(recipes))
    assert {"rand-m9-mstd0.5-inc1", "original", "originalr", "v0", "v0r", "3a"} < set(recipes)
    assert {"RandAugment", "AutoAugment", "TrivialAugmentWide", "AugMix"} < set(recipes)
    pictures = parity.squares(parity.read_pictures(None, 2), 24)
    assert pictures.shape == (2, 24, 24, 3)
    assert Image.fromarray(pictures[0]).convert("L").getextrema() != (0, 0)


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    assert main(["parity", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"gpuaug parity: error: {tmp_path}/cut.jpg cannot be read by Pillow: ")
