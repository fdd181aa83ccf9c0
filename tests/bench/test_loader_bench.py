"""The loader's stages and the other loaders, on a handful of tiny JPEGs."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gpuaug import ImageDataModule, ImageFolder, Synthetic
from lightning_gpuaug.bench import loader as bench
from lightning_gpuaug.bench import loader_stages
from lightning_gpuaug.bench.loader_peers import PEERS, Step, Work, cycle
from lightning_gpuaug.bench.loader_stages import DECODE, FINISH, PREPARE, READ, RESIZE, STAGES, bounded_by, stage_rates
from lightning_gpuaug.recipe import ColorJitter, RandomResizedCrop, TrainRecipe
from lightning_gpuaug.sources import Source

BATCH, SIZE = 4, 24
RECIPES = {
    "plain": TrainRecipe(crop=RandomResizedCrop(scale=(0.3, 0.9), interpolation="bicubic"), hflip=0.25),
    "program": TrainRecipe(color_jitter=ColorJitter()),
}


@pytest.fixture(scope="module")
def source() -> Synthetic:
    return Synthetic(length=12, num_classes=3, height=32, width=40)


@contextmanager
def module(
    source: Source, recipe: TrainRecipe = RECIPES["plain"], batch_size: int = BATCH
) -> Iterator[ImageDataModule]:
    data = ImageDataModule(
        train=source, batch_size=batch_size, image_size=SIZE, num_threads=1, train_recipe=recipe, decode="cpu"
    )
    data.setup_for("cpu")
    try:
        yield data
    finally:
        data.teardown("bench")


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_stage_has_a_rate(source: Synthetic, recipe: str) -> None:
    with module(source, RECIPES[recipe]) as data:
        told: list[str] = []
        rates = dict(stage_rates(data.train_dataloader(), 0.01, told.append))
    assert tuple(rates) == tuple(told) == STAGES
    assert all(rate > 0 for rate in rates.values())


def test_the_packed_resize_is_a_stage_too(source: Synthetic) -> None:
    with module(source) as data:
        loader = data.train_dataloader()
        loader.decoding = dataclasses.replace(loader.decoding, packed=True)  # as on a GPU
        rates = dict(stage_rates(loader, 0.01))
    assert all(rate > 0 for rate in rates.values())


def test_the_others_get_the_same_work(source: Synthetic) -> None:
    with module(source) as data:
        work = bench.work_of(data.train_dataloader(), workers=3)
    assert [bytes(path).decode() for path in work.paths] == list(source.paths)
    assert (work.batch_size, work.image_size, work.threads, work.workers) == (BATCH, SIZE, 1, 3)
    assert (work.crop, work.hflip) == (RECIPES["plain"].crop, 0.25)
    assert not work.decode_on_gpu


def shapes_of(name: str, batch: object) -> tuple[tuple[int, ...], list[int]]:
    """(shape of the images, labels)."""
    if name == "dali":
        images, labels = batch  # type: ignore[misc]
        return tuple(images.as_tensor().shape()), np.array(labels.as_tensor()).ravel().tolist()
    images, labels = batch  # type: ignore[misc]
    return tuple(images.shape), labels.tolist()


@pytest.mark.parametrize("name", list(PEERS))
def test_every_peer_delivers_whole_batches(name: str, source: Synthetic) -> None:
    with module(source) as data:
        work = bench.work_of(data.train_dataloader(), workers=0)
    with PEERS[name](work) as step:
        for _ in range(4):  # more than an epoch
            shape, labels = shapes_of(name, step())
            assert shape == ((BATCH, SIZE, SIZE, 3) if name == "dali" else (BATCH, 3, SIZE, SIZE))
            assert len(labels) == BATCH


def test_peers_read_the_files_that_they_are_given(source: Synthetic) -> None:
    with module(source) as data:
        work = bench.work_of(data.train_dataloader(), workers=0)
    work = dataclasses.replace(work, targets=np.arange(12), batch_size=12)
    with PEERS["torchvision"](work) as step:
        images, labels = step()  # type: ignore[misc]
    assert sorted(labels.tolist()) == list(range(12))
    assert images.dtype == torch.float32
    assert len({float(image.mean()) for image in images}) == 12


def test_a_failing_peer_costs_nobody_else_the_figures(source: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def absent(work: Work) -> Iterator[Step]:
        raise ModuleNotFoundError("No module named 'timm'")
        yield  # type: ignore[unreachable]

    @contextmanager
    def broken(work: Work) -> Iterator[Step]:
        def step() -> None:
            raise RuntimeError("worker killed\nlong story")

        yield step

    @contextmanager
    def quick(work: Work) -> Iterator[Step]:
        yield lambda: None

    for name, peer in (("torchvision", broken), ("timm", absent), ("dali", quick)):
        monkeypatch.setitem(PEERS, name, peer)
    with module(source) as data:
        rates, missing = bench.compare(data, list(PEERS), workers=0, seconds=0.01, rounds=2)
    assert list(rates) == ["ours", "dali"]
    assert all(len(rate.rounds) == 2 and rate.median > 0 for rate in rates.values())
    assert missing == {
        "torchvision": "failed: RuntimeError: worker killed",
        "timm": "not installed (No module named 'timm')",
    }


def test_a_loader_without_batches_is_an_error() -> None:
    with pytest.raises(ValueError, match="no batches"):
        next(cycle([]))
    assert [batch for batch, _ in zip(cycle([1, 2]), range(5), strict=False)] == [1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ({READ: 105, DECODE: 104, RESIZE: 103, PREPARE: 9e4, FINISH: 9e4}, "reading the files"),
        ({READ: 9e4, DECODE: 110, RESIZE: 104, PREPARE: 9e4, FINISH: 9e4}, "bound by decoding"),
        ({READ: 9e4, DECODE: 300, RESIZE: 104, PREPARE: 9e4, FINISH: 9e4}, "bound by resizing"),
        ({READ: 9e4, DECODE: 300, RESIZE: 300, PREPARE: 101, FINISH: 9e4}, "the host's part"),
        ({READ: 9e4, DECODE: 300, RESIZE: 300, PREPARE: 9e4, FINISH: 101}, "the finishing op"),
        ({READ: 9e4, DECODE: 300, RESIZE: 290, PREPARE: 9e4, FINISH: 9e4}, "no stage alone"),
    ],
)
def test_the_bound_is_named(rates: dict[str, float], word: str) -> None:
    assert word in bounded_by(100.0, rates)


def test_other_libraries_are_imported_only_when_they_are_measured() -> None:
    others = {"nvidia", "timm", "torchvision", "kornia", "PIL"}
    for path in (Path(bench.__file__).parent).glob("*.py"):
        for node in ast.parse(path.read_text()).body:  # the module's own lines, not those of its functions
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found = {name.split(".")[0] for name in names} & others
            assert not found or path.name == "chart.py", f"{path.name} imports {found}"


def test_records_have_no_peers_and_no_reading_stage(source: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "reads_files", lambda source: False)
    monkeypatch.setattr(loader_stages, "reads_files", lambda source: False)
    with module(source) as data:
        rates, missing = bench.compare(data, ["timm", "dali"], workers=0, seconds=0.01, rounds=1)
        stages = dict(stage_rates(data.train_dataloader(), 0.01))
    assert list(rates) == ["ours"]
    assert set(missing) == {"timm", "dali"}
    assert isinstance(stages.pop(READ), str)
    assert all(isinstance(rate, float) for rate in stages.values())


def test_a_stage_that_fails_says_why(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "c").mkdir(exist_ok=True)
        (tmp_path / "c" / f"{name}.jpg").write_bytes(b"no image")
    with module(ImageFolder(tmp_path), batch_size=2) as data:
        stages = dict(stage_rates(data.train_dataloader(), 0.01))
    assert isinstance(stages[DECODE], str)
    assert stages[DECODE].startswith("DecodeError: ")
    assert isinstance(stages[READ], float)
