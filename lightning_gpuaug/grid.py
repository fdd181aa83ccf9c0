"""Draw images as a labelled grid, with the normalisation undone: what the network really sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from lightning_gpuaug.recipe import Normalize

CAPTION_HEIGHT = 14
GAP = 6
_BACKGROUND = (255, 255, 255)
_INK = (30, 30, 30)
_PALE_INK = (120, 120, 120)
_FONT_SIZE = 11
_READABLE = 96
"""Pixels that a column of smaller images is wide, for its captions, where others are wider."""


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


def draw_grid(
    pixels: np.ndarray | Sequence[np.ndarray],
    captions: Sequence[str],
    *,
    columns: int = 8,
    scale: int = 1,
    headings: Sequence[str] = (),
) -> Image.Image:
    """Lay images out row by row, each with its caption below.

    Args:
        pixels: N images, (H, W, 3) uint8; they may differ in size, then the smaller stand in the middle of their cells.
        captions: N texts; line breaks are kept, and lines wider than a cell are wrapped. Empty ones take no room.
        columns: images in a row.
        scale: whole number of screen pixels for one image pixel.
        headings: a line above each column, or nothing.

    Raises:
        ValueError: there are no images, or there is not one caption for each image.
    """
    if len(captions) != len(pixels):
        raise ValueError(f"captions must be one for each of the {len(pixels)} images, got {len(captions)}")
    if len(pixels) == 0:
        raise ValueError("pixels must be at least one image, got none")
    columns = min(columns, len(pixels))
    font = ImageFont.load_default(size=_FONT_SIZE)
    sides = [(image.shape[0] * scale, image.shape[1] * scale) for image in pixels]
    least = min(_READABLE, max(width for _, width in sides))
    widths = [max(least, *(width for _, width in sides[column::columns])) for column in range(columns)]
    lefts = [GAP + sum(widths[:column]) + GAP * column for column in range(columns)]
    lines = [_wrapped(caption, widths[i % columns], font) for i, caption in enumerate(captions)]
    rows = [range(first, min(first + columns, len(pixels))) for first in range(0, len(pixels), columns)]
    tallest = [max(sides[i][0] for i in row) for row in rows]
    text = [CAPTION_HEIGHT * max(len(lines[i]) for i in row) for row in rows]
    top = GAP + (CAPTION_HEIGHT if headings else 0)
    size = (lefts[-1] + widths[-1] + GAP, top + sum(tallest) + sum(text) + GAP * len(rows))
    canvas = Image.new("RGB", size, _BACKGROUND)
    ink = ImageDraw.Draw(canvas)
    for left, width, heading in zip(lefts, widths, headings, strict=False):
        ink.text((left + width // 2, GAP), _fitting(heading, width, font), fill=_PALE_INK, font=font, anchor="ma")
    for row, height, below in zip(rows, tallest, text, strict=True):
        for left, width, i in zip(lefts, widths, row, strict=False):
            tile = Image.fromarray(pixels[i]).resize(sides[i][::-1], Image.Resampling.NEAREST)
            canvas.paste(tile, (left + (width - tile.width) // 2, top + (height - tile.height) // 2))
            for number, line in enumerate(lines[i]):
                place = (left + width // 2, top + height + 1 + number * CAPTION_HEIGHT)
                ink.text(place, line, fill=_INK, font=font, anchor="ma")
        top += height + below + GAP
    return canvas


_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def _wrapped(caption: str, width: int, font: _Font) -> list[str]:
    """The lines of a caption, broken at spaces where they are wider than `width`."""
    lines: list[str] = []
    for paragraph in caption.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}".strip()
            if line and font.getlength(longer) > width:
                lines.append(_fitting(line, width, font))
                longer = word
            line = longer
        lines.append(_fitting(line, width, font))
    return lines


def _fitting(line: str, width: int, font: _Font) -> str:
    """`line`, or as much of its beginning as fits, with a mark that something is missing."""
    if font.getlength(line) <= width:
        return line
    while line and font.getlength(line + "..") > width:
        line = line[:-1]
    return line + ".."
