"""DALI's pipelines in a forked process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_FORK = """
import gc, os, warnings
from lightning_gpuaug import TrainRecipe
from lightning_gpuaug.pipeline import DecodePipeline, Decoding, FilePipeline

gc.disable()
decoding = Decoding(TrainRecipe(), 8, 4, "cpu", None, num_threads=1)
for make in (lambda: DecodePipeline(decoding), lambda: FilePipeline(1)):
    cycle = [make()]
    cycle.append(cycle)
    del cycle
warnings.simplefilter("ignore")  # forking beside threads
child = os.fork()
if child == 0:
    gc.collect()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""


def test_a_pipeline_that_nobody_wants_does_not_stop_a_forked_process() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", _FORK], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.strip() == "7", done.stderr[-2000:]
