"""The data module on two GPUs with NCCL: the same checks as on two gloo ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.distributed_cases import (
    check_epochs_and_exact_evaluation,
    check_resume,
    check_resume_under_another_world_size,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def test_epochs_and_exact_evaluation(tmp_path: Path) -> None:
    check_epochs_and_exact_evaluation(tmp_path, "gpu")


@pytest.mark.parametrize("limit", [{"max_epochs": 3}, {"max_steps": 11, "max_epochs": -1}], ids=["epochs", "steps"])
def test_resume(tmp_path: Path, limit: dict[str, int]) -> None:
    check_resume(tmp_path, "gpu", limit, one_cycle="max_epochs" in limit and limit["max_epochs"] > 0)


def test_resume_under_another_world_size(tmp_path: Path) -> None:
    check_resume_under_another_world_size(tmp_path, "gpu")
