"""Arithmetic that torch lacks, for the plain-torch ops: fused multiply-add, Philox, portable normal numbers."""

from __future__ import annotations

import torch


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """`a * b + c` of float32 tensors, rounded once.

    The product is exact in float64. The sum is rounded to odd there, after which rounding to float32 gives what one
    rounding of the exact sum would have given.
    """
    product, addend = a.double() * b.double(), c.double()
    total = product + addend
    addend_part = total - product
    lost = (product - (total - addend_part)) + (addend - addend_part)  # exact: Knuth's two-sum
    bits = total.view(torch.int64)
    towards_lost = torch.where((lost > 0) == (total > 0), 1, -1)
    odd = torch.where((lost != 0) & (bits & 1 == 0) & total.isfinite(), bits + towards_lost, bits)
    return odd.view(torch.float64).float()


def _high_and_low(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The two 32-bit halves of a * b, for int64 tensors that hold 32-bit words."""
    low_part = (a & 0xFFFF) * b
    high_part = (a >> 16) * b
    middle = (low_part >> 16) + (high_part & 0xFFFFFFFF)
    return (high_part >> 32) * 0x10000 + (middle >> 16), (middle << 16 | low_part & 0xFFFF) & 0xFFFFFFFF


def philox(key: tuple[int, int], counter: list[torch.Tensor]) -> list[torch.Tensor]:
    """Philox4x32-10 of four int64 tensors that hold 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _high_and_low(c0, 0xD2511F53)
        high1, low1 = _high_and_low(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def _polynomial(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    total = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = fma(total, x, torch.full_like(x, c))
    return total


_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
           -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
         1.00167406, 2.83297682)  # fmt: skip


def _log(value: torch.Tensor) -> torch.Tensor:
    offset = value.view(torch.int32) - 0x3F3504F3
    exponent = (offset >> 23).float()
    mantissa = ((offset & 0x007FFFFF) + 0x3F3504F3).view(torch.float32)
    x = mantissa - 1.0
    z = x * x
    y = _polynomial(x, _LOG) * x * z
    y = fma(exponent, torch.full_like(x, -2.12194440e-4), y)
    y = fma(torch.full_like(x, -0.5), z, y)
    return fma(exponent, torch.full_like(x, 0.693359375), x + y)


def normal_from_words(words: torch.Tensor) -> torch.Tensor:
    """Standard normal numbers, float32, from int64 tensors that hold 32-bit words."""
    u = (words >> 8).float()
    x = fma(u, torch.full_like(u, 2.0**-23), torch.full_like(u, 2.0**-24 - 1.0))
    w = -_log(fma(-x, x, torch.ones_like(x)))
    tail = w.clamp(min=5.0).sqrt() - 3.0
    p = torch.where(w < 5.0, _polynomial(w - 2.5, _CENTRE), _polynomial(tail, _TAIL))
    return p * x * 1.41421356
