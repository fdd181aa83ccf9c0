"""Dense peak FLOP/s of NVIDIA GPUs by number format, as NVIDIA publishes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Format = Literal["fp32", "tf32", "fp16", "bf16"]

_A100 = "NVIDIA A100 Tensor Core GPU datasheet (2021)"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet; its tensor figures are with sparsity, halved here"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet; its tensor figures are with sparsity, halved here"
_B200 = "NVIDIA Blackwell datasheet, HGX B200, individual GPU; its tensor figures are with sparsity, halved here"
_L4 = "NVIDIA L4 Tensor Core GPU datasheet; its tensor figures are with sparsity, halved here"
_L40S = "NVIDIA L40S datasheet"
_A10 = "NVIDIA A10 Tensor Core GPU datasheet"
_T4 = "NVIDIA T4 Tensor Core GPU datasheet"
_GA10X = "NVIDIA Ampere GA102 GPU architecture whitepaper; tensor figures with FP32 accumulation"
_ADA = "NVIDIA Ada GPU architecture whitepaper; tensor figures with FP32 accumulation"
_RTX50 = "NVIDIA RTX Blackwell GPU architecture whitepaper; tensor figures with FP32 accumulation"


@dataclass(frozen=True)
class Peak:
    """A GPU's dense peaks.

    Attributes:
        fp32: TFLOP/s outside of the tensor cores.
        tf32: TFLOP/s of tensor cores on float32 inputs; None where there is no TF32.
        fp16: TFLOP/s of tensor cores on float16, accumulated in float32.
        bf16: the same on bfloat16; None where there is none.
        source: where the figures are published.
    """

    fp32: float
    tf32: float | None
    fp16: float
    bf16: float | None
    source: str


def _geforce(fp32: float, fp16: float, source: str) -> Peak:
    """GeForce cards since Ampere run TF32 at the rate of plain FP32, and bfloat16 at that of float16."""
    return Peak(fp32, fp32, fp16, fp16, source)


PEAKS: dict[str, Peak] = {
    "A100": Peak(19.5, 156.0, 312.0, 312.0, _A100),
    "H100 PCIe": Peak(51.0, 378.0, 756.5, 756.5, _H100),
    "H100 NVL": Peak(60.0, 417.5, 835.5, 835.5, _H100),
    "H100": Peak(67.0, 494.5, 989.5, 989.5, _H100),
    "H200 NVL": Peak(60.0, 417.5, 835.5, 835.5, _H200),
    "H200": Peak(67.0, 494.5, 989.5, 989.5, _H200),
    "B200": Peak(75.0, 1100.0, 2250.0, 2250.0, _B200),
    "L4": Peak(30.3, 60.0, 121.0, 121.0, _L4),
    "L40S": Peak(91.6, 183.0, 362.05, 362.05, _L40S),
    "A10": Peak(31.2, 62.5, 125.0, 125.0, _A10),
    "T4": Peak(8.1, None, 65.0, None, _T4),
    "RTX 3060": _geforce(12.7, 25.3, _GA10X),
    "RTX 3060 Ti": _geforce(16.2, 32.4, _GA10X),
    "RTX 3070": _geforce(20.3, 40.6, _GA10X),
    "RTX 3080": _geforce(29.8, 59.5, _GA10X),
    "RTX 3090": _geforce(35.6, 71.0, _GA10X),
    "RTX 4080": _geforce(48.7, 97.5, _ADA),
    "RTX 4090": _geforce(82.6, 165.2, _ADA),
    "RTX 5070": _geforce(30.9, 61.7, _RTX50),
    "RTX 5070 Ti": _geforce(43.9, 87.9, _RTX50),
    "RTX 5080": _geforce(56.3, 112.6, _RTX50),
    "RTX 5090": _geforce(104.8, 209.5, _RTX50),
}
"""By the words that tell a card from others in CUDA's device name, at its published boost clock."""

# Words that name another card, or a part of one, whose peak is not the whole card's.
_OTHERS = {"LAPTOP", "MAX", "MIG", "SUPER", "D"}


def peak_of(device_name: str) -> Peak | None:
    """The peaks of a GPU by its name, as `torch.cuda.get_device_name()` gives it; None for one not in the table.

    A MIG instance, a laptop's GPU and variants that are not listed have no peak here, rather than a wrong one.
    """
    # "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA GeForce RTX 4090"
    words = re.split(r"[\s\-]+", device_name.upper())
    if _OTHERS & set(words):
        return None
    found = [name for name in PEAKS if all(word in words for word in name.upper().split())]
    if "TI" in words:
        found = [name for name in found if "Ti" in name]
    return PEAKS[max(found, key=len)] if found else None


def peak_flops(device_name: str, number_format: Format) -> float | None:
    """Dense peak FLOP/s of a GPU in a number format; None where it is not known or the GPU lacks the format."""
    peak = peak_of(device_name)
    if peak is None:
        return None
    tera = {"fp32": peak.fp32, "tf32": peak.tf32, "fp16": peak.fp16, "bf16": peak.bf16}[number_format]
    return None if tera is None else tera * 1e12
