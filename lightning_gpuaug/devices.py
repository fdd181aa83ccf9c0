"""Where batches are handed over."""

from __future__ import annotations

import torch


def torch_device(device: str | torch.device) -> torch.device:
    """The device that `device` names, with an index if it is a CUDA device."""
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f'device must be one that torch knows, as "cpu" or "cuda:0", got {device!r}') from None
    if named.type != "cuda":
        return named
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError(f"device {named} is not there: {why_no_cuda()}")
    index = torch.cuda.current_device() if named.index is None else named.index
    if index >= count:
        raise ValueError(f"device {named} is not there: torch sees {count} CUDA device(s)")
    return torch.device("cuda", index)


def has_jpeg_decoder(capability: tuple[int, int]) -> bool:
    """Whether GPUs of this compute capability decode JPEGs in hardware through nvJPEG.

    8.0 (A100), 9.0 (Hopper) and 10.x (Blackwell data-centre GPUs); NVML lists JPEG engines of other cards too.
    """
    return capability in ((8, 0), (9, 0)) or capability[0] == 10


def why_no_cuda() -> str:
    """Why batches cannot go to a CUDA device, or how they could."""
    if torch.version.cuda is None:
        return "this torch is built without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device (driver missing, or CUDA_VISIBLE_DEVICES hides it)"
    return 'run the Trainer with accelerator="gpu", or use decode="cpu"'
