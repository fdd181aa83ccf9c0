"""`gpuaug preview`: the draws that training will use, from the configurations that training uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug import Examples, ImageDataModule, RandAugment, RandomErasing, TrainRecipe
from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.digits import DigitsTree
from lightning_gpuaug.cli.preview import training_preview
from lightning_gpuaug.grid import GAP
from lightning_gpuaug.recipe import Mix, RandomResizedCrop, Solarize, View
from tests.format_cases import photo

SIZE = 32


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i in range(8):
        (root / f"class{i % 4}").mkdir(exist_ok=True)
        photo(60 + 5 * i, 50 + 3 * i).rotate(10 * i).save(root / f"class{i % 4}" / f"{i}.png")
    return root


def module(root: Path, recipe: TrainRecipe, **options: object) -> ImageDataModule:
    defaults = {"batch_size": 8, "image_size": SIZE, "num_threads": 1, "seed": 6}
    return ImageDataModule(train=root, train_recipe=recipe, **{**defaults, **options}).setup_for("cpu")  # type: ignore[arg-type]


def as_training_sees_it(root: Path, recipe: TrainRecipe, epochs: int) -> np.ndarray:
    """(sample, epoch, H, W, 3): every sample in every epoch, by an ordinary pass over the training data."""
    data = module(root, recipe, dtype="uint8")
    seen = np.empty((8, epochs, SIZE, SIZE, 3), np.uint8)
    loader = data.train_dataloader()
    for epoch in range(epochs):
        [(images, _)] = list(loader)
        seen[loader.plan.batch(epoch, 0), epoch] = images.permute(0, 2, 3, 1).numpy()
    data.teardown("fit")
    return seen


@pytest.mark.parametrize(
    "recipe",
    [TrainRecipe(), TrainRecipe(auto=RandAugment(), erasing=RandomErasing(1.0)), TrainRecipe(auto="rand-m9-inc1")],
    ids=["plain", "policy", "timm"],
)
def test_the_tiles_are_what_training_will_see(photos: Path, recipe: TrainRecipe) -> None:
    indices = [1, 6, 3]
    data = module(photos, recipe)
    rows = training_preview(data, indices, 3).rows
    data.teardown("fit")
    seen = as_training_sees_it(photos, recipe, 3)
    for row, index in zip(rows, indices, strict=True):
        assert len(row) == 4
        for epoch in range(3):
            assert np.array_equal(row[1 + epoch].pixels, seen[index, epoch])


def test_originals_keep_their_ratio_and_captions_tell_the_steps(photos: Path) -> None:
    recipe = TrainRecipe(crop=None, hflip=1.0, erasing=RandomErasing(1.0, (0.25, 0.25), (1.0, 1.0)))
    data = module(photos, recipe)
    [[original, first, _]] = training_preview(data, [0], 2).rows
    name = data._source("train").sample_name(0)
    data.teardown("fit")
    with Image.open(photos / name) as image:
        assert original.pixels.shape[:2] == (round(SIZE * image.height / image.width), SIZE)
        expected = np.asarray(image.resize((SIZE, original.pixels.shape[0]), Image.Resampling.BILINEAR), int)
    assert np.abs(original.pixels - expected).mean() < 6
    assert original.caption == f"class0\n{name}"
    assert first.caption == "flip\nerase 25%"


def test_crops_flips_and_nothing_at_all_are_told(photos: Path) -> None:
    data = module(photos, TrainRecipe(hflip=0.5))
    captions = [tile.caption for row in training_preview(data, list(range(8)), 4).rows for tile in row[1:]]
    data.teardown("fit")
    assert all("crop" in caption for caption in captions)
    assert 5 < sum("flip" in caption for caption in captions) < 27
    data = module(photos, TrainRecipe(crop=None, hflip=0.0))
    assert training_preview(data, [0], 1).rows[0][1].caption == "unchanged"
    data.teardown("fit")


def test_mixing_pairs_the_shown_samples(photos: Path) -> None:
    data = module(photos, TrainRecipe(crop=None, hflip=0.0, mix=Mix(0.0, 1.0)))
    rows = training_preview(data, [0, 5], 1).rows
    data.teardown("fit")
    assert all(row[1].caption.startswith("cutmix, own 0.") for row in rows)


def test_views_and_splits_have_a_column_each(photos: Path) -> None:
    large = View(1, hflip=0.0, crop=None, solarize=Solarize(128, 1.0))
    small = View(2, image_size=16, hflip=1.0, crop=RandomResizedCrop((0.2, 0.3)))
    views = TrainRecipe(views=(large, small))
    splits = TrainRecipe(hflip=0.0, crop=None, splits=2, auto="rand-m9-p1")
    previews = []
    for recipe in (views, splits):
        data = module(photos, recipe)
        previews.append(training_preview(data, [1, 6], 2))
        data.dtype = "uint8"
        loader = data.train_dataloader()
        for epoch in range(2):
            [(images, _)] = list(loader)
            parts = images if isinstance(images, list) else images.split(8)
            for number, part in enumerate(parts):
                for row, index in zip(previews[-1].rows, (1, 6), strict=True):
                    place = loader.plan.batch(epoch, 0).tolist().index(index)
                    tile = row[1 + epoch * len(parts) + number]
                    assert np.array_equal(tile.pixels, part[place].permute(1, 2, 0).numpy())
        data.teardown("fit")
    of_views, of_splits = previews
    assert of_views.headings == ["image", *(f"epoch {e}, view {v}" for e in range(2) for v in (1, 2, 3))]
    assert of_splits.headings == ["image", *(f"epoch {e}, split {s}" for e in range(2) for s in (1, 2))]
    _, first, second, third, *_ = of_views.rows[0]
    assert first.caption == "solarize 128"
    assert second.caption != third.caption
    assert all(20 <= int(tile.caption.split("%")[0].removeprefix("crop ")) <= 31 for tile in (second, third))
    assert all(tile.caption.endswith("flip") for tile in (second, third))
    assert of_splits.rows[0][1].caption == "unchanged"
    assert of_splits.rows[0][2].caption.count("\n") == 1


def test_sizes_follow_the_epochs(photos: Path) -> None:
    data = module(photos, TrainRecipe(image_size={0: 16, 1: 24}))
    [row] = training_preview(data, [2], 3).rows
    data.teardown("fit")
    assert [tile.pixels.shape[0] for tile in row[1:]] == [16, 24, 24]


def test_sources_that_know_their_labels_only_as_they_read(photos: Path) -> None:
    pictures = [(path.read_bytes(), i % 2) for i, path in enumerate(sorted(photos.rglob("*.png"))[:4])]
    source = Examples(pictures, class_names=["even", "odd"])  # type: ignore[arg-type]
    data = ImageDataModule(source, batch_size=2, image_size=SIZE, num_threads=1).setup_for("cpu")
    rows = training_preview(data, [3, 0], 1).rows
    data.teardown("fit")
    assert [row[0].caption for row in rows] == ["odd\n3", "even\n0"]
    assert all(row[1].pixels.shape == (SIZE, SIZE, 3) for row in rows)


def test_from_data_train_alone(tree: DigitsTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "grid.png"
    args = [f"--data.train={tree.train}", "--data.image_size=32", "-o", str(out), "--images=3", "--draws=2"]
    assert main(["preview", *args]) == 0
    assert capsys.readouterr().out == f"3 images × 2 draws written to {out}\n"
    with Image.open(out) as picture:
        assert picture.width == 3 * (4 * 32 + GAP) + GAP
        assert np.asarray(picture)[GAP + 20 : GAP + 100, GAP + 10 : GAP + 110].std() > 20


def test_a_training_configuration_does(tree: DigitsTree, tmp_path: Path) -> None:
    """Model, trainer and validation data are not its business, and batches of any size show any number of images."""
    config, overlay = tmp_path / "base.yaml", tmp_path / "overlay.yaml"
    config.write_text(
        "seed_everything: 5\nmodel: {model: no_such_network}\ntrainer: {max_epochs: 3}\nthroughput: {}\n"
        "data:\n  train: /nowhere\n  val: /nowhere/else\n  batch_size: 4096\n  decode: gpu\n  image_size: 32\n"
        "  train_recipe: {hflip: 0.0, auto: RandAugment}\n"
    )
    overlay.write_text(f"data: {{train: {tree.train}}}\n")
    pictures = []
    for extra in ([], ["--seed_everything=5"], ["--seed_everything=6"], ["--data.train_recipe.auto=AutoAugment"]):
        out = tmp_path / "grid.png"
        args = [f"--config={config}", f"--config={overlay}", f"--out={out}", "--indices=[0, 9]", "--draws=2", *extra]
        assert main(["preview", *args]) == 0
        pictures.append(np.asarray(Image.open(out)))
    assert np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])
    assert not np.array_equal(pictures[0], pictures[3])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "no training data: give --data.train a folder of class folders"),
        (["--data.train=/no/such/folder"], "/no/such/folder"),
        (["--data.train={train}", "--indices=[80]"], "--indices must be in 0..63"),
        (["--data.train={train}", "--draws=0"], "--draws must be at least 1, got 0"),
        (["--data.train={train}", "--data.train_recipe.hflip=2"], "TrainRecipe.hflip"),
        (["--data.train={train}", "--data.train_recipe.auto=rand-m9x"], "the nearest valid one is 'rand'"),
        (["--data.train={train}", "--images=1", "--draws=1", "--out=/proc/x.png"], "--out: /proc/x.png cannot be"),
        (["--data=lightning.pytorch.demos.boring_classes.BoringDataModule"], "data must be an ImageDataModule"),
        (["--config=/no/such/file.yaml"], "/no/such/file.yaml"),
    ],
)
def test_errors_are_one_line(
    args: list[str], message: str, tree: DigitsTree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preview", *(arg.replace("{train}", str(tree.train)) for arg in args)]) in (1, 2)
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("gpuaug preview: error: ")
    assert message in line


def test_a_key_given_twice_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "twice.yaml"
    config.write_text("data:\n  train: a\n  train: b\n")
    assert main(["preview", f"--config={config}"]) == 2
    assert "key `data.train` is given twice, on lines 2 and 3" in capsys.readouterr().err
