"""The loader's contract with decoding on the GPU, and proof that no batch is touched while it is read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import ImageDataModule, Synthetic, hw_decoder
from lightning_gpuaug.bad_images import BadImageError, BadImageWarning
from lightning_gpuaug.loader import Loader
from tests.images import numbered

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def photos() -> Synthetic:
    """Real JPEGs of a photo's size, which the hardware decoder takes."""
    return Synthetic(length=384, num_classes=384, height=120, width=160)


@pytest.fixture
def module(photos: Synthetic) -> Iterator[object]:
    made: list[ImageDataModule] = []

    def make(rank: int = 0, world: int = 1, **options: object) -> ImageDataModule:
        defaults = {
            "train": photos,
            "val": photos,
            "batch_size": 32,
            "image_size": 64,
            "num_threads": 4,
            "decode": "gpu",
        }
        dm = ImageDataModule(**{**defaults, **options}).setup_for("cuda:0", rank, world)  # type: ignore[arg-type]
        made.append(dm)
        return dm

    yield make
    for dm in made:
        dm.teardown("test")


def labels(loader: Loader) -> list[list[int]]:
    return [targets.tolist() for _, targets in loader]


@pytest.mark.parametrize(("batch_size", "world"), [(32, 1), (50, 1), (7, 2), (1, 3), (64, 4)])
def test_evaluation_is_exact(module, batch_size: int, world: int) -> None:
    modules = [module(rank, world, eval_batch_size=batch_size) for rank in range(world)]
    for _ in range(2):
        passes = [labels(dm.val_dataloader()) for dm in modules]
        assert len({len(p) for p in passes}) == 1
        assert all(row for p in passes for row in p)
        assert sorted(sum((sum(p, []) for p in passes), [])) == list(range(384))


@pytest.mark.parametrize(("batch_size", "world"), [(32, 1), (50, 1), (7, 2), (1, 3), (64, 4)])
def test_training_epochs_are_disjoint_over_ranks(module, batch_size: int, world: int) -> None:
    modules = [module(rank, world, batch_size=batch_size, seed=6) for rank in range(world)]
    orders = []
    for _ in range(2):
        passes = [labels(dm.train_dataloader()) for dm in modules]
        assert [len(p) for p in passes] == [len(dm.train_dataloader()) for dm in modules]
        assert {len(rows) for p in passes for rows in p} == {batch_size}
        seen = sum((sum(p, []) for p in passes), [])
        assert len(set(seen)) == len(seen) == 384 // (batch_size * world) * batch_size * world
        orders.append(passes)
    assert orders[0] != orders[1]


def test_batches_are_finished_on_the_device(module) -> None:
    for dtype in ("float32", "float16", "bfloat16", "uint8"):
        for channels_last in (True, False):
            dm = module(dtype=dtype, channels_last=channels_last)
            images, targets = next(iter(dm.train_dataloader()))
            assert images.device == targets.device == torch.device("cuda:0")
            assert images.dtype == getattr(torch, dtype)
            assert images.shape == (32, 3, 64, 64)
            assert (targets.dtype, targets.shape) == (torch.int64, (32,))
            layout = torch.channels_last if channels_last else torch.contiguous_format
            assert images.is_contiguous(memory_format=layout)
    assert dm.decode_device == "gpu"


def test_decoding_on_the_gpu_looks_like_decoding_on_the_cpu(module) -> None:
    for stage in ("train_dataloader", "val_dataloader"):
        gpu = next(iter(getattr(module(dtype="uint8", seed=1), stage)()))
        cpu = next(iter(getattr(module(dtype="uint8", seed=1, decode="cpu"), stage)()))
        assert torch.equal(gpu[1], cpu[1])
        difference = (gpu[0].int() - cpu[0].int()).abs().float()
        assert difference.mean() < 1.5, (stage, difference.mean(), difference.max())


def test_resume_is_exact_to_the_bit(module) -> None:
    whole = module(seed=9).train_dataloader()
    expected = [(x.cpu(), y.cpu()) for _ in range(2) for x, y in whole]
    for stop in (1, 5, 11, 12, 13, 20):
        dm, taken = module(seed=9), 0
        while taken < stop:
            for _ in dm.train_dataloader():
                taken += 1
                if taken == stop:
                    break
        resumed = module(seed=9)
        resumed.load_state_dict(pickle.loads(pickle.dumps(dm.state_dict())))
        rest: list[tuple[torch.Tensor, torch.Tensor]] = []
        while len(rest) < len(expected) - stop:
            rest += [(x.cpu(), y.cpu()) for x, y in resumed.train_dataloader()]
        for (x, y), (x2, y2) in zip(expected[stop:], rest, strict=True):
            assert torch.equal(y, y2)
            assert torch.equal(x, x2)


def test_held_batches_never_change(module) -> None:
    held = [(x, x.clone()) for x, _ in module(dtype="uint8").train_dataloader()]
    list(module().train_dataloader())
    assert all(torch.equal(x, copy) for x, copy in held)


def test_left_passes_start_again(module) -> None:
    loader = module(eval_batch_size=100).val_dataloader()
    whole = labels(loader)
    for leave in (1, 2, 3):
        for step, _ in enumerate(loader, 1):
            if step == leave:
                break
        assert labels(loader) == whole


def test_finding_a_share_leaves_running_loaders_alone(module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards DALI's unused memory is returned, in the midst of what others decode."""
    monkeypatch.setattr(hw_decoder, "_measured", {})
    options = {"batch_size": 16, "hw_decoder_load": 1.0, "seed": 5}
    expected = [(x.clone(), y) for x, y in module(**options).train_dataloader()]
    running = iter(module(**options).train_dataloader())
    got = [next(running) for _ in range(8)]
    module(batch_size=16, hw_decoder_load="auto").train_dataloader()
    assert len(hw_decoder._measured) == 1
    got += running
    assert [y.tolist() for _, y in got] == [y.tolist() for _, y in expected]
    assert all(torch.equal(x, again) for (x, _), (again, _) in zip(got, expected, strict=True))


@pytest.mark.parametrize("mode", ["raise", "substitute"])
def test_bad_images(module, tmp_path: Path, mode: str) -> None:
    source = numbered(tmp_path, 24)
    whole = Path(source.paths[0]).read_bytes()
    for index, content in {5: b"garbage", 11: whole[: len(whole) // 2], 12: b""}.items():
        Path(source.paths[index]).write_bytes(content)
    dm = module(train=source, val=source, batch_size=4, on_bad_image=mode)
    if mode == "raise":
        with pytest.raises(BadImageError, match=r"000005\.jpg"):
            list(dm.val_dataloader())
        return
    with pytest.warns(BadImageWarning):
        seen = sum(labels(dm.val_dataloader()), [])
    assert seen == [i for i in range(24) if i not in (5, 11, 12)]
    with pytest.warns(BadImageWarning):
        assert {len(row) for row in labels(dm.train_dataloader())} == {4}


def test_odd_formats_decode_as_pillow_does(module, tmp_path: Path) -> None:
    """CMYK, grey, palette, PNG named .jpg, WebP, TIFF, BMP, 1×1 and long thin images, beside JPEGs in one batch."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 255, 80)[None, :, None] * np.ones((60, 1, 3))
    rgb = Image.fromarray((ramp * 0.8 + rng.integers(0, 20, (60, 80, 3))).astype(np.uint8))
    files = {
        "cmyk.jpg": rgb.convert("CMYK"), "grey.jpg": rgb.convert("L"), "grey.png": rgb.convert("L"),
        "palette.png": rgb.quantize(64), "rgba.png": rgb.convert("RGBA"), "lossless.webp": rgb, "page.tiff": rgb,
        "bitmap.bmp": rgb, "plain.jpg": rgb, "progressive.jpg": rgb, "one.png": rgb.crop((0, 0, 1, 1)),
        "thin.png": rgb.crop((0, 0, 1, 60)),
    }  # fmt: skip
    folder = tmp_path / "c"
    folder.mkdir()
    for name, image in files.items():
        image.save(
            folder / name,
            **({"progressive": True} if "progressive" in name else {"lossless": True} if "webp" in name else {}),
        )
    rgb.save(folder / "named.jpg.png")
    (folder / "named.jpg.png").rename(folder / "png_named.jpg")
    dm = module(train=tmp_path, val=tmp_path, batch_size=4, eval_batch_size=16, dtype="uint8")
    images = torch.cat([x for x, _ in dm.val_dataloader()]).cpu()
    from torchvision import transforms as T

    reference = T.Compose([T.Resize(round(64 / 0.875)), T.CenterCrop(64), T.PILToTensor()])
    for i in range(len(images)):
        name = Path(dm.sample_name(i, "val")).name
        if name == "thin.png":
            continue
        expected = reference(Image.open(folder / name).convert("RGB"))
        difference = (images[i].int() - expected.int()).abs().float()
        assert difference.mean() < 3.0, (name, difference.mean(), difference.max())


class _Load:
    """GPU work of a few milliseconds that the host queues without waiting, as a training step does."""

    def __init__(self, graph: bool) -> None:
        self.a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.graph = None
        self._work()
        torch.cuda.synchronize()
        if graph:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._work()

    def _work(self) -> None:
        for _ in range(8):
            self.b = torch.mm(self.a, self.b) * 1e-2

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        else:
            self._work()


def _fingerprints(loader: Loader, batches: int, load: _Load | None, stream: torch.cuda.Stream | None) -> torch.Tensor:
    """(batches, 2) int64: a position-weighted sum of every batch's bytes and of its targets, without any host sync."""
    out = torch.zeros((batches, 2), dtype=torch.int64, device="cuda")
    weights = torch.arange(1, 32 * 3 * 64 * 64 + 1, device="cuda", dtype=torch.int64) % 65521
    done = 0
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        while done < batches:
            for images, targets in loader:
                out[done, 0] = (images.permute(0, 2, 3, 1).reshape(-1).long() * weights).sum()
                out[done, 1] = (targets * weights[: len(targets)]).sum()
                if load is not None:
                    load()  # behind it, the next batch's kernels wait while the decoder runs on
                else:
                    torch.cuda.synchronize()
                done += 1
                if done == batches:
                    break
    torch.cuda.synchronize()
    return out.cpu()


BATCHES = int(os.environ.get("GPUAUG_INTEGRITY_BATCHES", "1500"))


@pytest.fixture(scope="module")
def serial(photos: Synthetic) -> torch.Tensor:
    """The fingerprints with the device idle between batches."""
    dm = ImageDataModule(train=photos, batch_size=32, image_size=64, num_threads=4, decode="gpu", dtype="uint8", seed=2)
    try:
        return _fingerprints(dm.setup_for("cuda:0").train_dataloader(), BATCHES, None, None)
    finally:
        dm.teardown("test")


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "cuda_graph"])
@pytest.mark.parametrize("side_stream", [False, True], ids=["default_stream", "side_stream"])
def test_integrity_under_load(module, serial: torch.Tensor, graph: bool, side_stream: bool) -> None:
    """With the host far ahead and the GPU busy, every batch holds the bytes that it holds when nothing overlaps."""
    stream = torch.cuda.Stream() if side_stream else None
    loader = module(dtype="uint8", seed=2).train_dataloader()
    got = _fingerprints(loader, BATCHES, _Load(graph), stream)
    wrong = (got != serial).any(dim=1).nonzero().flatten().tolist()
    assert not wrong, f"{len(wrong)} of {BATCHES} batches differ, the first at {wrong[:5]}"
