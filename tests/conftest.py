"""Shared fixtures: GPU gating, tiny image trees."""

from __future__ import annotations

import os

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there is no GPU, unless GPUAUG_REQUIRE_GPU=1 says that their absence is a failure."""
    if torch.cuda.is_available() or os.environ.get("GPUAUG_REQUIRE_GPU") == "1":
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
