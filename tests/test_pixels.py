"""The pixels that arrive: against Pillow and torchvision, for every file format, orientation and size."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import EvalRecipe, ImageDataModule, RandomResizedCrop, TrainRecipe
from lightning_gpuaug.augment.draw import draw
from lightning_gpuaug.bad_images import BadImageError
from lightning_gpuaug.loader import Loader
from tests.crops import random_crops
from tests.format_cases import evaluated, photo, write_formats, write_oriented


def module(root: Path, **options: object) -> ImageDataModule:
    defaults = {"batch_size": 4, "eval_batch_size": 64, "image_size": 48, "dtype": "uint8", "num_threads": 1}
    return ImageDataModule(train=root, val=root, **{**defaults, **options}).setup_for("cpu")  # type: ignore[arg-type]


def by_name(dm: ImageDataModule, stage: str = "val") -> dict[str, torch.Tensor]:
    loader = dm.val_dataloader() if stage == "val" else dm.train_dataloader()
    images = torch.cat([x for x, _ in loader])
    dm.teardown("test")
    return {Path(dm.sample_name(i, "val")).name: image for i, image in enumerate(images)}


def test_every_format_decodes_as_pillow_does(tmp_path: Path) -> None:
    shown = write_formats(tmp_path / "c")
    got = by_name(module(tmp_path))
    assert got.keys() == shown.keys()
    for name, image in shown.items():
        difference = (got[name].int() - evaluated(image, 48).int()).abs()
        # Lossy JPEG decoders may differ by a few levels; everything else is resampling's ±1.
        assert difference.float().mean() < 1.0, name
        assert difference.max() <= (12 if ".jp" in name.lower() and name != "png_named.jpg" else 1), name


@pytest.mark.parametrize("respected", [False, True])
def test_exif_orientation_is_one_switch(tmp_path: Path, respected: bool) -> None:
    shown = write_oriented(tmp_path / "c")
    got = by_name(module(tmp_path, eval_recipe=EvalRecipe(exif_orientation=respected)))
    stored = {name: Image.open(tmp_path / "c" / name).convert("RGB") for name in shown}
    for name, image in (shown if respected else stored).items():
        difference = (got[name].int() - evaluated(image, 48).int()).abs()
        assert difference.float().mean() < 1.0, name
    recipe = TrainRecipe(crop=None, hflip=0.0, exif_orientation=respected)
    dm = module(tmp_path, train_recipe=recipe, batch_size=8)
    images, _ = next(iter(dm.train_dataloader()))
    order = dm._loaders["train"].plan.batch(0, 0)
    dm.teardown("test")
    for row, index in enumerate(order):
        name = Path(dm.sample_name(index, "train")).name
        image = (shown if respected else stored)[name].resize((48, 48), Image.Resampling.BILINEAR)
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        assert (images[row].int() - expected.int()).abs().float().mean() < 1.0, name


@pytest.mark.parametrize(("interpolation", "limit"), [("bilinear", 1.0), ("bicubic", 1.0)])
def test_evaluation_is_torchvisions(tmp_path: Path, interpolation: str, limit: float) -> None:
    """A 500-pixel noise image shrunk to 256 and cropped: within a level of Pillow on average."""
    rng = np.random.default_rng(0)
    (tmp_path / "c").mkdir()
    sizes = [(500, 500), (500, 375), (375, 500), (341, 257), (64, 301), (50, 50)]
    for i, (width, height) in enumerate(sizes):
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(tmp_path / "c" / f"{i}.png")
    from torchvision import transforms as T

    got = by_name(module(tmp_path, image_size=224, eval_recipe=EvalRecipe(interpolation=interpolation)))  # type: ignore[arg-type]
    mode = T.InterpolationMode(interpolation)
    reference = T.Compose([T.Resize(256, mode), T.CenterCrop(224), T.PILToTensor()])
    for name, image in got.items():
        expected = reference(Image.open(tmp_path / "c" / name))
        assert (image.int() - expected.int()).abs().float().mean() < limit, name


@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (3.0, 4.0)], ids=["usual", "never_fits"])
def test_training_crops_are_pillows_crop_and_resize(tmp_path: Path, ratio: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    (tmp_path / "c").mkdir()
    for i, (width, height) in enumerate([(90, 60), (60, 90), (64, 64), (200, 31), (1, 1), (1, 300), (5, 3), (120, 80)]):
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(tmp_path / "c" / f"{i}.png")
    crop = RandomResizedCrop(ratio=ratio)
    dm = module(tmp_path, batch_size=8, image_size=32, train_recipe=TrainRecipe(crop=crop), seed=5)
    loader = dm.train_dataloader()
    for epoch in range(3):
        images, _ = next(iter(loader))
        indices = loader.plan.batch(epoch, 0)
        files = [Image.open(tmp_path / "c" / Path(dm.sample_name(i, "train")).name) for i in indices]
        sizes = np.array([[f.height, f.width] for f in files], dtype=np.int32)
        start, size = random_crops(crop, indices, epoch, 5, sizes)
        flip = draw(TrainRecipe(), indices, epoch, 5, sizes).flip
        assert flip is not None
        for row, file in enumerate(files):
            (top, left), (height, width) = start[row], size[row]
            box = (left, top, left + width, top + height)
            expected = np.array(file.crop(box).resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
            if flip[row]:
                expected = expected[:, ::-1]
            got = images[row].permute(1, 2, 0).numpy().astype(int)
            # On noise, the worst case, DALI's filter differs from Pillow's by some levels here and there.
            difference = np.abs(got - expected)
            assert difference.mean() < 1.5
            assert difference.max() <= 24
    dm.teardown("test")


def test_cpu_and_headers_agree_on_sizes(tmp_path: Path) -> None:
    """`ops.image_sizes` against Pillow, for every format it knows, EXIF on and off; unknown is 0 × 0."""
    from lightning_gpuaug import ops
    from lightning_gpuaug.pipeline import path_bytes

    write_formats(tmp_path)
    write_oriented(tmp_path)
    photo(3, 70000 // 3).save(tmp_path / "tall.jpg")
    (tmp_path / "nothing.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "plain.JPEG").read_bytes()[:100])
    names = sorted(path.name for path in tmp_path.iterdir())
    rows = np.array([bytes(tmp_path / name) + b"\0" for name in names])
    for exif in (False, True):
        for threads in (1, 5):
            sizes = ops.image_sizes(torch.from_numpy(path_bytes(rows)), exif_orientation=exif, threads=threads).tolist()
            for name, (height, width) in zip(names, sizes, strict=True):
                if name in ("nothing.jpg", "text.jpg", "cut.jpg"):
                    assert (height, width) == (0, 0), name
                    continue
                with Image.open(tmp_path / name) as image:
                    swapped = exif and image.getexif().get(0x0112, 1) >= 5
                    known = image.format == "JPEG" or (image.format == "PNG" and not exif)
                    expected = image.size if swapped else image.size[::-1]
                assert (height, width) == (expected if known else (0, 0)), (name, exif)


def test_image_sizes_reads_past_large_metadata(tmp_path: Path) -> None:
    """Colour profiles and thumbnails of many kilobytes lie before the size."""
    from lightning_gpuaug import ops
    from lightning_gpuaug.pipeline import path_bytes

    photo().save(tmp_path / "a.jpg", icc_profile=bytes(200_000), comment=b"x" * 60_000)
    rows = np.array([bytes(tmp_path / "a.jpg") + b"\0"])
    assert ops.image_sizes(torch.from_numpy(path_bytes(rows))).tolist() == [[60, 80]]


def test_image_sizes_refuses_bad_input() -> None:
    from lightning_gpuaug import ops

    with pytest.raises(ValueError, match="uint8 tensor of shape"):
        ops.image_sizes(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        ops.image_sizes(torch.zeros((1, 3), dtype=torch.uint8), threads=0)
    with pytest.raises(RuntimeError, match="row 1 does not"):
        ops.image_sizes(torch.tensor([[1, 0], [1, 1]], dtype=torch.uint8))
    assert ops.image_sizes(torch.zeros((0, 3), dtype=torch.uint8)).shape == (0, 2)


@pytest.mark.parametrize("crop", [RandomResizedCrop(), RandomResizedCrop(interpolation="bicubic"), None])
def test_resizing_in_the_native_op_gives_the_same_pictures(tmp_path: Path, crop: RandomResizedCrop | None) -> None:
    """`Decoding.packed`, which the GPU path uses: the windows, resized by `ops.resize_packed` instead of DALI."""
    (tmp_path / "c").mkdir()
    for i, (width, height) in enumerate([(90, 60), (60, 90), (64, 64), (200, 31), (1, 1), (120, 80), (300, 200)]):
        photo(width, height).save(tmp_path / "c" / f"{i}.png")
    options = {"batch_size": 4, "drop_last": False, "image_size": 32, "train_recipe": TrainRecipe(crop=crop), "seed": 3}
    plain = module(tmp_path, **options)
    loader = plain.train_dataloader()
    packed = Loader(
        loader.source, loader.plan, dataclasses.replace(loader.decoding, packed=True), loader.output, seed=3
    )
    for _ in range(2):
        for (x, y), (x2, y2) in zip(loader, packed, strict=True):
            assert torch.equal(y, y2)
            assert (x.int() - x2.int()).abs().float().mean() < 0.6
            assert (x.int() - x2.int()).abs().max() <= 6
    packed.close()
    plain.teardown("test")


def test_the_smallest_and_thinnest_images_reach_the_size(tmp_path: Path) -> None:
    """1×1, 1×2000 and 2000×1, as JPEG and PNG, in evaluation and training, with and without a random crop."""
    (tmp_path / "c").mkdir()
    colour = (200, 40, 90)
    for width, height in ((1, 1), (1, 2000), (2000, 1), (2, 3)):
        for form in ("png", "jpg"):
            image = Image.new("RGB", (width, height), colour)
            image.save(tmp_path / "c" / f"{width}x{height}.{form}", **({"quality": 100} if form == "jpg" else {}))
    for crop in (RandomResizedCrop(), None):
        dm = module(tmp_path, batch_size=8, image_size=48, train_recipe=TrainRecipe(crop=crop))
        for loader in (dm.val_dataloader(), dm.train_dataloader()):
            ((images, _),) = loader
            assert images.shape == (8, 3, 48, 48)
            difference = (images.int() - torch.tensor(colour).view(1, 3, 1, 1)).abs()
            assert difference.max() <= 3
        dm.teardown("fit")


def test_one_filter_for_training_and_evaluation(tmp_path: Path) -> None:
    """A recipe that shows the whole square image gives the same pixels in both stages."""
    rng = np.random.default_rng(2)
    (tmp_path / "c").mkdir()
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (100, 100, 3), dtype=np.uint8)).save(tmp_path / "c" / f"{i}.png")
    dm = module(tmp_path, train_recipe=TrainRecipe(crop=None, hflip=0.0), eval_recipe=EvalRecipe(crop_ratio=1.0))
    ((shown, _),) = dm.val_dataloader()
    loader = dm.train_dataloader()
    ((trained, _),) = loader
    assert torch.equal(trained, shown[torch.from_numpy(loader.plan.batch(0, 0).copy())])
    dm.teardown("fit")


def test_a_gif_named_jpg_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    frames = [photo(), photo().rotate(180)]
    frames[0].save(tmp_path / "c" / "x.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "c" / "x.gif").rename(tmp_path / "c" / "x.jpg")
    dm = module(tmp_path, batch_size=1)
    with pytest.raises(BadImageError, match=r"c/x\.jpg: GIF \(not decodable by DALI\)"):
        list(dm.val_dataloader())
    dm.teardown("fit")
