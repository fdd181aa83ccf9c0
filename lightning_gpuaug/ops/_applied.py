"""Which matrix the records of `augment` apply, for the annotations of its images."""

from __future__ import annotations

import torch

from lightning_gpuaug.ops import matrices
from lightning_gpuaug.ops._arguments import check_output_size, check_tensor
from lightning_gpuaug.ops._augment import check_contents
from lightning_gpuaug.ops._augment_ragged import check_windows
from lightning_gpuaug.ops._single import INTEGERS
from lightning_gpuaug.ops.record import LONGEST_SIDE, MAX_CHAINS, WORDS, Flag, Word
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
        sizes: heights and widths of the source images, integers (N, 2), 1..32767, for `augment_packed` and
            `augment_list`, which crop; None for `augment`, which does not.

    Returns:
        (N, 3, 3), float32, on the device of params.

    Raises:
        ValueError: an argument has a wrong type or shape; a record is wrong (see `check_records`) or its crop window
            leaves its image; or a sample is an AugMix with warps in it, for which there is no one matrix.
    """
    op = "augment_matrix"
    check_tensor(op, "params", params)
    if params.dtype != torch.int32 or params.ndim != 2 or params.shape[1] != WORDS:
        raise ValueError(f"{op}: params must be torch.int32 (N, {WORDS}), got {params.dtype} {tuple(params.shape)}")
    height, width = check_output_size(op, output_size)
    samples = len(params)
    if sizes is not None:
        check_tensor(op, "sizes", sizes)
        if sizes.dtype not in INTEGERS or tuple(sizes.shape) != (samples, 2):
            raise ValueError(f"{op}: sizes must be integers ({samples}, 2), got {sizes.dtype} {tuple(sizes.shape)}")
    for name, tensor in (("params", params), ("sizes", sizes)):
        if tensor is not None and tensor.is_meta:
            raise ValueError(f"{op}: {name} must have values, got a tensor on meta")
    records = params.cpu().contiguous()
    check_contents(op, records, height, width, MAX_CHAINS)
    if sizes is not None:
        extents = sizes.cpu().long()
        bad = ((extents < 1) | (extents > LONGEST_SIDE)).any(1)
        if bool(bad.any()):
            i = int(bad.nonzero()[0, 0])
            raise ValueError(f"{op}: sizes must be 1..{LONGEST_SIDE}, got {tuple(extents[i].tolist())} for sample {i}")
        check_windows(op, records, extents)
    words, numbers = records.tolist(), records.view(torch.float32).tolist()
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
