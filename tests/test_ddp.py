"""The data module on two gloo ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lightning_gpuaug import ImageDataModule
from tests.ddp import ROOT, LeavesItsGroup
from tests.distributed_cases import (
    check_epochs_and_exact_evaluation,
    check_resume,
    check_resume_under_another_world_size,
)
from tests.images import numbered
from tests.tracking import Tracking, trainer


def test_epochs_and_exact_evaluation(tmp_path: Path) -> None:
    check_epochs_and_exact_evaluation(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("limit", "one_cycle"),
    [({"max_epochs": 3}, False), ({"max_steps": 11, "max_epochs": -1}, False), ({"max_epochs": 3}, True)],
    ids=["epochs", "steps", "one_cycle"],
)
def test_resume(tmp_path: Path, limit: dict[str, int], one_cycle: bool) -> None:
    check_resume(tmp_path, "cpu", limit, one_cycle)


def test_resume_under_another_world_size(tmp_path: Path) -> None:
    check_resume_under_another_world_size(tmp_path, "cpu")


def test_ddp_spawn(tmp_path: Path) -> None:
    """The data module is pickled into processes that resolve their ranks themselves."""
    source = numbered(tmp_path, 9)
    data = ImageDataModule(train=source, val=source, batch_size=2, image_size=8, num_threads=1)
    trainer(tmp_path, max_epochs=1, limit_train_batches=1).fit(
        Tracking(), data
    )  # which leaves its Trainer to the module
    run = trainer(tmp_path, strategy="ddp_spawn", devices=2, max_epochs=1, callbacks=[LeavesItsGroup()])
    run.fit(Tracking(), data)
    assert float(run.callback_metrics["val_mean"]) == 4.0


def test_more_ranks_than_samples_is_refused_on_every_rank(tmp_path: Path) -> None:
    source = numbered(tmp_path, 2)
    for rank in range(4):
        with pytest.raises(ValueError, match="2 samples < 4 ranks"):
            ImageDataModule(val=source).setup_for("cpu", rank, 4)


FORKED = """
import sys
import subprocess
import sys
from pathlib import Path
import torch
from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.sources import FileList
from tests.tracking import Tracking, trainer

torch.set_num_threads(1)
source = FileList(sys.argv[1])
data = ImageDataModule(train=source, val=source, batch_size=2, image_size=8, num_threads=1)
assert data.num_classes == 9  # a notebook looks at its data first
run = trainer(Path(sys.argv[2]), strategy="ddp_notebook", devices=2, max_epochs=1)
run.fit(Tracking(), data)
assert "nvidia.dali" not in sys.modules, "DALI was started before the fork"
print(float(run.callback_metrics["val_mean"]))
"""


def test_forked_processes_build_their_own_pipelines(tmp_path: Path) -> None:
    """As in a notebook: the parent, which is forked, has started neither DALI nor a thread."""
    source = numbered(tmp_path, 9)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(source.path), str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "4.0"
