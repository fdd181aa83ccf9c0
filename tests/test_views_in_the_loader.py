"""Views, splits and growing sizes on the training path: what comes out, resuming, bad images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import ImageDataModule, SizeRamp, Solarize, Synthetic, TrainRecipe, View, ops
from lightning_gpuaug import loader as loader_module
from lightning_gpuaug.augment.keys import keys_of
from lightning_gpuaug.augment.params import sample_params
from lightning_gpuaug.bad_images import BadImageError, BadImageWarning
from lightning_gpuaug.recipe import ColorJitter, GaussianBlur, Mix, RandomErasing, RandomResizedCrop
from tests.format_cases import photo

SIMCLR = TrainRecipe(
    views=(View(2, color_jitter=ColorJitter(0.8, 0.8, 0.8, 0.2, 0.8), grayscale=0.2, blur=GaussianBlur(5)),)
)
DINO = TrainRecipe(
    views=(
        View(crop=RandomResizedCrop((0.4, 1.0), interpolation="bicubic"), blur=GaussianBlur(5, probability=1.0)),
        View(crop=RandomResizedCrop((0.4, 1.0), interpolation="bicubic"), solarize=Solarize(probability=0.2)),
        View(6, 12, RandomResizedCrop((0.05, 0.4))),
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i in range(8):
        (root / f"class{i}").mkdir(exist_ok=True)
        photo(60 + 5 * i, 50 + 3 * i).rotate(10 * i).save(root / f"class{i}" / f"{i}.png")
    return root


def module(root: Path, recipe: TrainRecipe, **options: Any) -> ImageDataModule:
    defaults = {"batch_size": 4, "image_size": 32, "num_threads": 1, "seed": 6}
    return ImageDataModule(train=root, train_recipe=recipe, **{**defaults, **options}).setup_for("cpu")


def same(one: Any, other: Any) -> bool:
    """Two batches, to the bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("recipe", [SIMCLR, DINO], ids=["simclr", "dino"])
def test_views_are_each_samples_crops_of_the_whole_image(folder: Path, recipe: TrainRecipe) -> None:
    """The images decoded by Pillow, each view cut from the whole of it, must be what the loader hands over."""
    dm = module(folder, recipe)
    loader = dm.train_dataloader()
    for step, (images, targets) in enumerate(loader):
        indices = loader.plan.batch(0, step)
        assert targets.tolist() == indices.tolist()
        decoded = [np.array(Image.open(loader.source.paths[i])) for i in indices]
        sizes = np.array([pixels.shape[:2] for pixels in decoded], dtype=np.int32)
        tensors = [torch.from_numpy(pixels) for pixels in decoded]
        kinds = [view for view in recipe.views for _ in range(view.count)]
        assert isinstance(images, list)
        assert len(images) == len(kinds)
        for number, (view, batch) in enumerate(zip(kinds, images, strict=True)):
            side = view.image_size or 32
            assert batch.shape == (4, 3, side, side)
            alone = recipe.view_recipe(view)
            params = sample_params(alone, keys_of(indices, view=number), 0, 6, side, side, sizes=sizes)
            assert alone.normalize is not None
            expected = ops.augment_list(
                tensors, torch.from_numpy(params.records), (side, side), alone.normalize.mean, alone.normalize.std,
                chains=params.chains,
            )  # fmt: skip
            assert torch.equal(batch, expected)
    dm.teardown("test")


def test_each_sample_is_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = loader_module.DecodePipeline.start
    monkeypatch.setattr(
        loader_module.DecodePipeline,
        "start",
        lambda self, request, images: (started.append(len(request)), start(self, request, images))[1],
    )
    dm = module(folder, DINO)
    assert len(list(dm.train_dataloader())) == 2
    assert set(started) == {4}
    assert len(started) <= 2 + 2  # and the prefetched ones of the next epoch
    dm.teardown("test")


CASES = {
    "views": DINO,
    "splits": TrainRecipe(auto="augmix-m3", erasing=RandomErasing(1.0), splits=3),
    "sizes": TrainRecipe(auto="rand-m9-inc1", image_size={0: 16, 1: 24, 3: 32}),
    "repeated views": dataclasses.replace(DINO, repeats=2),
}


@pytest.mark.parametrize("name", CASES)
def test_resuming_is_exact_to_the_bit(folder: Path, name: str) -> None:
    recipe = CASES[name]
    whole = module(folder, recipe)
    epochs = [list(whole.train_dataloader()) for _ in range(3)]
    begun = module(folder, recipe)
    assert same(list(begun.train_dataloader()), epochs[0])
    passing = iter(begun.train_dataloader())
    next(passing)
    resumed = module(folder, recipe)
    resumed.load_state_dict(begun.state_dict())
    assert same(list(resumed.train_dataloader()), epochs[1][1:])
    assert same(list(resumed.train_dataloader()), epochs[2])
    assert not same(epochs[0], epochs[1])
    for dm in (whole, begun, resumed):
        dm.teardown("test")


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_splits_are_a_clean_batch_and_augmented_ones_of_the_same_crops(folder: Path, dtype: str) -> None:
    recipe = CASES["splits"]
    plain = module(folder, TrainRecipe(), dtype=dtype)
    dm = module(folder, recipe, dtype=dtype)
    for (images, targets), (x, y) in zip(dm.train_dataloader(), plain.train_dataloader(), strict=True):
        assert isinstance(images, torch.Tensor)
        clean, first, second = images.split(4)
        assert torch.equal(clean, x)
        assert targets.tolist() == y.tolist() * 3
        assert not torch.equal(first, clean)
        assert not torch.equal(first, second)
    plain.teardown("test")
    dm.teardown("test")


def test_sizes_follow_the_schedule_without_another_pipeline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = loader_module.DecodePipeline.__init__
    monkeypatch.setattr(
        loader_module.DecodePipeline, "__init__", lambda self, decoding: (built.append(1), build(self, decoding))[1]
    )
    recipe = TrainRecipe(image_size=SizeRamp(1, 4, 16, 40, multiple=8))
    dm = module(folder, recipe, val=folder, eval_batch_size=8)
    seen = []
    for _ in range(6):
        seen.append({tuple(images.shape) for images, _ in dm.train_dataloader()})
    assert seen == [{(4, 3, side, side)} for side in (16, 16, 24, 32, 40, 40)]
    assert len(built) == 1
    assert next(iter(dm.val_dataloader()))[0].shape == (8, 3, 32, 32)
    for epoch, side in ((2, 24), (4, 40)):  # and the pixels are those of a recipe of that size
        fixed = module(folder, TrainRecipe(image_size=side))
        loader = fixed.train_dataloader()
        ramp = module(folder, recipe).train_dataloader()
        for each in (loader, ramp):
            each.resume(epoch, 0, 6)
        assert same(list(ramp), list(loader))
        ramp.close()
        fixed.teardown("test")
    dm.teardown("test")


def test_sizes_where_the_native_op_resizes(folder: Path) -> None:
    loader = module(folder, TrainRecipe(image_size={0: 16, 1: 24})).train_dataloader()
    packed = loader_module.Loader(
        loader.source, loader.plan, dataclasses.replace(loader.decoding, packed=True), loader.output, seed=6
    )
    for side in (16, 24):
        for (x, y), (x2, y2) in zip(loader, packed, strict=True):
            assert x.shape == x2.shape == (4, 3, side, side)
            assert torch.equal(y, y2)
            assert (x - x2).abs().mean() < 0.1
    loader.close()
    packed.close()


@pytest.mark.parametrize("name", ["views", "splits", "repeated views"])
def test_a_bad_image_is_named_or_substituted(folder: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    for i in range(8):
        (root / f"class{i}").mkdir(parents=True)
        photo(40, 30 + i).save(root / f"class{i}" / "a.png")
    bad = root / "class3" / "a.png"
    bad.write_bytes(bad.read_bytes()[:200])
    dm = module(root, CASES[name])
    with pytest.raises(BadImageError, match=r"class3/a\.png"):  # with repeats, an epoch visits a share of the samples
        [list(dm.train_dataloader()) for _ in range(4)]
    dm = module(root, CASES[name], on_bad_image="substitute")
    with pytest.warns(BadImageWarning, match="bad image replaced: .*class3/a.png"):
        batches = [batch for _ in range(4) for batch in dm.train_dataloader()]
    labels = torch.cat([targets for _, targets in batches])
    assert len(batches) == 8
    assert 3 not in labels
    assert set(labels.tolist()) == {0, 1, 2, 4, 5, 6, 7}
    dm.teardown("test")


def test_batches_that_are_kept_do_not_change(folder: Path) -> None:
    dm = module(folder, DINO)
    kept, copies = [], []
    for _ in range(2):
        for images, targets in dm.train_dataloader():
            kept.append([*images, targets])
            copies.append([x.clone() for x in kept[-1]])
    assert same(kept, copies)
    dm.teardown("test")


def test_a_synthetic_upper_bound_has_the_same_shapes() -> None:
    for recipe in (DINO, CASES["splits"], CASES["sizes"]):
        dm = ImageDataModule(
            train=Synthetic(length=8, mode="cached"), train_recipe=recipe, batch_size=4, image_size=32
        ).setup_for("cpu")  # fmt: skip
        images, targets = next(iter(dm.train_dataloader()))
        if recipe is DINO:
            assert [tuple(x.shape) for x in images] == [(4, 3, 32, 32)] * 2 + [(4, 3, 12, 12)] * 6
            assert targets.shape == (4,)
        elif recipe.splits == 3:
            assert images.shape == (12, 3, 32, 32)
            assert targets.shape == (12,)
        else:
            assert images.shape == (4, 3, 16, 16)
        dm.teardown("test")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: View(count=0), r"View.count must be a whole number in 1\.\.64, got 0"),
        (lambda: View(image_size=0), r"View.image_size must be a whole number in 1\.\.32767, got 0"),
        (lambda: View(hflip=2), r"View.hflip must be a probability in 0\.\.1, got 2"),
        (lambda: View(blur=3), "View.blur must be a GaussianBlur or None, got 3"),
        (lambda: TrainRecipe(views=View()), r"TrainRecipe.views must be a list of View, got View\("),
        (lambda: TrainRecipe(views=(View(40), View(40))), "TrainRecipe.views must be at most 64 in all, got 80"),
        (lambda: TrainRecipe(views=(View(),), mix=Mix()), "TrainRecipe.views must not be given together with mix"),
        (lambda: TrainRecipe(views=(View(),), auto="v0"), "TrainRecipe.auto must be left at its default .* got 'v0'"),
        (lambda: TrainRecipe(views=(View(),), crop=None), "TrainRecipe.crop must be left at its default .* got None"),
        (lambda: TrainRecipe(splits=9), r"TrainRecipe.splits must be a whole number in 1\.\.8, got 9"),
        (lambda: TrainRecipe(splits=2, mix=Mix()), "TrainRecipe.splits must be 1 together with mix, got 2"),
        (lambda: TrainRecipe(image_size="a"), "TrainRecipe.image_size must be a size, a SizeRamp, .* got 'a'"),
        (lambda: TrainRecipe(image_size={5: 32}), "TrainRecipe.image_size must map first epochs to sizes, epoch 0"),
        (lambda: TrainRecipe(image_size={0: 0}), "TrainRecipe.image_size must be a whole number in .* got 0"),
        (lambda: SizeRamp(5, 5, 16, 32), "SizeRamp.end_epoch must be a whole number above start_epoch=5, got 5"),
        (lambda: SizeRamp(0, 5, 64, 32), r"SizeRamp.max_size must be a whole number in 64\.\.32767, got 32"),
        (lambda: Solarize(300), r"Solarize.threshold must be a number in 0\.\.256, got 300"),
    ],
)  # fmt: skip
def test_wrong_fields_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_ramp_is_ffcvs() -> None:
    """Their schedule: np.interp, then the nearest multiple of 32."""
    ramp = SizeRamp(65, 76, 160, 192)
    for epoch in range(90):
        exact = float(np.interp(epoch, [65, 76], [160, 192]))
        assert ramp.at(epoch) == int(np.round(exact / 32)) * 32
    assert [ramp.at(epoch) for epoch in (0, 65, 70, 71, 76, 88)] == [160, 160, 160, 192, 192, 192]
