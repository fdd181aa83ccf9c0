"""Batches laid in: whose may be, in which order they come, what happens to errors; what a worker's probe sees."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher, _PrefetchDataFetcher
from lightning.pytorch.utilities import CombinedLoader
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from lightning_gpuaug.callbacks.probe_workers import _stages, probe_workers
from lightning_gpuaug.callbacks.stock import LoaderStocker, WorkerStocker, stocker_of
from lightning_gpuaug.callbacks.verdict import CheckUp

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Numbers(Dataset[int]):
    """0, 1, 2, …; `bad` cannot be read."""

    def __init__(self, length: int = 12, bad: int | None = None) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError(f"sample {index} is bad")
        return index


def trainer_with(loaders: Any, datamodule: Any = None, fetcher: Any = None) -> Any:
    """As much of a Trainer as `stocker_of` looks at."""
    combined = CombinedLoader(loaders, "max_size_cycle")
    iter(combined)
    loop = SimpleNamespace(_combined_loader=combined, _data_fetcher=fetcher or _PrefetchDataFetcher())
    return SimpleNamespace(fit_loop=loop, datamodule=datamodule)


def take(trainer: Any, count: int) -> list[list[int]]:
    return [next(trainer.fit_loop._combined_loader)[0].tolist() for _ in range(count)]


def test_stocked_batches_come_in_their_order_and_the_iterator_takes_its_place_again() -> None:
    trainer = trainer_with(DataLoader(Numbers(), batch_size=2, num_workers=1))
    iterators = trainer.fit_loop._combined_loader._iterator.iterators
    own = iterators[0]
    assert take(trainer, 1) == [[0, 1]]
    stocker = stocker_of(trainer)
    assert isinstance(stocker, WorkerStocker)
    assert stocker.stock(3, 0.0) == 3
    assert stocker.stock(3, 0.0) == 3  # there are that many already
    assert iterators[0] is not own
    assert take(trainer, 3) == [[2, 3], [4, 5], [6, 7]]
    assert iterators[0] is own
    assert stocker.stock(9, 0.0) == 2  # the pass ends
    assert take(trainer, 2) == [[8, 9], [10, 11]]
    with pytest.raises(StopIteration):
        take(trainer, 1)


def test_a_batch_that_fails_fails_in_its_turn() -> None:
    trainer = trainer_with(DataLoader(Numbers(bad=5), batch_size=2, num_workers=1))
    stocker = stocker_of(trainer)
    assert isinstance(stocker, WorkerStocker)
    assert stocker.stock(4, 0.0) == 2
    assert take(trainer, 2) == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="sample 5 is bad"):
        take(trainer, 1)
    assert take(trainer, 1) == [[6, 7]]


class Stateful(pl.LightningDataModule):
    """Someone's own resumable data."""

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": 3}


class HardestFirst(Sampler[int]):
    """Looks at losses."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __len__(self) -> int:
        return 4


class Stream(IterableDataset[int]):
    """A stream."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


@pytest.mark.parametrize(
    ("loader", "datamodule", "why"),
    [
        (DataLoader(Numbers(), num_workers=0), None, "num_workers is 0"),
        (DataLoader(Numbers(), num_workers=1, sampler=HardestFirst()), None, "sampler"),
        (DataLoader(Numbers(), num_workers=1), Stateful(), "state"),
        ([DataLoader(Numbers(), num_workers=1), DataLoader(Numbers(), num_workers=1)], None, "2 training loaders"),
        (range(5), None, "a range may notice"),
    ],
)
def test_what_could_change_is_not_taken_early(loader: Any, datamodule: Any, why: str) -> None:
    found = stocker_of(trainer_with(loader, datamodule))
    assert isinstance(found, str)
    assert why in found
    own = _DataLoaderIterDataFetcher()
    assert "its own batches" in stocker_of(trainer_with(loader, fetcher=own))  # type: ignore[operator]


class Costly(Dataset[int]):
    """Reads, decodes and augments for given times."""

    def __init__(self, wait: float, decode: int, loop: int) -> None:
        self.wait, self.decode, self.loop = wait, decode, loop
        file = io.BytesIO()
        noise = np.random.default_rng(0).integers(0, 255, (400, 400, 3), dtype=np.uint8)
        Image.fromarray(noise).save(file, "jpeg")
        self.jpeg = file.getvalue()

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        time.sleep(self.wait)
        for _ in range(self.decode):
            Image.open(io.BytesIO(self.jpeg)).load()
        total = 0
        for i in range(self.loop):
            total += i
        return total


@pytest.mark.parametrize(
    ("costs", "stage"), [((0.01, 0, 0), "read"), ((0.0, 2, 0), "decode"), ((0.0, 0, 200_000), "augment")]
)
def test_a_samples_time_is_told_apart(costs: tuple[float, int, int], stage: str) -> None:
    stages = _stages(DataLoader(Costly(*costs), num_workers=1), np.random.default_rng(0))
    assert stages is not None
    assert stages[stage] > 0.6 * sum(stages.values()), stages


def test_probing_leaves_random_states_and_the_dataset_alone() -> None:
    class Counting(Numbers):
        reads = 0

        def __getitem__(self, index: int) -> int:
            self.reads += 1
            time.sleep(0.005)
            return index

    data = Counting(200)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]
    check = CheckUp(100.0, 1000.0, wait_share=0.9, transfer_share=0.0, stocked=True)
    probe = probe_workers(DataLoader(data, batch_size=4, num_workers=1), check, 4, cores=1, seconds=0.1, on_gpu=False)
    assert data.reads == 0
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    [knob] = probe.knobs
    assert (knob.name, knob.old, knob.new) == ("num_workers", "1", "4")  # blocked samples want more than cores
    assert knob.speed_up > 1.5


def test_data_that_cannot_be_probed_gets_advice_alone() -> None:
    check = CheckUp(100.0, 1000.0, wait_share=0.9, transfer_share=0.0, stocked=True)
    for data in (Stream(), Numbers(bad=0, length=1)):
        probe = probe_workers(DataLoader(data, num_workers=1), check, 1, cores=2, seconds=0.1, on_gpu=True)
        assert not probe.knobs
        assert "ImageDataModule" in probe.advice["decode"]
        assert probe.notes


def test_our_loader_has_its_own_place_for_a_stock() -> None:
    from lightning_gpuaug import ImageDataModule, Synthetic

    data = ImageDataModule(train=Synthetic(length=64, mode="cached"), batch_size=4).setup_for("cpu")
    trainer = trainer_with(data.train_dataloader(), Stateful())
    assert isinstance(stocker_of(trainer), LoaderStocker)


def test_the_callbacks_need_neither_dali_nor_the_native_library() -> None:
    code = (
        "import sys\nfrom lightning_gpuaug import InputDoctor, Throughput\n"
        "assert not {'lightning_gpuaug.ops', 'nvidia.dali'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
