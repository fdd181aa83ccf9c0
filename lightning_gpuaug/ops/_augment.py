"""The public `augment` and the check of its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from lightning_gpuaug.ops._arguments import check_tensor, check_whole
from lightning_gpuaug.ops._checks import (
    channel_constants,
    check_augment_images,
    check_chains,
    check_output,
    check_params,
)
from lightning_gpuaug.ops.record import (
    CHAIN_END,
    LONGEST_SIDE,
    MAX_BLUR_KERNEL,
    MAX_CHAINS,
    PARAMETERS,
    PROGRAM_WORDS,
    VERSION,
    WORDS,
    Flag,
    Opcode,
    Word,
)


def augment(
    x: torch.Tensor,
    params: torch.Tensor,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    chains: int = 1,
) -> torch.Tensor:
    """Run each sample's own program, then normalise, erase, mix, cast and lay out.

    Every uint8 stage is the same bit for bit on CPU, CUDA and in the plain-torch fallback.

    Args:
        x: images, uint8, shape (N, H, W, 3), on any device; sides of at most 32767. Any strides and storage offset;
            N, H and W may be 0.
        params: the records, int32, shape (N, 64), as `lightning_gpuaug.augment.sample_params` makes them
            (`lightning_gpuaug.ops.record` documents the layout). On a GPU they are used as they are: nothing about the
            launch depends on them, a CUDA graph replays with the records its tensor then holds, and a record that makes
            no sense never leads outside the images. On the CPU they are checked (`check_records`), and copied to the
            device of x (asynchronously from pinned memory).
        mean: three numbers, one a channel, on the 0..1 scale; None means 0.
        std: three numbers above 0, one a channel, on the 0..1 scale; None means 1.
        dtype: `torch.float32`, `torch.float16` or `torch.bfloat16`; or `torch.uint8`, which keeps the pixel scale:
            mean and std then only bring erased values back to it.
        channels_last: memory format of the result: channels_last, or contiguous NCHW when False.
        chains: uint8 images a sample needs between its program and the result: 0 promises that no record has a program,
            1 serves programs, 2 to 4 serves AugMix of so many chains.

    Returns:
        A new tensor of shape (N, 3, H, W) and type `dtype` on the device of x. On CUDA the work is queued on the
        current stream; nothing synchronises.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value; or records on the CPU do (see
            `check_records`).
    """
    mean, std = channel_constants("augment", mean, std)
    if not torch.compiler.is_compiling():  # then the fake checks the tensors, and the kernel mean and std
        check_augment_images("augment", x)
        check_chains("augment", chains)
        params = records_for("augment", params, x.shape[0], x.device, x.shape[1], x.shape[2], chains)
        check_output("augment", dtype, channels_last)
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(x, params, mean, std, dtype, channels_last, chains)
    return result


def records_for(
    op: str, params: torch.Tensor, samples: int, device: torch.device, height: int, width: int, chains: int
) -> torch.Tensor:
    """Records on the device of the images: those on the CPU are checked, and copied (asynchronously, if pinned)."""
    check_params(op, params, samples)
    if params.device.type == "cpu":
        check_contents(op, params, height, width, chains)
        return params.to(device, non_blocking=True)
    if params.device != device:
        raise ValueError(f"{op}: params must be on the device of the images ({device}) or the CPU, got {params.device}")
    return params


def check_records(params: torch.Tensor, height: int, width: int, chains: int = 1) -> None:
    """Check what a batch's records say, on the CPU.

    Args:
        params: the records, int32, shape (N, 64), on the CPU.
        height: of the result, 0 or more.
        width: of the result, 0 or more.
        chains: as for `augment`.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value; or the version is another, an opcode is
            unknown, a program leaves its record, a number is not finite, a rectangle leaves the image, a partner leaves
            the batch, a share leaves 0..1, or there are more programs or AugMix chains than `chains` allows. The
            message names the sample. (Crop windows are checked where the source images are known: in `augment_list`
            and `augment_packed`.)
    """
    op = "check_records"
    check_tensor(op, "params", params)
    check_params(op, params, params.shape[0] if params.ndim else 0)
    if params.device.type != "cpu":
        raise ValueError(f"{op}: params must be on the CPU, got {params.device}")
    check_whole(op, "height", height, 0, LONGEST_SIDE)
    check_whole(op, "width", width, 0, LONGEST_SIDE)
    check_chains(op, chains)
    check_contents(op, params, height, width, chains)


Require = Callable[[torch.Tensor, str, str, torch.Tensor], None]


def requirement(op: str) -> Require:
    """A check of a field of records: good where, its name, "must …", its values."""

    def require(good: torch.Tensor, field: str, rule: str, values: torch.Tensor) -> None:
        if not bool(good.all()):
            i = int((~good).nonzero()[0, 0])
            raise ValueError(f"{op}: {field} of sample {i} must {rule}, got {values[i].tolist()}")

    return require


def check_contents(op: str, params: torch.Tensor, height: int, width: int, chains: int) -> None:
    """Check what records on the CPU say, but for their crop windows."""
    n = params.shape[0]
    words = params.contiguous()
    numbers = words.view(torch.float32)
    require = requirement(op)
    version = words[:, Word.VERSION]
    require(version == VERSION, "record version", f"be {VERSION}", version)
    flags = words[:, Word.FLAGS]
    count = words[:, Word.CHAINS]
    good_count = (count >= 0) & (count <= min(chains, MAX_CHAINS))
    require(good_count, "AugMix chains", f"be 0..{chains} (chains={chains})", count)
    for name, at, used in (
        ("erased rectangle", Word.ERASE, flags & (Flag.ERASE_CONSTANT | Flag.ERASE_NOISE) != 0),
        ("CutMix box", Word.CUT, flags & Flag.CUTMIX != 0),
    ):
        box = words[:, at : at + 4]
        top, left, h, w = box.long().unbind(1)
        inside = (box >= 0).all(1) & (top + h <= height) & (left + w <= width)
        require(inside | ~used, name, f"lie in {height} x {width} pixels (top, left, height, width)", box)
    mixed = flags & (Flag.MIXUP | Flag.CUTMIX) != 0
    partner = words[:, Word.PARTNER]
    require(~mixed | (partner >= 0) & (partner < n), "mix partner", f"be a row of the batch, 0..{n - 1}", partner)
    own = numbers[:, Word.LAMBDA]
    require(~mixed | (own >= 0) & (own <= 1), "mix share", "be in 0..1", own)
    for name, at, length in (
        ("erased value", Word.ERASE_VALUE, 3),
        ("AugMix weight", Word.ORIGINAL_WEIGHT, 1 + MAX_CHAINS),
        ("program", Word.PROGRAM, WORDS - Word.PROGRAM),
    ):
        part = numbers[:, at : at + length]
        require(part.isfinite().all(1), name, "be finite", part)
    _check_programs(words, chains, require)


def _check_programs(words: torch.Tensor, chains: int, require: Require) -> None:
    """Check every op of every program at once: only where an op begins depends on the one before."""
    program = words[:, Word.PROGRAM :]
    opcode = program & 0xFF
    sizes = torch.tensor(PARAMETERS, dtype=torch.int32)[opcode.clamp(max=len(PARAMETERS) - 1).long()]
    head = _heads(program, sizes)
    if chains == 0:
        require(~head.any(1), "program", "be empty (chains=0)", program)

    def require_of_ops(good: torch.Tensor, field: str, rule: str, values: torch.Tensor) -> None:
        bad = head & ~good
        first = bad.to(torch.uint8).argmax(1, keepdim=True)
        require(~bad.any(1), field, rule, values.gather(1, first)[:, 0])

    known = ((opcode > 0) | (program == CHAIN_END << 16)) & (opcode < len(PARAMETERS))
    require_of_ops(known, "opcode", f"be 1..{len(PARAMETERS) - 1}", opcode)
    room = torch.arange(PROGRAM_WORDS - 1, -1, -1)  # words after each one
    require(~(head & (sizes > room)).any(1), "program", "end within its record", program)
    first, second = program.roll(-1, 1), program.roll(-2, 1)
    require_of_ops((opcode != Opcode.POSTERIZE) | (first >= 0) & (first <= 8), "posterize", "keep 0..8 bits", first)
    odd = (second % 2 == 1) & (second >= 1) & (second <= MAX_BLUR_KERNEL)
    require_of_ops((opcode != Opcode.BLUR) | odd, "blur kernel", f"be odd and at most {MAX_BLUR_KERNEL}", second)
    sigma = first.contiguous().view(torch.float32)
    require_of_ops((opcode != Opcode.BLUR) | (sigma > 0), "blur sigma", "be above 0", sigma)


def _heads(program: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Which words of programs are heads of ops, bool (N, 32); `sizes` are the parameters that each would have."""
    columns, counts = program.T.ne(0), sizes.T.contiguous()
    head = torch.zeros_like(columns)
    used = columns.any(1).nonzero()
    left = torch.zeros(len(program), dtype=torch.int32)  # parameters still to come
    for at in range(int(used[-1]) + 1 if len(used) else 0):
        torch.logical_and(left == 0, columns[at], out=head[at])
        left = torch.where(head[at], counts[at], (left - 1).clamp_(min=0))
    return head.T
