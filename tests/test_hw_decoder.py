"""The hardware decoder's share: the largest that is about as fast as the fastest, measured once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lightning_gpuaug import EvalRecipe, Synthetic, TrainRecipe, hw_decoder
from lightning_gpuaug.pipeline import Decoding
from lightning_gpuaug.sources import FileList, Source
from tests.images import numbered

GPU = Decoding(TrainRecipe(), 8, batch_size=2, device="gpu", device_id=0, num_threads=1)


@pytest.fixture
def source(tmp_path: Path) -> FileList:
    return numbered(tmp_path, 32)  # 16 batches of 2: just enough to measure


@pytest.fixture(autouse=True)
def _one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hw_decoder, "_measured", {})
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "a card")


def fake_rates(monkeypatch: pytest.MonkeyPatch, rates: dict[float, float]) -> list[float]:
    """Shares measured so far, in order; the rates are made up."""
    asked: list[float] = []

    def rate(decoding: Decoding, prepare: object, share: float) -> float:
        asked.append(share)
        return rates[share]

    monkeypatch.setattr(hw_decoder, "_images_per_second", rate)
    return asked


@pytest.mark.parametrize(
    ("rates", "share"),
    [
        ({1.0: 100.0, 0.75: 90.0}, 1.0),  # fastest: less still is not tried
        ({1.0: 61.0, 0.75: 100.0, 0.5: 60.0}, 1.0),  # fast enough, and it leaves the GPU to training
        ({1.0: 59.0, 0.75: 100.0, 0.5: 80.0}, 0.75),
        ({1.0: 50.0, 0.75: 59.0, 0.5: 100.0}, 0.5),
        ({1.0: 7.0, 0.75: 7.0, 0.5: 7.0}, 1.0),  # no hardware decoder: all alike
        ({1.0: 0.0, 0.75: 0.0, 0.5: 0.0}, 1.0),  # the first images are bad: nothing could be measured
        ({1.0: 0.0, 0.75: 5.0, 0.5: 6.0}, 0.75),
    ],
)
def test_the_rule(monkeypatch: pytest.MonkeyPatch, source: FileList, rates: dict[float, float], share: float) -> None:
    asked = fake_rates(monkeypatch, rates)
    assert hw_decoder.best_hw_decoder_load(GPU, source) == dataclasses.replace(GPU, hw_decoder_load=share)
    assert asked == list(rates)


def test_measured_once_for_a_card_and_a_way_of_decoding(monkeypatch: pytest.MonkeyPatch, source: FileList) -> None:
    asked = fake_rates(monkeypatch, {1.0: 1.0, 0.75: 9.0, 0.5: 1.0})
    for _ in range(3):
        assert hw_decoder.best_hw_decoder_load(GPU, source).hw_decoder_load == 0.75
    assert len(asked) == 3
    for other in ({"num_threads": 2}, {"image_size": 9}, {"recipe": EvalRecipe()}):
        hw_decoder.best_hw_decoder_load(dataclasses.replace(GPU, **other), source)  # type: ignore[arg-type]
    assert len(asked) == 12


@pytest.mark.parametrize("case", ["cpu", "few", "cached"])
def test_what_cannot_or_need_not_be_measured_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, source: FileList, tmp_path: Path, case: str
) -> None:
    asked = fake_rates(monkeypatch, {1.0: 1.0, 0.75: 9.0, 0.5: 1.0})
    decoding = dataclasses.replace(GPU, device="cpu", device_id=None) if case == "cpu" else GPU
    data: dict[str, Source] = {"cpu": source, "cached": Synthetic(64, mode="cached")}
    left = hw_decoder.best_hw_decoder_load(decoding, data.get(case) or numbered(tmp_path / "few", 31))
    assert (left, asked) == (decoding, [])
