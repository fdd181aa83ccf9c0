"""Checks of single arguments of the public ops: one-line ValueErrors that name the argument, the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import torch

# The smallest float64 that rounds to infinity as a float32.
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103
_LONGEST_VALUE = 100


def shown(value: object) -> str:
    """A value received, on one short line: of arrays and tensors that are not a number, what they are."""
    if isinstance(value, torch.Tensor) and (value.ndim or value.device.type == "meta"):
        return f"{type(value).__name__} of shape {tuple(value.shape)} and type {value.dtype}"
    kind, shape = getattr(value, "dtype", None), getattr(value, "shape", ())
    if kind is not None and shape:
        return f"{type(value).__name__} of shape {shape} and type {kind}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of thousands of digits
        return type(value).__name__
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def is_number(value: object) -> bool:
    """Whether it is a number, NumPy's and one in a tensor too."""
    return isinstance(value, Real) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def is_whole(value: object) -> bool:
    """Whether it is an integer, NumPy's and a symbolic one too."""
    return isinstance(value, Integral | torch.SymInt) and not isinstance(value, bool)


def check_flag(op: str, name: str, value: object) -> None:
    """Require True or False: 0, None and strings are more often mistakes."""
    if not isinstance(value, bool):
        raise ValueError(f"{op}: {name} must be True or False, got {shown(value)}")


def check_choice(op: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """Require one of some names."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{op}: {name} must be one of {', '.join(allowed)}, got {shown(value)}")


def check_whole(op: str, name: str, value: object, least: int, most: int) -> None:
    """Require an integer in least..most."""
    if not is_whole(value):
        raise ValueError(f"{op}: {name} must be a whole number in {least}..{most}, got {shown(value)}")
    if not least <= value <= most:  # type: ignore[operator]
        raise ValueError(f"{op}: {name} must be {least}..{most}, got {shown(value)}")


def check_integer(op: str, name: str, value: object) -> None:
    """Require an integer of 64 bits."""
    if not is_whole(value) or not -(2**63) <= value < 2**63:  # type: ignore[operator]
        raise ValueError(f"{op}: {name} must be an integer of 64 bits, got {shown(value)}")


def check_size(op: str, size: Sequence[int], most: int) -> tuple[int, int]:
    """Require height and width, each in 1..most. Nothing is looked at while compiling."""
    if not torch.compiler.is_compiling():
        pair = isinstance(size, Sequence) and len(size) == 2 and all(map(is_whole, size))
        if not pair or not 1 <= min(size) <= max(size) <= most:
            raise ValueError(f"{op}: size must be two numbers in 1..{most}, height and width, got {shown(size)}")
    height, width = size
    return height, width


def check_output_size(op: str, output_size: Sequence[int]) -> tuple[int, int]:
    """Require (height, width), at least 1 each. Gives them as they are; nothing is looked at while compiling."""
    if not torch.compiler.is_compiling():
        pair = isinstance(output_size, Sequence) and len(output_size) == 2 and all(map(is_whole, output_size))
        if not pair:
            raise ValueError(f"{op}: output_size must be two whole numbers (height, width), got {shown(output_size)}")
        if min(output_size) < 1:
            raise ValueError(f"{op}: output_size must be 1 or more, got {shown(output_size)}")
    height, width = output_size
    return height, width


def check_tensor(op: str, name: str, value: object) -> None:
    """Require a dense tensor."""
    if not isinstance(value, torch.Tensor):
        got = type(value).__name__ if isinstance(value, list | tuple | dict) else shown(value)
        raise ValueError(f"{op}: {name} must be a tensor, got {got}")
    if value.layout != torch.strided:
        raise ValueError(f"{op}: {name} must be a dense tensor, got layout {value.layout}")


def check_device(op: str, name: str, value: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Require two tensors on one device."""
    if value.device != other.device:
        raise ValueError(f"{op}: {name} must be on the device of {other_name} ({other.device}), got {value.device}")


def three_numbers(op: str, name: str, values: object) -> tuple[float, ...]:
    """Numbers of the channels, of a sequence, an array or a tensor; how many there are is left to be checked."""
    if type(values) is tuple and all([type(v) is float for v in values]):
        return values  # as a recipe has them, in a loop over batches
    given = listed(values)
    if given is None or not all(map(_is_real, given)):
        raise ValueError(f"{op}: {name} must be three numbers, one a channel, got {shown(values)}")
    return tuple(as_float(v) for v in given)


def listed(values: object) -> Sequence[float] | None:
    """The values of a sequence (no text), of an array or of a tensor, each of one dimension; None of anything else."""
    if isinstance(values, torch.Tensor) and (values.is_meta or values.is_quantized or values.layout != torch.strided):
        return None
    if hasattr(values, "tolist") and getattr(values, "ndim", 0) == 1:
        values = values.tolist()
    return values if isinstance(values, Sequence) and not isinstance(values, str | bytes) else None


def _is_real(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and not value.is_complex() and value.dtype != torch.bool and not value.is_meta
    return isinstance(value, Real) and not isinstance(value, bool)


def as_float(value: float) -> float:
    """`value` as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:  # an int beyond float64
        return math.inf if value > 0 else -math.inf


def finite_number(op: str, name: str, value: object, least: float | None = None, most: float | None = None) -> float:
    """A number that fits float32, within limits, NumPy's among what it may be; `value` as a float."""
    number = as_float(value) if _is_real(value) else math.nan  # type: ignore[arg-type]
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if not (abs(number) < FLOAT32_OVERFLOW and low <= number <= high):
        raise ValueError(f"{op}: {name} must be {_rule(least, most)}, got {shown(value)}")
    return number


def check_values(
    op: str, name: str, values: torch.Tensor, least: float | None = None, most: float | None = None
) -> None:
    """The same of the numbers of a tensor. On a GPU they are not looked at: that would wait for it."""
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return
    good = values.isfinite()
    good &= (values.abs() < FLOAT32_OVERFLOW) if values.dtype == torch.float64 else True
    good &= (values >= least) if least is not None else True
    good &= (values <= most) if most is not None else True
    if not bool(good.all()):
        at = (~good).nonzero()[0].tolist()
        raise ValueError(f"{op}: {name} must be {_rule(least, most)}, got {name}{at} = {values[tuple(at)].item()}")


def _rule(least: float | None, most: float | None) -> str:
    if least is None:
        return "a finite number"
    return f"a finite number of at least {least:g}" if most is None else f"a number in {least:g}..{most:g}"
