"""The labelled grid: what `tests/cli/test_demo.py` does not show of it."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gpuaug.grid import CAPTION_HEIGHT, GAP, draw_grid


def black(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def test_long_captions_are_wrapped_and_never_leave_their_cell() -> None:
    short = draw_grid([black(40, 80)] * 2, ["a", "b"])
    long = draw_grid([black(40, 80)] * 2, ["several words that need some lines " * 2, "w" * 60])
    assert long.width == short.width
    lines = (long.height - short.height) // CAPTION_HEIGHT
    assert lines >= 3
    pixels = np.asarray(long)
    for edge in (slice(0, GAP), slice(GAP + 80, 2 * GAP + 80), slice(2 * GAP + 160, None)):
        assert (pixels[:, edge] > 200).all()
    assert (pixels[-CAPTION_HEIGHT - GAP :, : GAP + 80] < 128).any()  # the last line is there


def test_line_breaks_are_kept_and_rows_have_their_own_height() -> None:
    grid = draw_grid([black(20, 40)] * 4, ["a\nb\nc", "a", "", ""], columns=2)
    assert grid.height == GAP + (20 + 3 * CAPTION_HEIGHT + GAP) + (20 + GAP)


def test_images_of_different_sizes_stand_in_the_middle_of_their_cells() -> None:
    grid = np.asarray(draw_grid([black(40, 60), black(10, 20)], ["", ""], columns=2))
    left = 2 * GAP + 60
    assert (grid[GAP + 15 : GAP + 25, left + 20 : left + 40] == 0).all()
    assert (grid[:, left : left + 20] == 255).all()
    assert (grid[GAP : GAP + 15, left : left + 60] == 255).all()


def test_columns_of_small_images_are_narrower_but_wide_enough_for_words() -> None:
    grid = draw_grid([black(200, 200), black(20, 20), black(200, 200), black(20, 120)], [""] * 4, columns=2)
    assert grid.width == GAP + 200 + GAP + 120 + GAP
    assert draw_grid([black(200, 200), black(20, 20)], ["", ""]).width == GAP + 200 + GAP + 96 + GAP


def test_headings_stand_above_the_columns() -> None:
    plain = draw_grid([black(20, 60)] * 3, ["", "", ""], columns=3)
    headed = draw_grid([black(20, 60)] * 3, ["", "", ""], columns=3, headings=["image", "epoch 0"])
    assert headed.height == plain.height + CAPTION_HEIGHT
    line = np.asarray(headed)[:CAPTION_HEIGHT]
    assert [bool((line[:, GAP + i * (60 + GAP) :][:, :60] < 200).any()) for i in range(3)] == [True, True, False]


def test_no_images() -> None:
    with pytest.raises(ValueError, match="pixels must be at least one image, got none"):
        draw_grid([], [])
