"""resize_packed on CUDA: the bits of the CPU, whatever the stream, the sizes and the output."""

from __future__ import annotations

import pytest
import torch

from lightning_gpuaug import ops
from tests.ops.test_resize_packed import SIZES, noise, pack

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [True, False])
def test_cuda_equals_cpu_to_the_bit(interpolation: str, antialias: bool) -> None:
    data, offsets, sizes = pack(noise(*SIZES, (900, 1300)), gap=5)
    flip = torch.arange(len(sizes)) % 3 == 0
    for dtype in (torch.uint8, torch.float32, torch.float16, torch.bfloat16):
        for channels_last in (True, False):
            options = {"dtype": dtype, "channels_last": channels_last, "interpolation": interpolation}
            mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
            cpu = ops.resize_packed(
                data, offsets, sizes, (45, 37), mean, std, flip=flip, antialias=antialias, **options
            )
            gpu = ops.resize_packed(
                data.cuda(), offsets.cuda(), sizes.cuda(), (45, 37), mean, std, flip=flip.cuda(), antialias=antialias,
                **options,
            )  # fmt: skip
            assert torch.equal(gpu.cpu(), cpu)
            assert gpu.stride() == cpu.stride()


def test_what_lies_outside_of_the_data_is_never_read() -> None:
    data, _, _ = pack(noise((4, 4)))
    offsets = torch.tensor([0, 1, -1, 10**12, 0, 0, 0])
    sizes = torch.tensor([[4, 4], [4, 4], [2, 2], [1, 1], [0, 4], [-3, 4], [2**31 - 1, 2**31 - 1]], dtype=torch.int32)
    got = ops.resize_packed(data.cuda(), offsets.cuda(), sizes.cuda(), (4, 4), dtype=torch.uint8)
    assert got[0].any()
    assert not got[1:].any()


def test_side_stream_graph_and_many_samples() -> None:
    data, offsets, sizes = (t.cuda() for t in pack(noise(*[(9, 11)] * 70_000)))
    expected = ops.resize_packed(data.cpu(), offsets.cpu(), sizes.cpu(), (3, 4), dtype=torch.uint8)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        got = ops.resize_packed(data, offsets, sizes, (3, 4), dtype=torch.uint8)
    stream.synchronize()
    assert torch.equal(got.cpu(), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ops.resize_packed(data, offsets, sizes, (3, 4), dtype=torch.uint8)
    data.copy_(255 - data)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(
        captured.cpu(), ops.resize_packed(data.cpu(), offsets.cpu(), sizes.cpu(), (3, 4), dtype=torch.uint8)
    )


def test_opcheck() -> None:
    data, offsets, sizes = (t.cuda() for t in pack(noise((4, 4), (5, 6))))
    torch.library.opcheck(
        torch.ops.lightning_gpuaug.resize_packed.default, (data, offsets, sizes, 8, 8, [0.5] * 3, [0.5] * 3)
    )
