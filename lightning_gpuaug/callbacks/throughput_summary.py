"""What a fit's throughput was, as numbers and as a table; and the arithmetic of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuaug.callbacks.run_record import Histogram

_BINS = 40


@dataclass(frozen=True)
class ThroughputSummary:
    """A fit's throughput; None where nothing was measured (fewer batches than warm-up).

    Attributes:
        img_per_s_device: images per second of this rank's device.
        img_per_s_global: images per second of all ranks together.
        step_ms: milliseconds from one optimizer step to the next, data wait included.
        step_ms_p50: median of the same over this rank's steps.
        step_ms_p95: its 95th percentile.
        data_wait_fraction: share of the training time spent waiting for data, 0..1, over all ranks.
        gpu_starved_ms: milliseconds a step in which this rank's GPU had nothing to do for lack of a batch.
        tflops_device: TFLOP/s of this rank's device.
        mfu: the same as a share of the device's dense peak, 0..1.
        images: images delivered by all ranks, those of a resumed run's checkpoint included.
        epochs: training epochs completed, those of the checkpoint included.
        warmup_batches: batches at the start of the fit that the rates and times leave out.
    """

    img_per_s_device: float | None
    img_per_s_global: float | None
    step_ms: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    data_wait_fraction: float | None
    gpu_starved_ms: float | None
    tflops_device: float | None
    mfu: float | None
    images: int
    epochs: int
    warmup_batches: int

    def rows(self) -> list[tuple[str, str]]:
        """`(name, value with unit)` pairs for a table."""
        extra = [
            ("GPU starved", _text(self.gpu_starved_ms, "{:,.3f} ms a step")),
            ("FLOP/s, device", _text(self.tflops_device, "{:,.1f} TFLOP/s")),
            ("MFU", _text(self.mfu, "{:.3f} of the dense peak (0..1)")),
        ]
        known = (self.gpu_starved_ms, self.tflops_device, self.mfu)
        return [
            ("images/s, device", _text(self.img_per_s_device, "{:,.1f} img/s")),
            ("images/s, global", _text(self.img_per_s_global, "{:,.1f} img/s")),
            ("step time", _text(self.step_ms, "{:,.2f} ms")),
            ("step time p50", _text(self.step_ms_p50, "{:,.2f} ms")),
            ("step time p95", _text(self.step_ms_p95, "{:,.2f} ms")),
            ("data wait", _text(self.data_wait_fraction, "{:.3f} of the time (0..1)")),
            *(row for row, value in zip(extra, known, strict=True) if value is not None),
            ("images", f"{self.images:,}"),
            ("epochs", f"{self.epochs}"),
            ("not measured", f"first {self.warmup_batches} batches"),
        ]

    def __str__(self) -> str:
        """One row a line."""
        return "\n".join(f"{name:<17} {value}" for name, value in self.rows())


def ratio(numerator: float, denominator: float) -> float | None:
    """A quotient, or None where there is nothing to divide by."""
    return numerator / denominator if denominator > 0 else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest of `values` that at least a `share` of them (0..1) do not exceed; None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def histogram(values: Sequence[float]) -> Histogram | None:
    """Counts of `values` in bins of equal width up to their 99th percentile, and one bin for the rest."""
    if not values:
        return None
    low, most, top = min(values), percentile(values, 0.99) or 0.0, max(values)
    if most <= low:
        return (
            Histogram([low, top], [len(values)]) if top > low else Histogram([low, low * 1.001 + 1e-9], [len(values)])
        )
    edges = [low + (most - low) * i / _BINS for i in range(_BINS)] + [most]
    counts = [0] * _BINS
    rest = 0
    for value in values:
        if value > most:
            rest += 1
        else:
            counts[min(_BINS - 1, int((value - low) / (most - low) * _BINS))] += 1
    return Histogram([*edges, top], [*counts, rest]) if rest else Histogram(edges, counts)


def _text(value: float | None, form: str) -> str:
    return "not measured" if value is None else form.format(value)
