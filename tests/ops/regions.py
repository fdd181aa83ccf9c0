"""Regions and feature maps for the tests of roi_align."""

from __future__ import annotations

import torch


def random_regions(
    k: int, images: int, seed: int = 0, width: float = 200.0, height: float = 150.0, largest: float = 80.0
) -> torch.Tensor:
    """(k, 5) regions, some of them partly or wholly outside the image."""
    g = torch.Generator().manual_seed(seed)
    part = torch.rand(k, 4, generator=g)
    x, y = (part[:, 0] * 1.2 - 0.1) * width, (part[:, 1] * 1.2 - 0.1) * height
    image = torch.randint(0, images, (k,), generator=g).float()
    return torch.stack([image, x, y, x + part[:, 2] * largest, y + part[:, 3] * largest], 1)


def features(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pyramid(channels: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
    """Five levels of a feature pyramid of two 640 x 480 images, each with its regions and scale (Lin et al., 2017)."""
    levels = []
    for i, stride in enumerate((4, 8, 16, 32, 64)):
        x = features(2, channels, -(-480 // stride), -(-640 // stride), seed=seed + i)
        regions = random_regions(40, 2, seed=seed + i, width=640, height=480, largest=stride * 28)
        levels.append((x, regions, 1 / stride))
    return levels
