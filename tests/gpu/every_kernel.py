"""Calls every kernel in each of its ways on small data, for a sanitizer: `python -m tests.gpu.every_kernel`.

Sizes are odd, so that data ends in the middle of a word; with PYTORCH_NO_CUDA_MEMORY_CACHING=1 nothing lies behind it.
"""

from __future__ import annotations

import itertools
import sys

import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word
from tests.ops.boxes import random_boxes
from tests.ops.programs import random_records, records
from tests.ops.regions import features, random_regions
from tests.ops.test_warp import BORDERS, INTERPOLATIONS, images, perspective, two_matrices

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
RAGGED = ((61, 83), (40, 41), (1, 9), (130, 7), (33, 3), (301, 411), (5, 5))


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def normalize(device: str) -> None:
    for (h, w), dtype, channels_last in itertools.product(((5, 7), (8, 12), (33, 64)), DTYPES, (True, False)):
        x = noise(3, h, w, 3).to(device)
        for flip in (None, torch.tensor([True, False, True], device=device)):
            ops.normalize(x, MEAN, STD, flip=flip, dtype=dtype, channels_last=channels_last)


def augment(device: str) -> None:
    for chains, (h, w) in itertools.product((0, 1, 2, 4), ((33, 21), (64, 64), (1, 9), (9, 1))):
        x = noise(16, h, w, 3).to(device)
        params = random_records(chains, 16, h, w, chains=max(chains, 1))
        if chains == 0:
            params[:, Word.PROGRAM :] = 0
        for dtype, channels_last in itertools.product(DTYPES, (True, False)):
            ops.augment(x, params.to(device), MEAN, STD, dtype=dtype, channels_last=channels_last, chains=chains)
    large = noise(4, 384, 385, 3).to(device)  # more than shared memory holds
    ops.augment(large, random_records(9, 4, 384, 385).to(device), MEAN, STD)
    nonsense = torch.randint(-(2**31), 2**31 - 1, (64, rec.WORDS), generator=torch.Generator().manual_seed(0)).int()
    nonsense[::2, Word.VERSION] = rec.VERSION
    torch.ops.lightning_gpuaug.augment(
        noise(64, 5, 8, 3).to(device), nonsense.to(device), MEAN, STD, torch.uint8, True, 2
    )


def ragged(device: str) -> None:
    batch = [noise(h, w, 3, seed=h).to(device) for h, w in RAGGED]
    sizes = torch.tensor(RAGGED, dtype=torch.int32)
    lengths = sizes.long().prod(1) * 3
    data, offsets = torch.cat([image.flatten() for image in batch]), (lengths.cumsum(0) - lengths).to(device)
    sizes = sizes.to(device)
    flip = torch.arange(len(batch), device=device) % 2 == 0
    for interpolation, antialias, size in itertools.product(
        ("nearest", "bilinear", "bicubic"), (True, False), ((24, 40), (33, 47), (1, 1), (160, 200))
    ):
        options = {"interpolation": interpolation, "antialias": antialias}
        ops.resize_packed(data, offsets, sizes, size, MEAN, STD, flip=flip, dtype=torch.bfloat16, **options)  # type: ignore[arg-type]
        params = random_records(5, len(batch), *size)
        params[:, Word.FLAGS] |= int(
            rec.INTERPOLATIONS.index(interpolation) << rec.CROP_FILTER_SHIFT | (Flag.ANTIALIAS if antialias else 0)
        )
        for i, (h, w) in enumerate(RAGGED[:3]):  # the others whole, to their last byte
            params[i, Word.CROP : Word.CROP + 4] = torch.tensor([h // 5, w // 7, max(1, h // 2), max(1, w // 3)])
        params = params.to(device)
        ops.augment_list(batch, params, size, MEAN, STD, dtype=torch.bfloat16)
        ops.augment_packed(data, offsets, sizes, params, size, MEAN, STD, dtype=torch.bfloat16)
    plain = records([[]] * len(batch)).to(device)
    for dtype, channels_last in itertools.product(DTYPES, (True, False)):
        options = {"dtype": dtype, "channels_last": channels_last, "chains": 0, "mix": False}
        ops.augment_list(batch, plain, (24, 40), MEAN, STD, **options)  # type: ignore[arg-type]
        ops.augment_packed(data, offsets, sizes, plain, (24, 40), MEAN, STD, **options)  # type: ignore[arg-type]
        ops.resize_packed(data, offsets, sizes, (31, 33), MEAN, STD, dtype=dtype, channels_last=channels_last)


def single(device: str) -> None:
    x = noise(3, 17, 23, 3).to(device)
    params = records([[Op(Opcode.EQUALIZE)], [Op(Opcode.BLUR, (1.7, 11))], [Op(Opcode.HUE, (0.21,))]]).to(device)
    ops.augment(x, params, MEAN, STD)
    ops.image_stats(x)


def detection(device: str) -> None:
    for n in (0, 1, 63, 700):
        boxes, scores = (t.to(device) for t in random_boxes(n))
        classes = (torch.arange(n) % 3).to(device)
        ops.nms(boxes, scores, 0.5)
        ops.batched_nms(boxes.half(), scores, classes, 0.5)
        ops.nms_padded(boxes, scores, 0.5, 17)
        for method in ("linear", "gaussian"):
            ops.soft_nms(boxes, scores, method=method)  # type: ignore[arg-type]
    for channels, layout, ratio, dtype in itertools.product(
        (3, 8), (torch.contiguous_format, torch.channels_last), (-1, 2), (torch.float32, torch.float16)
    ):
        x = features(2, channels, 15, 19).to(device, dtype).to(memory_format=layout).requires_grad_()
        ops.roi_align(x, random_regions(9, 2).to(device), (3, 5), 0.1, ratio, True).sum().backward()


def warp(device: str) -> None:
    for interpolation, border, layout in itertools.product(
        INTERPOLATIONS, BORDERS, (torch.contiguous_format, torch.channels_last)
    ):
        x = images(2, 3, 21, 31).to(device).to(memory_format=layout)
        for matrix in (two_matrices().to(device), perspective().to(device)):
            ops.warp(x, matrix, (17, 25), interpolation=interpolation, border=border)
            floats = (x / 255).requires_grad_()
            ops.warp(floats, matrix, (17, 25), interpolation=interpolation, border=border).sum().backward()


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    for calls in (normalize, augment, ragged, single, detection, warp):
        calls(device)
        if device == "cuda":
            torch.cuda.synchronize()
        print(calls.__name__, flush=True)


if __name__ == "__main__":
    main()
