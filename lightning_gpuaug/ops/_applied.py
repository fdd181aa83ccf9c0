"""Which matrix the records of `augment` apply, for the annotations of its images."""

from __future__ import annotations

import torch

from lightning_gpuaug.ops import matrices
from lightning_gpuaug.ops._box_checks import check_output_size, check_tensor
from lightning_gpuaug.ops.record import WORDS, Flag, Word
from lightning_gpuaug.ops.reference_augment import WARPS, read_ops
from lightning_gpuaug.ops.reference_geometry import warp_numbers


def augment_matrix(
    params: torch.Tensor, output_size: tuple[int, int], sizes: torch.Tensor | None = None
) -> torch.Tensor:
    """The matrix that `augment` (`augment_packed`, `augment_list`) applies to a sample: crop, flips and warps as one.

    It is dst to src as for `warp`, so `transform_points`, `transform_boxes` and `transform_masks` take it. Of mixed
    samples it is the sample's own; its partner has the partner's. Computed on the CPU: params on a GPU are waited for.

    Args:
        params: records, int32 (N, 64).
        output_size: (height, width) of the result.
        sizes: heights and widths of the source images, integers (N, 2), for `augment_packed` and `augment_list`, which
            crop; None for `augment`, which does not.

    Returns:
        (N, 3, 3), float32, on the device of params.

    Raises:
        ValueError: an argument has a wrong type or shape; or a sample is an AugMix with warps in it, for which there
            is no one matrix.
    """
    op = "augment_matrix"
    check_tensor(op, "params", params)
    if params.dtype != torch.int32 or params.ndim != 2 or params.shape[1] != WORDS:
        raise ValueError(f"{op}: params must be torch.int32 (N, {WORDS}), got {params.dtype} {tuple(params.shape)}")
    height, width = check_output_size(op, output_size)
    records = params.detach().cpu().contiguous()
    words, numbers = records.tolist(), records.view(torch.float32).tolist()
    if sizes is not None:
        check_tensor(op, "sizes", sizes)
        if sizes.is_floating_point() or tuple(sizes.shape) != (len(words), 2):
            raise ValueError(f"{op}: sizes must be integers ({len(words)}, 2), got {sizes.dtype} {tuple(sizes.shape)}")
    whole = [None] * len(words) if sizes is None else sizes.tolist()
    made = [
        _of_record(i, w, f, height, width, s) for i, (w, f, s) in enumerate(zip(words, numbers, whole, strict=True))
    ]
    return torch.stack(made).to(params.device) if made else torch.zeros(0, 3, 3, device=params.device)


def _of_record(
    sample: int, words: list[int], numbers: list[float], height: int, width: int, size: list[int] | None
) -> torch.Tensor:
    steps = [torch.eye(3, dtype=torch.float64)]
    if size is not None:
        top, left, rows, columns = words[Word.CROP : Word.CROP + 4]
        if rows == 0:
            top, left, (rows, columns) = 0, 0, size
        steps.append(matrices.crop_resize(top, left, rows, columns, (height, width)))
    if words[Word.FLAGS] & Flag.FLIP_HORIZONTAL:
        steps.append(matrices.horizontal_flip(width))
    if words[Word.FLAGS] & Flag.FLIP_VERTICAL:
        steps.append(matrices.vertical_flip(height))
    warps = [found for found in read_ops(words, numbers) if found.opcode in WARPS]
    if warps and words[Word.CHAINS] > 0:
        raise ValueError(
            f"augment_matrix: params must not have warps in AugMix chains, which no one matrix describes, got one in "
            f"sample {sample}"
        )
    for found in warps:
        row = [*warp_numbers(found.opcode, found.numbers, height, width), 1.0]
        steps.append(torch.tensor(row, dtype=torch.float64).view(3, 3))
    return matrices.compose(*steps).to(torch.float32)
