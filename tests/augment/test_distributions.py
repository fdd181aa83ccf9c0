"""Drawn numbers are the same on every machine: NumPy's vector units must not show in them."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys

import numpy as np

from lightning_gpuaug.augment import distributions
from lightning_gpuaug.augment.distributions import Floats, Ints

# Of which CPU NumPy takes this one for: none of the dispatched ones.
OLD_CPU = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}


def draw_at(rows: Ints, slots: Ints) -> Floats:
    """Numbers of the grid of the uniform ones, any."""
    words = (rows[:, None, None] * 7919 + slots[None, :, None] * 104729 + np.arange(4) * 1299709) * 2654435761
    return (words % 2**24) * 2.0**-24


def digest() -> str:
    """Of many numbers of each kind, to the last bit."""
    u = np.arange(0, 2**24, 997) * 2.0**-24
    numbers = [distributions.normal(u, u[::-1])]
    numbers += [distributions.dirichlet(alpha, 3, np.arange(2000), 0, draw_at) for alpha in (0.2, 1.0, 2.5)]
    return hashlib.sha256(b"".join(part.tobytes() for part in numbers)).hexdigest()


def test_another_cpu_draws_the_same_bits() -> None:
    code = "from tests.augment.test_distributions import digest; print(digest())"
    environment = {**os.environ, **OLD_CPU, "PYTHONPATH": os.pathsep.join(sys.path)}
    elsewhere = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.split()[-1] == digest()


def test_functions_of_math_keep_shapes_and_values() -> None:
    values = np.linspace(0.1, 3.0, 24).reshape(2, 3, 4)
    assert np.array_equal(distributions.each(math.log, values), np.vectorize(math.log)(values))
    assert distributions.each(math.exp, np.zeros((0, 4))).shape == (0, 4)
