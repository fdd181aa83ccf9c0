"""What holds for all tests: GPU gating, and how hypothesis searches."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

# CI tries the same examples every time, so that a red run is the change's doing; elsewhere the search goes on.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there is no GPU, unless GPUAUG_REQUIRE_GPU=1 says that their absence is a failure."""
    if torch.cuda.is_available() or os.environ.get("GPUAUG_REQUIRE_GPU") == "1":
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
