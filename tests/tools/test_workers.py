"""Work in processes: results in order, and every end of it told in one line."""

from __future__ import annotations

import os
import signal
import time

import pytest

from lightning_gpuaug.tools import workers


def squared(number: int) -> int:
    time.sleep(0.05 if number == 0 else 0)  # the first is the last to be done
    workers.count(number)
    return number * number


def failing(number: int) -> int:
    if number == 1:
        raise ValueError(f"number must not be 1, got {number}")
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order_and_all_is_counted(processes: int) -> None:
    counted: list[int] = []
    assert list(workers.in_order(squared, range(9), processes, counted.append)) == [i * i for i in range(9)]
    assert sum(counted) == sum(range(9))


def test_what_goes_wrong_in_a_worker_is_told_here() -> None:
    with pytest.raises(ValueError, match="number must not be 1, got 1"):
        list(workers.in_order(failing, [0, 1], 2))
    with pytest.raises(RuntimeError, match="a worker process was killed; is there too little memory"):
        list(workers.in_order(failing, [2], 2))
