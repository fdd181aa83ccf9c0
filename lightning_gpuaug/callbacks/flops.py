"""The FLOPs of a training batch, counted while that batch is trained on, and the number format they run in."""

from __future__ import annotations

import sys
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lightning_gpuaug.callbacks.peaks import Format, peak_flops


class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the FLOPs of everything that runs under it, forward and backward, without changing what runs.

    Counted are matrix products, convolutions and attention, by torch's own formulas (a multiply-add is two).
    Element-wise work, other custom kernels and attention on the CPU count as nothing. What a checkpointed model
    computes twice counts twice.
    """

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op as it would have been, and add its FLOPs."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=out))
        return out


def why_not_countable(trainer: pl.Trainer, module: pl.LightningModule) -> str | None:
    """Why the FLOPs of this fit cannot be counted; None if they can."""
    # A compiled graph would run in another way while it is counted, so it is left alone.
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["frames"]:
        return "torch.compile is in use"
    if type(trainer.strategy) not in (SingleDeviceStrategy, DDPStrategy):
        return f"the strategy is {type(trainer.strategy).__name__}"
    if any(getattr(part, "_compiled_call_impl", None) is not None for part in module.modules()):
        return "the model is compiled"
    return None


def number_format(precision: str) -> Format:
    """In which format most FLOPs of a Trainer's `precision` run; float32 runs as TF32 where torch is allowed to."""
    if precision.startswith("bf16"):
        return "bf16"
    if precision.startswith(("16", "transformer-engine-float16")):
        return "fp16"
    if precision.startswith("transformer-engine"):
        return "bf16"
    return "tf32" if torch.get_float32_matmul_precision() != "highest" else "fp32"


class ModelFlops:
    """The FLOPs that a fit spends on an image, and what rate of images makes of them.

    Args:
        per_image: FLOPs of a training step on one image; "auto" to count them, None for unknown.
    """

    def __init__(self, per_image: float | Literal["auto"] | None) -> None:
        """Nothing counted yet."""
        self.per_image = None if isinstance(per_image, str) else per_image
        self.peak: float | None = None
        self._to_count = per_image == "auto"
        self._count: FlopCount | None = None

    @property
    def counting(self) -> bool:
        """Whether a batch is being counted."""
        return self._count is not None

    def of(self, trainer: pl.Trainer) -> ModelFlops:
        """Look up the peak of a Trainer's device in its precision; returns itself."""
        device = trainer.strategy.root_device
        if device.type == "cuda":
            self.peak = peak_flops(torch.cuda.get_device_name(device), number_format(str(trainer.precision)))
        return self

    def begin(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Count what follows, where that is wanted and possible."""
        if self._to_count and why_not_countable(trainer, module) is None:
            self._count = FlopCount()
            self._count.__enter__()  # type: ignore[no-untyped-call]

    def end(self, rows: int) -> None:
        """The batch of `rows` images has been worked through."""
        if self._count is not None:
            self._count.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            if rows and self._count.flops:
                self.per_image = self._count.flops / rows
        self._count, self._to_count = None, False

    def give_up(self) -> None:
        """Stop counting, whatever has been counted."""
        self.end(rows=0)

    def tflops(self, images_per_second: float | None) -> float | None:
        """TFLOP/s at a rate of images; None where either is not known."""
        if images_per_second is None or self.per_image is None:
            return None
        return images_per_second * self.per_image / 1e12

    def mfu(self, images_per_second: float | None) -> float | None:
        """The same as a share of the device's dense peak, 0..1."""
        tera = self.tflops(images_per_second)
        return None if tera is None or self.peak is None else tera * 1e12 / self.peak
