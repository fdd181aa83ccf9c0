"""The ops on CUDA: equal to the CPU bit for bit, and good citizens of streams, graphs, devices and torch.compile."""

from __future__ import annotations

import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops import reference

pytestmark = pytest.mark.gpu

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)


def random_batch(n: int, h: int, w: int, offset: int = 0) -> torch.Tensor:
    """A contiguous CPU batch that starts `offset` bytes into its storage."""
    generator = torch.Generator().manual_seed(n * 1_000_003 + h * 1_009 + w)
    pixels = torch.randint(0, 256, (offset + n * h * w * 3,), dtype=torch.uint8, generator=generator)
    return pixels[offset:].view(n, h, w, 3)


def on_gpu_at(x: torch.Tensor, offset: int) -> torch.Tensor:
    """A contiguous CUDA copy of x that starts `offset` bytes into its storage and ends with it."""
    buffer = torch.empty(offset + x.numel(), dtype=torch.uint8, device="cuda")
    copy = buffer[offset:].view(x.shape)
    copy.copy_(x)
    assert copy.data_ptr() % 16 == offset % 16
    return copy


def flips(n: int) -> list[torch.Tensor | None]:
    return [None, torch.arange(n) % 2 == 0, torch.ones(n, dtype=torch.bool)]


def assert_same(x: torch.Tensor, cuda: torch.Tensor, what: object) -> None:
    for flip in flips(x.shape[0]):
        cuda_flip = None if flip is None else flip.cuda()
        for dtype in DTYPES:
            for channels_last in (True, False):
                expected = ops.normalize(x, MEAN, STD, flip=flip, dtype=dtype, channels_last=channels_last)
                result = ops.normalize(cuda, MEAN, STD, flip=cuda_flip, dtype=dtype, channels_last=channels_last)
                assert result.is_cuda
                assert result.stride() == expected.stride()
                assert torch.equal(result.cpu(), expected), (what, flip, dtype, channels_last)


def test_the_native_library_is_what_runs():
    assert ops.backend("cuda") == "native-cuda", ops.build_info()


@pytest.mark.parametrize("height", [1, 2, 5, 16])
def test_cuda_equals_cpu_at_every_small_width(height):
    for width in (*range(1, 34), 48, 63, 64, 65, 100):
        x = random_batch(3, height, width)
        assert_same(x, x.cuda(), width)


@pytest.mark.parametrize(
    "shape",
    [
        (4, 224, 224),
        (3, 225, 225),
        (2, 226, 226),
        (5, 64, 1),
        (300, 2, 3),
        (1, 1, 5000),
        (70_000, 1, 2),
        (96, 32, 32),
        (3, 100, 123),
    ],
)
def test_cuda_equals_cpu_at_larger_shapes(shape):
    x = random_batch(*shape)
    assert_same(x, x.cuda(), shape)


@pytest.mark.parametrize("offset", range(1, 17))
def test_any_byte_address(offset):
    for shape in ((2, 5, 16), (2, 3, 17), (1, 32, 32)):
        x = random_batch(*shape)
        assert_same(x, on_gpu_at(x, offset), shape)


def test_inputs_of_any_strides():
    base = random_batch(4, 12, 20)
    for view in (base[:, 3:9, 5:18], base[::2, ::3, ::2], base.transpose(1, 2), base[:1].expand(4, -1, -1, -1)):
        cuda = base.cuda().as_strided(view.shape, view.stride(), view.storage_offset())
        assert_same(view, cuda, view.stride())


def test_flip_of_any_stride():
    x, flip = random_batch(4, 3, 8), torch.tensor([1, 0, 0, 1, 1, 0, 0, 0], dtype=torch.bool)
    result = ops.normalize(x.cuda(), MEAN, STD, flip=flip.cuda()[::2])
    assert torch.equal(result.cpu(), ops.normalize(x, MEAN, STD, flip=flip[::2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_torch_on_cuda_gives_the_same_bits(dtype):
    x, flip = random_batch(4, 31, 33), torch.tensor([True, False, False, True])
    for channels_last in (True, False):
        native = ops.normalize(x.cuda(), MEAN, STD, flip=flip.cuda(), dtype=dtype, channels_last=channels_last)
        plain = reference.normalize(x.cuda(), MEAN, STD, flip.cuda(), dtype, channels_last)
        assert torch.equal(native, plain)


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_empty_batches(shape, channels_last):
    n, h, w = shape
    x = torch.empty(n, h, w, 3, dtype=torch.uint8, device="cuda")
    flip = torch.empty(n, dtype=torch.bool, device="cuda")
    assert ops.normalize(x, MEAN, STD, flip=flip, channels_last=channels_last).shape == (n, 3, h, w)
    torch.cuda.synchronize()


def test_a_sample_does_not_depend_on_its_batch():
    x, flip = random_batch(256, 30, 41).cuda(), (torch.arange(256) % 3 == 1).cuda()
    for channels_last in (True, False):
        whole = ops.normalize(x, MEAN, STD, flip=flip, dtype=torch.bfloat16, channels_last=channels_last)
        for i in (0, 1, 100, 255):
            alone = ops.normalize(x[i : i + 1], MEAN, STD, flip=flip[i : i + 1], dtype=torch.bfloat16,
                                  channels_last=channels_last)  # fmt: skip
            assert torch.equal(whole[i : i + 1], alone)


def test_more_than_two_to_the_31_values():
    free, _ = torch.cuda.mem_get_info()
    n, side = 15_000, 224
    values = n * side * side * 3
    assert values > 2**31
    if free < 8 * values:
        pytest.skip(f"needs {8 * values / 2**30:.0f} GiB of free GPU memory, has {free / 2**30:.0f}")
    x = torch.empty(n, side, side, 3, dtype=torch.uint8, device="cuda")
    x.random_(0, 256)
    flip = torch.arange(n, device="cuda") % 2 == 1
    tail = slice(n - 3, n)
    for channels_last in (True, False):
        for dtype in (torch.uint8, torch.bfloat16):
            result = ops.normalize(x, MEAN, STD, flip=flip, dtype=dtype, channels_last=channels_last)
            for part in (slice(0, 3), slice(14_265, 14_270), tail):  # the 2**31st value lies in sample 14 266
                expected = ops.normalize(x[part].cpu(), MEAN, STD, flip=flip[part].cpu(), dtype=dtype)
                assert torch.equal(result[part].cpu(), expected)
            del result
    del x
    torch.cuda.empty_cache()


def test_runs_on_the_current_stream():
    """The input arrives late on a side stream: a kernel on any other stream would read the old pixels."""
    old, new = torch.zeros(64, 32, 32, 3, dtype=torch.uint8), random_batch(64, 32, 32)
    x, late = old.cuda(), new.cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.copy_(late)
        result = ops.normalize(x, MEAN, STD)
    side.synchronize()
    assert torch.equal(result.cpu(), ops.normalize(new, MEAN, STD))


def test_cuda_graph_capture_and_replay():
    first, second = random_batch(8, 16, 24), random_batch(8, 24, 16).view(8, 16, 24, 3)
    flip = torch.arange(8) % 2 == 0
    x, cuda_flip = first.cuda(), flip.cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        ops.normalize(x, MEAN, STD, flip=cuda_flip)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.normalize(x, MEAN, STD, flip=cuda_flip, dtype=torch.bfloat16)
    for pixels, mirror in ((first, flip), (second, ~flip)):
        x.copy_(pixels)
        cuda_flip.copy_(mirror)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result.cpu(), ops.normalize(pixels, MEAN, STD, flip=mirror, dtype=torch.bfloat16))


@pytest.mark.parametrize("channels_last", [True, False])
def test_opcheck(channels_last):
    x, flip = random_batch(2, 3, 4).cuda(), torch.tensor([True, False], device="cuda")
    for mirror in (None, flip):
        arguments = (x, MEAN, STD, mirror, torch.bfloat16, channels_last)
        result = torch.library.opcheck(torch.ops.lightning_gpuaug.normalize.default, arguments)
        assert set(result.values()) == {"SUCCESS"}


def test_torch_compile_without_graph_breaks():
    def step(x: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
        return ops.normalize(x, MEAN, STD, flip=flip, dtype=torch.bfloat16) * 2

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n, h, w in ((2, 3, 4), (5, 8, 7)):
        x, flip = random_batch(n, h, w).cuda(), (torch.arange(n) % 2 == 0).cuda()
        assert torch.equal(compiled(x, flip), step(x, flip))


def test_a_flip_on_another_device():
    x, flip = random_batch(2, 3, 4).cuda(), torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"normalize: flip must be on the device of x \(cuda:0\), got cpu"):
        ops.normalize(x, flip=flip)
    with pytest.raises(RuntimeError, match=r"normalize: flip must be on the device of x \(cuda:0\), got cpu"):
        torch.ops.lightning_gpuaug.normalize(x, MEAN, STD, flip)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_device_that_is_not_the_current_one():
    x = random_batch(4, 16, 16)
    with torch.cuda.device(0):
        result = ops.normalize(x.to("cuda:1"), MEAN, STD)
        assert torch.cuda.current_device() == 0
    assert result.device == torch.device("cuda:1")
    assert torch.equal(result.cpu(), ops.normalize(x, MEAN, STD))
