"""A request as the graph takes it: all numbers of a batch in one matrix, or two, since each costs its own hand-over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.pipeline.request import Request

TICKET, START, SIZE = 0, slice(1, 3), slice(3, 5)
"""Columns of `asked`: the batch's ticket, the window's top and left, its height and width."""

OUTPUT, BEGIN, END = slice(0, 2), slice(2, 4), slice(4, 6)
"""Columns of `target`: the output's height and width, and for evaluation where the part to resize begins and ends."""


def asked(request: Request, ticket: int) -> NDArray[np.int32]:
    """(N, 5): what to decode, and the ticket that comes out with it."""
    matrix = np.empty((len(request), 5), dtype=np.int32)
    matrix[:, TICKET], matrix[:, START], matrix[:, SIZE] = ticket, request.start, request.size
    return matrix


def target(request: Request, image_size: int) -> NDArray[np.float32]:
    """(N, 2), or (N, 6) with a part: what to resize to what size."""
    matrix = np.empty((len(request), 2 if request.part is None else 6), dtype=np.float32)
    matrix[:, OUTPUT] = image_size
    if request.part is not None:
        matrix[:, BEGIN], matrix[:, END] = request.part
    return matrix
