"""Start a distributed job of two ranks and collect what each rank saw."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def launch(folder: Path, fits: list[dict[str, Any]], *, accelerator: str = "cpu", timeout: float = 180) -> list[Any]:
    """Run `fits` on two ranks; what rank r saw of fit f is `launch(...)[f][r]`.

    Raises:
        RuntimeError: a rank failed; the message ends in its errors.
        subprocess.TimeoutExpired: the ranks wait for each other.
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
    ranks = [
        subprocess.Popen(
            command, env={**shared, "RANK": str(r), "LOCAL_RANK": str(r)}, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for r in range(2)
    ]  # fmt: skip
    try:
        outputs = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, output in zip(ranks, outputs, strict=True):
        if rank.returncode:
            raise RuntimeError(output[-4000:])
    seen = [json.loads(Path(f"{job}.rank{r}").read_text()) for r in range(2)]
    return [list(by_rank) for by_rank in zip(*seen, strict=True)]
