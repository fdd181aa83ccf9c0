"""The number of CUDA's hardware queues: asked for before CUDA starts, the user's choice kept, few warned of."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_gpuaug import cuda_queues

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
SHOW = f"import os, sys, lightning_gpuaug; print(os.environ['{VARIABLE}'], 'torch' in sys.modules)"


@pytest.mark.parametrize(("set_by_user", "printed"), [(None, "32 False"), ("8", "8 False"), ("64", "64 False")])
def test_importing_the_package_asks_for_queues(set_by_user: str | None, printed: str) -> None:
    """Without importing torch: `gpuaug --help` should not wait for it."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if set_by_user is not None:
        environment[VARIABLE] = set_by_user
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, timeout=60,
        cwd=Path(__file__).parent.parent, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == printed


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for `torch.cuda` whose start the test decides on, in a process that has asked for nothing yet."""
    state = SimpleNamespace(started=False)
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: state.started))
    )
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(cuda_queues, "_in_force", None)
    return state


def test_before_cuda_starts_the_wish_is_in_force(cuda: SimpleNamespace) -> None:
    assert cuda_queues.in_force() == 8  # CUDA's own default
    cuda_queues.request()
    assert cuda_queues.in_force() == 32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cuda_queues.warn_if_few()


@pytest.mark.parametrize(("set_to", "queues"), [(None, 8), ("1", 1), ("many", 8)])
def test_after_cuda_has_started_few_are_warned_of(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, set_to: str | None, queues: int
) -> None:
    if set_to is not None:
        monkeypatch.setenv(VARIABLE, set_to)
    cuda.started = True
    cuda_queues.request()
    assert os.environ.get(VARIABLE) == set_to  # too late to change it
    monkeypatch.setenv(VARIABLE, "32")  # and setting it now does not change what CUDA has read
    assert cuda_queues.in_force() == queues
    with pytest.warns(UserWarning, match=f"{VARIABLE} is {queues}: GPU decoding will wait"):
        cuda_queues.warn_if_few()


def test_enough_queues_in_a_running_cuda_are_fine(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "32")
    cuda.started = True
    cuda_queues.request()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cuda_queues.warn_if_few()


def test_a_users_small_number_is_warned_of(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    cuda_queues.request()
    with pytest.warns(UserWarning, match=f"{VARIABLE} is 1: .* Set {VARIABLE}=32"):
        cuda_queues.warn_if_few()
