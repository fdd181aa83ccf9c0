"""Runs with something wrong, small enough for any machine: the doctor names what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import doctor
from lightning_gpuaug import Synthetic
from lightning_gpuaug.callbacks.input_doctor import InputDoctor

pytestmark = [
    pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
OPTIONS = {
    "read": ["--wait", "0.02", "--batch", "8", "--file-size", "16"],
    "decode": ["--batch", "16", "--threads", "1", "--image-size", "32"],
    "augment": ["--batch", "8", "--file-size", "16", "--loop", "40000"],
    "model": ["--batch", "2", "--image-size", "16", "--model-seconds", "0.4", "--every", "6"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_cause_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Which knob helps how much depends on what else this machine does; benchmarks/doctor.py holds that on a GPU.
    common = ["--every", "8", "--stock", "2", "--seconds", "0.2", "--work", str(tmp_path)]
    args = doctor.parser().parse_args([*common, *OPTIONS[name]])
    source = Synthetic(length=64, width=160, height=120) if name != "decode" else Synthetic(length=64)
    device = torch.device("cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        stage = doctor.stages(args, list(source.paths) * 8, device)[name]
        if name != "model":
            stage = doctor.dataclasses.replace(stage, model_seconds=0.001)
        for _ in range(3):  # other work on this machine slows one run and not the other
            verdict, _ = doctor.examine(args, stage, device)
            if verdict.cause == stage.cause:
                break
    finally:
        torch.set_num_threads(threads)
    assert verdict.cause == stage.cause, verdict
    assert verdict.lost[name] == max(verdict.lost.values()) if name != "model" else verdict.knob is None
    assert verdict.img_per_s <= verdict.img_per_s_without_input


def test_arguments_are_checked() -> None:
    for wrong in ({"every_n_batches": 3}, {"batches": 1}, {"probe_seconds": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            InputDoctor(**wrong)  # type: ignore[arg-type]


def test_workers_that_start_anew_every_epoch_are_noticed() -> None:
    class Rows(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.ones(4)

    watching = InputDoctor(every_n_batches=20, batches=2, probe_seconds=0.1)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=1)
    doctor.fit(
        doctor.Model(0.002, torch.device("cpu")), {"train_dataloaders": loader}, torch.device("cpu"), 32, [watching]
    )
    assert watching.verdict is not None
    assert watching.verdict.knob == "persistent_workers False → True", watching.verdict
    assert watching.verdict.cause == "host"
