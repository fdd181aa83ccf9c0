"""One rank of a distributed run: `python -m tests.ddp_worker JOB.json`, started once a rank by `tests.ddp.launch`.

A job is a list of fits done one after the other in the same process group; what this rank saw goes to a file.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lightning_gpuaug import ImageDataModule, InputDoctor, Throughput
from lightning_gpuaug.sources import FileList
from tests.tracking import SaveEverywhere, Tracking, trainer


def run(job: dict[str, Any], fit: dict[str, Any]) -> dict[str, Any]:
    """One fit, or one validation, of a job."""
    source = FileList(fit["list"])
    data = ImageDataModule(
        train=source, val=source, batch_size=fit["batch_size"], eval_batch_size=fit.get("eval_batch_size"),
        image_size=8, num_threads=1, drop_last=fit.get("drop_last", True),
    )  # fmt: skip
    model = Tracking(fit.get("one_cycle", False))
    folder = Path(fit["folder"])
    save = SaveEverywhere(folder) if fit.get("save") else None
    doctor = InputDoctor(**fit["doctor"]) if "doctor" in fit else None
    run = trainer(
        folder,
        accelerator=job["accelerator"],
        devices=job["devices"],
        strategy="ddp",
        callbacks=[c for c in (save, doctor, Throughput(warmup_batches=2) if doctor else None) if c is not None],
        **fit["options"],
    )
    if fit.get("validate"):
        for _ in range(2):
            run.validate(model, data, verbose=False)
    else:
        run.fit(model, data, ckpt_path=fit.get("resume"))
    return {
        "train": model.train_steps,
        "val": model.val_steps,
        "lrs": model.lrs,
        "metrics": {k: float(v) for k, v in run.callback_metrics.items()},
        "saved": [(hook, str(path), done) for hook, path, done in save.saved] if save else [],
        "weights": [value.tolist() for value in model.state_dict().values()],
        "verdict": doctor.verdict.text if doctor is not None and doctor.verdict is not None else None,
        "device": str(run.strategy.root_device),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    job = json.loads(Path(sys.argv[1]).read_text())
    seen = [run(job, fit) for fit in job["fits"]]
    Path(f"{sys.argv[1]}.rank{os.environ['RANK']}").write_text(json.dumps(seen))
    dist.destroy_process_group()  # while Python can: see LeavesItsGroup


if __name__ == "__main__":
    main()
