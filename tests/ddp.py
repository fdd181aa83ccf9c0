"""Ranks in tests: start a distributed job of two and collect what each saw; let spawned ones end in order."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist

ROOT = Path(__file__).parent.parent


class LeavesItsGroup(pl.Callback):
    """A spawned rank destroys its process group before Python ends, which Lightning sees to for NCCL alone.

    A thread of gloo's may hold tensors that Python knows; the rank is aborted then (pytorch/pytorch#179291).
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        atexit.register(dist.destroy_process_group)


def launch(folder: Path, fits: list[dict[str, Any]], *, accelerator: str = "cpu", timeout: float = 180) -> list[Any]:
    """Run `fits` on two ranks; what rank r saw of fit f is `launch(...)[f][r]`.

    Raises:
        RuntimeError: a rank failed, or was killed after `timeout` seconds; the message ends in what they said.
    """
    job = folder / f"job{len(list(folder.glob('job*.json')))}.json"
    job.write_text(json.dumps({"accelerator": accelerator, "devices": 2, "fits": fits}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "tests", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.ddp_worker", str(job)]
    outputs = [Path(f"{job}.rank{r}.txt") for r in range(2)]
    ranks = []
    for r, output in enumerate(outputs):
        with output.open("w") as sink:
            env = {**shared, "RANK": str(r), "LOCAL_RANK": str(r)}
            ranks.append(subprocess.Popen(command, env=env, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT))
    try:
        for rank in ranks:
            rank.wait(timeout)
    except subprocess.TimeoutExpired:
        pass  # they are killed, and that is a failure
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        said = [f"rank {r}: {ranks[r].returncode}\n{outputs[r].read_text()[-3000:]}" for r in range(2)]
        raise RuntimeError("\n".join(said))
    seen = [json.loads(Path(f"{job}.rank{r}").read_text()) for r in range(2)]
    return [list(by_rank) for by_rank in zip(*seen, strict=True)]
