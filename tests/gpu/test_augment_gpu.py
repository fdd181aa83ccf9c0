"""augment on CUDA: bit for bit the CPU, in every shape, layout and route; graphs, streams, nonsense records."""

from __future__ import annotations

import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word
from tests.ops.programs import random_records, records
from tests.ops.test_arguments import GOOD
from tests.ops.test_augment_ragged import images, packed, plain_records

pytestmark = pytest.mark.gpu

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)


def random_batch(n: int, h: int, w: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, h, w, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def assert_cuda_equals_cpu(
    x: torch.Tensor, params: torch.Tensor, dtype: torch.dtype = torch.uint8, channels_last: bool = True, chains: int = 1
) -> None:
    cpu = ops.augment(x, params, MEAN, STD, dtype=dtype, channels_last=channels_last, chains=chains)
    cuda = ops.augment(x.cuda(), params.cuda(), MEAN, STD, dtype=dtype, channels_last=channels_last, chains=chains)
    assert cuda.stride() == cpu.stride()
    difference = (cuda.cpu().double() - cpu.double()).abs()
    where = difference.flatten(1).amax(1).nonzero().flatten().tolist()
    assert torch.equal(cuda.cpu(), cpu), f"samples {where[:8]} differ by up to {float(difference.max())}"


def test_the_native_library_serves():
    assert ops.backend("cuda") == "native-cuda"


EVERY_OP = [
    Op(Opcode.TRANSLATE, (3.5, -2.0)), Op(Opcode.SHEAR_X, (0.3,)), Op(Opcode.SHEAR_Y, (-0.2,)),
    Op(Opcode.ROTATE, (0.8, 0.6)), Op(Opcode.AFFINE, (0.87, 0.31, -5.3, -0.22, 1.13, 9.7)),
    Op(Opcode.PERSPECTIVE, (0.87, 0.31, -5.3, -0.22, 1.13, 9.7, 0.003, -0.002)), Op(Opcode.BRIGHTNESS, (1.3,)),
    Op(Opcode.CONTRAST, (1.6, -0.6)), Op(Opcode.CONTRAST, (0.4, 0.6), flags=rec.PIL_GRAY),
    Op(Opcode.SATURATION, (0.3, 0.7)), Op(Opcode.SATURATION, (1.8, -0.8), flags=rec.PIL_GRAY), Op(Opcode.HUE, (0.21,)),
    Op(Opcode.POSTERIZE, (3,)), Op(Opcode.SOLARIZE, (100.0,)), Op(Opcode.SOLARIZE_ADD, (50.0, 128.0)),
    Op(Opcode.INVERT), Op(Opcode.GAMMA, (0.7, 1.1)), Op(Opcode.EQUALIZE), Op(Opcode.AUTOCONTRAST),
    Op(Opcode.SHARPNESS, (-0.9,)), Op(Opcode.GRAYSCALE), Op(Opcode.BLUR, (1.7, 11)), Op(Opcode.BLUR, (9.0, 63)),
    Op(Opcode.COLOR_MATRIX, (0.4, 0.7, 0.1, 3.0, 0.3, 0.6, 0.1, -9.0, 0.2, 0.5, 0.1, 0.0)),
]  # fmt: skip


@pytest.mark.parametrize("size", [(224, 224), (33, 47), (1, 9), (9, 1)])
def test_every_op(size):
    assert {op.opcode for op in EVERY_OP} == set(Opcode) - {Opcode.NONE}
    x = random_batch(len(EVERY_OP), *size)
    x[:, size[0] // 2 :] //= 2
    assert_cuda_equals_cpu(x, records([[op] for op in EVERY_OP], fill=(9, 200, 77)))


@pytest.mark.parametrize("border", rec.BORDERS)
@pytest.mark.parametrize("interpolation", rec.INTERPOLATIONS)
def test_every_warp(interpolation, border):
    warps = [op for op in EVERY_OP if op.opcode <= Opcode.PERSPECTIVE]
    programs = [[op._replace(interpolation=interpolation, border=border)] for op in warps]
    assert_cuda_equals_cpu(random_batch(len(warps), 61, 83), records(programs, fill=(9, 200, 77)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels_last", [True, False])
def test_random_records(dtype, channels_last):
    for seed, (h, w) in enumerate(((224, 224), (32, 32), (17, 40), (8, 12), (5, 7), (1, 30), (30, 1), (64, 36))):
        params = random_records(seed, 24, h, w)
        assert_cuda_equals_cpu(random_batch(24, h, w, seed), params, dtype, channels_last)


@pytest.mark.parametrize("chains", [0, 1, 2, 3, 4])
def test_random_chains(chains):
    for seed, (h, w) in enumerate(((64, 64), (33, 21))):
        params = random_records(seed, 24, h, w, chains=max(chains, 1))
        if chains == 0:
            params[:, Word.PROGRAM :] = 0
        for dtype in (torch.uint8, torch.bfloat16):
            assert_cuda_equals_cpu(random_batch(24, h, w, seed), params, dtype, True, chains)


def test_images_too_large_for_shared_memory():
    for h, w in ((384, 384), (401, 333)):
        assert_cuda_equals_cpu(random_batch(12, h, w), random_records(1, 12, h, w))


def test_more_samples_than_programs_look_through_for_partners():
    params = random_records(4, 600, 8, 12)
    params[::2, Word.FLAGS] &= 3
    assert_cuda_equals_cpu(random_batch(600, 8, 12), params, torch.bfloat16)


def test_a_sample_that_another_one_mixes_in():
    """Its program may not write the result alone: the other needs its pixels."""
    params = records([[Op(Opcode.ROTATE, (0.8, 0.6))], [Op(Opcode.INVERT)], [Op(Opcode.SHARPNESS, (-0.9,))], []])
    params[3, Word.FLAGS] = int(Flag.CUTMIX)
    params[3, Word.PARTNER] = 1
    params[3, Word.CUT : Word.CUT + 4] = torch.tensor([2, 3, 20, 30])
    for dtype in DTYPES:
        for channels_last in (True, False):
            assert_cuda_equals_cpu(random_batch(4, 40, 48), params, dtype, channels_last)


def test_inputs_at_any_address_and_stride():
    for offset in range(4):
        flat = random_batch(1, 1, 4000).flatten()
        x = flat[offset : offset + 3 * 12 * 20 * 3].view(3, 12, 20, 3)
        params = random_records(offset, 3, 12, 20)
        on_gpu = flat.cuda()[offset : offset + 3 * 12 * 20 * 3].view(3, 12, 20, 3)
        for dtype in (torch.bfloat16, torch.float32, torch.uint8):
            cpu = ops.augment(x, params, MEAN, STD, dtype=dtype)
            assert torch.equal(ops.augment(on_gpu, params.cuda(), MEAN, STD, dtype=dtype).cpu(), cpu)
    x, params = random_batch(4, 12, 20), random_records(9, 4, 12, 9)
    assert torch.equal(
        ops.augment(x.cuda()[:, :, 3:12], params.cuda(), MEAN, STD).cpu(), ops.augment(x[:, :, 3:12], params, MEAN, STD)
    )


def test_a_sample_does_not_depend_on_its_batch():
    params = random_records(3, 20, 224, 224)
    params[:, Word.FLAGS] &= ~(Flag.MIXUP | Flag.CUTMIX)
    x, params = random_batch(20, 224, 224).cuda(), params.cuda()
    whole = ops.augment(x, params, MEAN, STD, dtype=torch.bfloat16)
    for i in (0, 7, 19):
        assert torch.equal(
            ops.augment(x[i : i + 1], params[i : i + 1], MEAN, STD, dtype=torch.bfloat16), whole[i : i + 1]
        )


def test_without_anything_it_is_normalize():
    for h, w in ((224, 224), (5, 7), (8, 12)):
        x = random_batch(5, h, w).cuda()
        params = records([[]] * 5).cuda()
        for dtype in DTYPES:
            for channels_last in (True, False):
                ours = ops.augment(x, params, MEAN, STD, dtype=dtype, channels_last=channels_last, chains=0)
                expected = ops.normalize(x, MEAN, STD, dtype=dtype, channels_last=channels_last)
                assert torch.equal(ours, expected)


def test_a_graph_replays_with_new_records_and_pixels():
    n, h, w = 16, 96, 100
    x, params = random_batch(n, h, w).cuda(), random_records(0, n, h, w).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            ops.augment(x, params, MEAN, STD, dtype=torch.bfloat16)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.augment(x, params, MEAN, STD, dtype=torch.bfloat16)
    for seed in range(1, 4):
        new_x, new_params = random_batch(n, h, w, seed), random_records(seed, n, h, w)
        x.copy_(new_x)
        params.copy_(new_params)
        graph.replay()
        expected = ops.augment(new_x, new_params, MEAN, STD, dtype=torch.bfloat16)
        assert torch.equal(result.cpu(), expected)


# torch says so of its own mode, once a process.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning")
def test_the_current_stream_is_used_and_nothing_synchronises():
    x, params = random_batch(8, 64, 64).cuda(), random_records(1, 8, 64, 64).cuda()
    expected = ops.augment(x, params, MEAN, STD)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        torch.cuda.set_sync_debug_mode("error")
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late = x.clone()
            result = ops.augment(late, params, MEAN, STD)
            assert not stream.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(result, expected)


# The ops on one batch; those of the ragged family have their own tests below.
SINGLE_OPS = [op for op in GOOD if "x" in GOOD[op] and op not in ("augment", "warp")]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning")
@pytest.mark.parametrize("op", SINGLE_OPS)
def test_a_single_op_equals_the_cpus_and_does_not_synchronise(op):
    there = {name: v.cuda() if isinstance(v, torch.Tensor) else v for name, v in GOOD[op].items()}
    call = getattr(ops, op)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        result = call(**there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = call(**GOOD[op])
    if op == "image_stats":  # the mean is a float64 sum, in no fixed order
        assert torch.equal(result[0].cpu(), expected[0])
        assert torch.allclose(result[1].cpu(), expected[1])
    else:
        assert torch.equal(result.cpu(), expected)


def test_records_on_the_cpu_are_checked_and_copied():
    x, params = random_batch(4, 20, 24).cuda(), random_records(2, 4, 20, 24)
    assert torch.equal(ops.augment(x, params, MEAN, STD), ops.augment(x, params.cuda(), MEAN, STD))
    params[2, Word.VERSION] = 7
    with pytest.raises(ValueError, match="augment: record version of sample 2 must be"):
        ops.augment(x, params, MEAN, STD)


def test_records_of_noise_stay_inside_the_images():
    generator = torch.Generator().manual_seed(0)
    for chains in (0, 1, 2, 3, 4):
        for h, w in ((1, 1), (5, 8), (16, 3), (224, 224)):
            params = torch.randint(-(2**31), 2**31 - 1, (64, rec.WORDS), generator=generator).int()
            params[::2, Word.VERSION] = rec.VERSION
            params[::4, Word.PROGRAM :: 3] &= 0x0003431F
            x = random_batch(64, h, w).cuda()
            op = torch.ops.lightning_gpuaug.augment
            result = op(x, params.cuda(), MEAN, STD, torch.uint8, True, chains)
            torch.cuda.synchronize()
            expected = ops.normalize(x, dtype=torch.uint8)
            ignored = (params[:, Word.VERSION] != rec.VERSION).cuda()
            assert torch.equal(result[ignored], expected[ignored])


def test_empty_batches():
    for shape in ((0, 4, 5), (3, 0, 5), (3, 4, 0)):
        params = records([[Op(Opcode.EQUALIZE)]] * shape[0]).cuda()
        x = random_batch(*shape).cuda()
        assert ops.augment(x, params, MEAN, STD).shape == (shape[0], 3, *shape[1:])


# torch 2.11 meets its own deprecated decorator on Python 3.12 and later, while it imports inductor.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is:DeprecationWarning")
def test_opcheck_and_compile():
    x, params = random_batch(4, 16, 20).cuda(), random_records(1, 4, 16, 20).cuda()
    arguments = (x, params, MEAN, STD, torch.bfloat16, True, 1)
    result = torch.library.opcheck(torch.ops.lightning_gpuaug.augment.default, arguments)
    assert set(result.values()) == {"SUCCESS"}

    def step(x: torch.Tensor) -> torch.Tensor:
        return ops.augment(x, params, MEAN, STD, dtype=torch.bfloat16) * 2

    assert torch.equal(torch.compile(step, fullgraph=True)(x), step(x))


RAGGED = ((375, 500), (61, 83), (40, 40), (1, 9), (900, 7), (1500, 2100), (500, 333))


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", rec.INTERPOLATIONS)
@pytest.mark.parametrize("size", [(224, 224), (33, 47), (1, 1), (301, 5)])
def test_ragged_images(size, interpolation, antialias):
    """Windows, sizes and shrinking of every kind, each way through the kernel; packed and as a list."""
    images = [random_batch(1, h, w, seed=h)[0] for h, w in RAGGED]
    params = random_records(5, len(images), *size)
    flag = rec.INTERPOLATIONS.index(interpolation) << rec.CROP_FILTER_SHIFT | (Flag.ANTIALIAS if antialias else 0)
    params[:, Word.FLAGS] |= int(flag)
    for i, (h, w) in enumerate(RAGGED[:4]):
        params[i, Word.CROP : Word.CROP + 4] = torch.tensor([h // 5, w // 7, max(1, h // 2), max(1, w // 3)])
    cpu = ops.augment_list(images, params, size, MEAN, STD, dtype=torch.bfloat16)
    on_gpu = [image.cuda() for image in images]
    assert torch.equal(ops.augment_list(on_gpu, params.cuda(), size, MEAN, STD, dtype=torch.bfloat16).cpu(), cpu)
    lengths = torch.tensor([image.numel() for image in images])
    sizes = torch.tensor(RAGGED, dtype=torch.int32)
    data, offsets = torch.cat([image.flatten() for image in images]), lengths.cumsum(0) - lengths
    packed = ops.augment_packed(
        data.cuda(), offsets.cuda(), sizes.cuda(), params.cuda(), size, MEAN, STD, dtype=torch.bfloat16
    )
    assert torch.equal(packed.cpu(), cpu)


@pytest.mark.parametrize("size", [(24, 40), (64, 64), (33, 70), (300, 17)])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ragged_images_without_programs_in_one_pass(size, channels_last, dtype):
    options = {"dtype": dtype, "channels_last": channels_last, "chains": 0, "mix": False}
    for seed in range(6):
        params = plain_records(seed)
        cpu = ops.augment_list(images(), params, size, MEAN, STD, **options)
        data, offsets, sizes = (t.cuda() for t in packed(images()))
        on_gpu = [image.cuda() for image in images()]
        assert torch.equal(ops.augment_list(on_gpu, params.cuda(), size, MEAN, STD, **options).cpu(), cpu)
        one_pass = ops.augment_packed(data, offsets, sizes, params.cuda(), size, MEAN, STD, **options)
        assert torch.equal(one_pass.cpu(), cpu)
        assert one_pass.stride() == cpu.stride()


def test_more_images_in_a_list_than_fit_a_kernels_arguments():
    images = [random_batch(1, 5 + i % 7, 6 + i % 5, seed=i)[0] for i in range(450)]
    params = records([[]] * 450)
    cpu = ops.augment_list(images, params, (8, 12), MEAN, STD)
    assert torch.equal(
        ops.augment_list([image.cuda() for image in images], params.cuda(), (8, 12), MEAN, STD).cpu(), cpu
    )


def test_ragged_images_outside_of_the_data_are_black():
    data = random_batch(1, 20, 30).flatten().cuda()
    offsets = torch.tensor([-1, 10, 0, 0, 2**62], device="cuda")
    sizes = torch.tensor([[5, 5], [20, 30], [0, 4], [2**30, 2**30], [4, 4]], dtype=torch.int32, device="cuda")
    result = ops.augment_packed(data, offsets, sizes, records([[]] * 5).cuda(), (16, 16), dtype=torch.uint8)
    assert not result.any()
