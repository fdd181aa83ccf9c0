"""Draw a batch as a labelled grid, with the normalisation undone: what the network really sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from lightning_gpuaug.recipe import Normalize

CAPTION_HEIGHT = 14
GAP = 4
_BACKGROUND = (255, 255, 255)
_INK = (30, 30, 30)


def to_pixels(images: torch.Tensor, normalize: Normalize | None) -> np.ndarray:
    """Undo `normalize`.

    Args:
        images: (N, 3, H, W), any float dtype normalised as the recipe says, on any device.
        normalize: what was applied; None for images on the 0..1 scale.

    Returns:
        (N, H, W, 3) uint8.
    """
    scaled = images.detach().float().cpu()
    if normalize is not None:
        mean = torch.tensor(normalize.mean).view(1, 3, 1, 1)
        std = torch.tensor(normalize.std).view(1, 3, 1, 1)
        scaled = scaled * std + mean
    pixels: np.ndarray = (scaled * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return pixels


def draw_grid(pixels: np.ndarray, captions: Sequence[str], *, columns: int = 8, scale: int = 1) -> Image.Image:
    """Lay images out row by row, each with its caption below.

    Args:
        pixels: (N, H, W, 3) uint8.
        captions: N short texts.
        columns: images in a row.
        scale: whole number of screen pixels for one image pixel.

    Raises:
        ValueError: there is not one caption for each image.
    """
    if len(captions) != len(pixels):
        raise ValueError(f"captions must be one for each of the {len(pixels)} images, got {len(captions)}")
    height, width = pixels.shape[1] * scale, pixels.shape[2] * scale
    rows = -(-len(pixels) // columns)
    columns = min(columns, len(pixels))
    cell_w, cell_h = width + GAP, height + CAPTION_HEIGHT + GAP
    canvas = Image.new("RGB", (columns * cell_w + GAP, rows * cell_h + GAP), _BACKGROUND)
    ink = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=11)
    for index, (image, caption) in enumerate(zip(pixels, captions, strict=True)):
        left = GAP + (index % columns) * cell_w
        top = GAP + (index // columns) * cell_h
        canvas.paste(Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST), (left, top))
        ink.text((left + width // 2, top + height + 1), caption, fill=_INK, font=font, anchor="ma")
    return canvas
