"""What the probes of this package's loader make of their measurements, and that they leave it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug import Examples, ImageDataModule, Synthetic, TrainRecipe
from lightning_gpuaug.callbacks.probe_loader import _Measured, _stages, probe_loader
from lightning_gpuaug.callbacks.verdict import CheckUp
from lightning_gpuaug.pipeline import Decoding
from lightning_gpuaug.timings import Timings
from tests.images import numbered

SLOW = CheckUp(100.0, 400.0, wait_share=0.75, transfer_share=0.0, stocked=True)


def test_stages_add_up_to_the_time_of_an_image() -> None:
    plain = _Measured(200.0, Timings(10, prepare=1.0, decode=8.0, finish=1.0))
    whole = _Measured(100.0, Timings(10, prepare=1.0, decode=1.0, finish=8.0))
    cpu = Decoding(TrainRecipe(), 8, 4, "cpu", None, num_threads=2)
    stages = _stages(cpu, 0.002, plain, whole)
    assert stages == pytest.approx({"read": 0.001, "decode": 0.003, "augment": 0.005, "host": 0.001})
    gpu = Decoding(TrainRecipe(), 8, 4, "gpu", 0, num_threads=2)
    assert _stages(gpu, 0.002, plain, whole)["host"] == pytest.approx(0.0005)  # finishing there is waiting for the GPU
    assert _stages(cpu, 1.0, plain, whole)["decode"] == 0.0  # a slow storage cannot take more than there is


def test_the_runs_loader_is_only_read(tmp_path: Path) -> None:
    recipe = TrainRecipe(auto="rand-m9-mstd0.5-inc1")
    data = ImageDataModule(numbered(tmp_path, 64), batch_size=4, image_size=16, num_threads=1, train_recipe=recipe)
    loader = data.setup_for("cpu").train_dataloader()
    reference = [labels.tolist() for _, labels in loader]
    again = data.setup_for("cpu").train_dataloader()
    got = []
    for i, (_, labels) in enumerate(again):
        got.append(labels.tolist())
        if i == 3:
            place, timings = again.place, again.timings
            probe = probe_loader(again, SLOW, cores=2, seconds=0.05)
            assert (again.place, again.timings) == (place, timings)
    assert got == reference
    [knob] = probe.knobs
    assert str(knob) == "num_threads 1 → 2"
    assert set(probe.stages) == {"read", "decode", "augment", "host"}  # how much of each is this machine's affair
    assert min(probe.stages.values()) >= 0
    assert len(probe.notes) == 2
    data.teardown("fit")


def test_one_cached_batch_has_no_pipeline() -> None:
    data = ImageDataModule(train=Synthetic(length=64, mode="cached"), batch_size=4).setup_for("cpu")
    assert not probe_loader(data.train_dataloader(), SLOW, cores=2, seconds=0.05).knobs


def test_a_source_that_reads_its_data_itself_is_only_read_too(tmp_path: Path) -> None:
    files = numbered(tmp_path, 64).paths
    source = Examples([(str(path), i % 2) for i, path in enumerate(files)], class_names=("even", "odd"))
    data = ImageDataModule(train=source, batch_size=4, image_size=16, num_threads=1)
    reference = [labels.tolist() for _, labels in data.setup_for("cpu").train_dataloader()]
    loader, got = data.setup_for("cpu").train_dataloader(), []
    for i, (_, labels) in enumerate(loader):
        got.append(labels.tolist())
        if i == 3:
            probe = probe_loader(loader, SLOW, cores=2, seconds=0.05)
    assert got == reference
    assert probe.stages["read"] > 0
    data.teardown("fit")
