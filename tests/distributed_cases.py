"""The distributed contract, as checks that run on two CPU ranks (gloo) and on two GPUs (NCCL) alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_gpuaug import ImageDataModule
from tests.ddp import launch
from tests.images import numbered
from tests.tracking import SaveEverywhere, Tracking, trainer


def _labels(steps: list[Any], epoch: int | None = None) -> list[int]:
    return sum((labels for e, labels, _ in steps if epoch in (None, e)), [])


def check_epochs_and_exact_evaluation(folder: Path, accelerator: str) -> None:
    """Equal steps, disjoint ranks, every validation sample once: 21 and 7 samples on 2 ranks."""
    fits = []
    for n, batch_size in ((21, 4), (7, 3)):
        common = {"list": str(numbered(folder, n).path), "batch_size": batch_size, "folder": str(folder)}
        fits.append({**common, "options": {"max_epochs": 2}})
        fits.append({**common, "options": {"max_epochs": 2}, "drop_last": False})
        fits.append({**common, "options": {}, "validate": True, "eval_batch_size": 1})
    results = launch(folder, fits, accelerator=accelerator)
    for fit, ranks in zip(fits, results, strict=True):
        n = 21 if "list21" in fit["list"] else 7
        assert len({len(rank["train"]) for rank in ranks}) == 1
        assert len({len(rank["val"]) for rank in ranks}) == 1
        assert ranks[0]["metrics"]["val_mean"] == ranks[1]["metrics"]["val_mean"] == (n - 1) / 2
        both = sum((_labels(rank["val"]) for rank in ranks), [])
        assert sorted(both) == sorted(list(range(n)) * 2)
        for epoch in range(2 if not fit.get("validate") else 0):
            seen = sum((_labels(rank["train"], epoch) for rank in ranks), [])
            assert len(set(seen)) == len(seen)
            kept = n if fit.get("drop_last") is False else n // (2 * fit["batch_size"]) * 2 * fit["batch_size"]
            assert len(seen) == kept


def check_resume(folder: Path, accelerator: str, limit: dict[str, int], one_cycle: bool) -> None:
    """Every checkpoint continues the run on every rank: samples, pixels and learning rates."""
    common = {"list": str(numbered(folder, 16).path), "batch_size": 2, "folder": str(folder), "one_cycle": one_cycle}
    options = {**limit, "limit_val_batches": 1, "num_sanity_val_steps": 0}
    (straight,) = launch(folder, [{**common, "options": options, "save": True}], accelerator=accelerator)
    saved = straight[0]["saved"]
    middle = [s for s in saved if s[0] == "batch_end" and s[2] in (1, 4, 6)]  # early, last of an epoch, mid-epoch
    ends = [s for s in saved if s[0] == "epoch_end"][:2]
    fits = [{**common, "options": options, "resume": path} for _, path, _ in middle + ends]
    resumed = launch(folder, fits, accelerator=accelerator)
    for (hook, _, done), ranks in zip(middle + ends, resumed, strict=True):
        for rank in range(2):
            assert ranks[rank]["train"] == straight[rank]["train"][done:], (hook, done, rank)
            assert ranks[rank]["lrs"] == straight[rank]["lrs"][done:], (hook, done, rank)


def check_resume_under_another_world_size(folder: Path, accelerator: str) -> None:
    """One rank to two and two to one, in mid-epoch: every sample of the epoch once, then whole epochs."""
    source = numbered(folder, 24)
    common = {"list": str(source.path), "batch_size": 2, "folder": str(folder)}
    options = {"max_epochs": 2, "limit_val_batches": 0}
    alone = {**options, "accelerator": accelerator}

    def module() -> ImageDataModule:
        return ImageDataModule(train=source, batch_size=2, image_size=8, num_threads=1)

    save = SaveEverywhere(folder)
    one = Tracking()
    trainer(folder, callbacks=[save], **alone).fit(one, module())
    _, path, done = save.saved[4]
    (folder / "two").mkdir()
    two, resumed_by_two = launch(
        folder,
        [
            {**common, "options": options, "save": True, "folder": str(folder / "two")},
            {**common, "options": options, "resume": str(path)},
        ],
        accelerator=accelerator,
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
        trainer(folder, **alone).fit(resumed_by_one, module(), ckpt_path=path)
        head = sum((labels for rank in two for _, labels, _ in rank["train"][:done]), [])
        rest = sum((labels for epoch, labels, _ in resumed_by_one.train_steps if epoch == 0), [])
        assert sorted(head + rest) == list(range(24)), done
        assert sorted(sum((labels for e, labels, _ in resumed_by_one.train_steps if e == 1), [])) == list(range(24))
