"""The data module on two gloo ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lightning_gpuaug import ImageDataModule
from tests.ddp import ROOT, launch
from tests.distributed_cases import check_epochs_and_exact_evaluation, check_resume
from tests.images import numbered
from tests.tracking import SaveEverywhere, Tracking, trainer


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
    """One rank to two and two to one, in mid-epoch: every sample of the epoch once, then whole epochs."""
    source = numbered(tmp_path, 24)
    common = {"list": str(source.path), "batch_size": 2, "folder": str(tmp_path)}
    options = {"max_epochs": 2, "limit_val_batches": 0}

    def module() -> ImageDataModule:
        return ImageDataModule(train=source, batch_size=2, image_size=8, num_threads=1)

    save = SaveEverywhere(tmp_path)
    one = Tracking()
    trainer(tmp_path, callbacks=[save], **options).fit(one, module())
    _, path, done = save.saved[4]
    (tmp_path / "two").mkdir()
    two, resumed_by_two = launch(
        tmp_path,
        [
            {**common, "options": options, "save": True, "folder": str(tmp_path / "two")},
            {**common, "options": options, "resume": str(path)},
        ],
    )
    head = sum((labels for _, labels, _ in one.train_steps[:done]), [])
    tails = [[labels for epoch, labels, _ in rank["train"] if epoch == 0] for rank in resumed_by_two]
    assert len(tails[0]) == len(tails[1])
    rest = sum((sum(tail, []) for tail in tails), [])
    assert len(set(head + rest)) == len(head + rest)
    assert 24 - len(head + rest) < 4
    later = sum((labels for rank in resumed_by_two for epoch, labels, _ in rank["train"] if epoch == 1), [])
    assert sorted(later) == list(range(24))

    assert ["batch_end", 6] in [[hook, done] for hook, _, done in two[0]["saved"]]  # the last step of the epoch
    for hook, path, done in two[0]["saved"]:
        if hook != "batch_end" or done not in (1, 4, 6):
            continue
        resumed_by_one = Tracking()
        trainer(tmp_path, **options).fit(resumed_by_one, module(), ckpt_path=path)
        head = sum((labels for rank in two for _, labels, _ in rank["train"][:done]), [])
        rest = sum((labels for epoch, labels, _ in resumed_by_one.train_steps if epoch == 0), [])
        assert sorted(head + rest) == list(range(24)), done
        assert sorted(sum((labels for e, labels, _ in resumed_by_one.train_steps if e == 1), [])) == list(range(24))


def test_ddp_spawn(tmp_path: Path) -> None:
    """The data module is pickled into processes that resolve their ranks themselves."""
    source = numbered(tmp_path, 9)
    data = ImageDataModule(train=source, val=source, batch_size=2, image_size=8, num_threads=1)
    trainer(tmp_path, max_epochs=1, limit_train_batches=1).fit(
        Tracking(), data
    )  # which leaves its Trainer to the module
    run = trainer(tmp_path, strategy="ddp_spawn", devices=2, max_epochs=1)
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
