"""`BatchPreview` inside a Trainer: when it draws, what it draws, where it goes, and that training does not notice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as T

from lightning_gpuaug import BatchPreview, ImageDataModule, Normalize, TrainRecipe
from lightning_gpuaug.callbacks.batch_images import find_images
from lightning_gpuaug.callbacks.preview import _captions, _pixels
from lightning_gpuaug.cli.digits import DigitsTree, write_digits
from lightning_gpuaug.grid import CAPTION_HEIGHT, GAP

pytestmark = [
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*tensorboardX.*"),
]


class Model(pl.LightningModule):
    """Draws random numbers while it trains, so that a disturbed generator shows in its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def step(self, batch: Any) -> Tensor:
        images = batch[0].float().mean((2, 3)) if batch[0].ndim == 4 else batch[0]
        noise = torch.randn(images.shape) + random.random() + float(np.random.default_rng(0).random())
        loss: Tensor = (self.layer(images + noise) ** 2).mean()
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.step(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Colours(Dataset[tuple[Tensor, int]]):
    """Six 8 × 8 pictures of one colour each, normalised by torchvision."""

    classes = ("red", "green", "blue")

    def __init__(self, normalized: bool = True) -> None:
        steps = [T.ToTensor(), *([T.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))] if normalized else [])]
        self.transform = T.Compose(steps)

    def __len__(self) -> int:
        return 6

    @staticmethod
    def colour(i: int) -> tuple[int, int, int]:
        values = [40 * (i // 3)] * 3
        values[i % 3] = 255 - 40 * (i // 3)
        return values[0], values[1], values[2]

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(Image.new("RGB", (8, 8), self.colour(i))), i % 3


class Pictures(Logger):
    """Keeps images as Weights & Biases' logger takes them."""

    name = version = "pictures"

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, Image.Image, int]] = []

    def log_image(self, key: str, images: list[Image.Image], step: int) -> None:
        self.kept.extend((key, image, step) for image in images)

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        pass

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


def trainer(**arguments: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    defaults = {"devices": 1, "logger": False, "log_every_n_steps": 1, "num_sanity_val_steps": 0}
    return pl.Trainer(accelerator="cpu", **{**defaults, **quiet, **arguments})


def tile(picture: Image.Image, column: int, row: int, side: int, lines: int = 1) -> np.ndarray:
    """One image of the grid."""
    left = GAP + column * (side + GAP)
    top = GAP + row * (side + GAP + lines * CAPTION_HEIGHT)
    return np.asarray(picture)[top : top + side, left : left + side]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> DigitsTree:
    return write_digits(tmp_path_factory.mktemp("digits"), limit=60)


def digits_data(digits: DigitsTree) -> ImageDataModule:
    return ImageDataModule(
        digits.train, digits.val, batch_size=4, image_size=32, train_recipe=TrainRecipe(auto="RandAugment"), seed=3,
        num_threads=1,
    )  # fmt: skip


def test_files_of_the_chosen_epochs_show_the_batches_pixels(digits: DigitsTree, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, "run", 0)
    preview = BatchPreview(epochs=[1], every_n_epochs=3, columns=4)
    fit = trainer(max_epochs=4, callbacks=[preview], logger=logger, limit_train_batches=2, limit_val_batches=1)
    fit.fit(Model(), datamodule=digits_data(digits))
    folder = tmp_path / "run" / "version_0"
    names = {path.name for path in folder.glob("*.png")}
    assert names == {f"preview-{stage}-epoch{epoch:04d}.png" for stage in ("train", "val") for epoch in (0, 1, 3)}

    data = digits_data(digits)
    data.dtype = "uint8"
    data.setup_for("cpu")
    batches = [next(iter(data.train_dataloader()))[0] for _ in range(2)]
    data.teardown("fit")
    for epoch, batch in enumerate(batches):
        with Image.open(folder / f"preview-train-epoch{epoch:04d}.png") as picture:
            for column in range(4):
                expected = batch[column].permute(1, 2, 0).numpy().repeat(3, 0).repeat(3, 1)
                assert np.abs(tile(picture, column, 0, 96).astype(int) - expected).max() <= 1
                caption = np.asarray(picture)[GAP + 96 :, GAP + column * (96 + GAP) : GAP + column * (96 + GAP) + 96]
                assert (caption < 128).any()


@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval")
def test_a_plain_loader_with_torchvisions_normalize(tmp_path: Path) -> None:
    kept = Pictures()
    loader = DataLoader(Subset(Colours(), range(6)), batch_size=6)
    fit = trainer(max_epochs=3, callbacks=[BatchPreview([2], stages=["train"], columns=6)], logger=kept)
    fit.fit(Model(), loader, loader)
    [(key, picture, step)] = kept.kept
    assert (key, step) == ("preview/train", 2)
    for i in range(6):
        assert (tile(picture, i, 0, 96) == Colours.colour(i)).all()


def test_tensorboard_gets_images(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(tmp_path)
    fit = trainer(max_epochs=2, callbacks=[BatchPreview(every_n_epochs=1)], logger=logger)
    fit.fit(Model(), *(DataLoader(Colours(), batch_size=3) for _ in range(2)))
    logger.experiment.flush()
    events = accumulator.EventAccumulator(str(logger.log_dir), size_guidance={"images": 0}).Reload()
    assert set(events.Tags()["images"]) == {"preview/train", "preview/val"}
    assert [event.step for event in events.Images("preview/train")] == [0, 2]


def test_without_a_logger_the_file_lies_in_the_root_folder_and_the_sanity_check_is_not_drawn(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watch(BatchPreview):
        def _draw(self, trainer: pl.Trainer, *args: Any) -> None:
            seen.append(trainer.global_step)
            super()._draw(trainer, *args)

    arguments = {"default_root_dir": tmp_path, "num_sanity_val_steps": 1, "val_check_interval": 1}
    fit = trainer(max_epochs=1, callbacks=[Watch(stages=["val"])], **arguments)
    fit.fit(Model(), *(DataLoader(Colours(), batch_size=3) for _ in range(2)))
    assert seen == [1]  # after the first step, not before it, and not again at the second check
    assert [path.name for path in tmp_path.glob("*.png")] == ["preview-val-epoch0000.png"]


def weights_and_generators(callbacks: list[pl.Callback], root: Path) -> list[Any]:
    pl.seed_everything(4, verbose=False)
    model = Model()
    train, val = (DataLoader(Colours(), batch_size=2, shuffle=shuffle) for shuffle in (True, False))
    trainer(max_epochs=2, callbacks=callbacks, default_root_dir=root).fit(model, train, val)
    return [*model.parameters(), torch.get_rng_state(), torch.tensor(random.random()), torch.tensor(np.random.rand())]


def test_training_does_not_notice(tmp_path: Path) -> None:
    without = weights_and_generators([], tmp_path)
    with_it = weights_and_generators([BatchPreview(every_n_epochs=1)], tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 4
    assert all(torch.equal(a, b) for a, b in zip(without, with_it, strict=True))


def test_what_goes_wrong_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    loader = DataLoader(Colours(), batch_size=3)
    fit = trainer(max_epochs=2, callbacks=[BatchPreview(stages=["train"])], default_root_dir=tmp_path / "occupied")
    with pytest.warns(UserWarning, match="BatchPreview has no picture of train epoch 0: .*occupied"):
        fit.fit(Model(), loader, loader)
    assert fit.current_epoch == 2


def test_a_batch_without_images_is_a_warning(tmp_path: Path) -> None:
    loader = DataLoader([(torch.ones(3), 0)] * 4, batch_size=2)  # type: ignore[arg-type]
    fit = trainer(max_epochs=1, callbacks=[BatchPreview(stages=["train"])], default_root_dir=tmp_path)
    with pytest.warns(UserWarning, match="BatchPreview found no images in a train batch of type list"):
        fit.fit(Model(), loader, loader)


def by_hand(is_global_zero: bool, root: Path) -> Any:
    """A trainer of which nothing but these attributes may be used: anything else could be a collective."""
    return SimpleNamespace(
        current_epoch=0, global_step=0, is_global_zero=is_global_zero, sanity_checking=False, loggers=[],
        default_root_dir=str(root), train_dataloader=DataLoader(Colours()), val_dataloaders=None, datamodule=None,
    )  # fmt: skip


def test_only_rank_zero_draws(tmp_path: Path) -> None:
    batch = next(iter(DataLoader(Colours(), batch_size=6)))
    module: Any = None
    BatchPreview().on_train_batch_start(by_hand(False, tmp_path), module, batch, 0)
    assert list(tmp_path.iterdir()) == []
    BatchPreview().on_train_batch_start(by_hand(True, tmp_path), module, batch, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["preview-train-epoch0000.png"]


def test_each_view_has_a_row(tmp_path: Path) -> None:
    large, small = torch.zeros(5, 3, 96, 96), torch.full((5, 3, 48, 48), 255 / 255)
    batch = ([large, small, small], torch.arange(5) % 3)
    preview, module = BatchPreview(columns=4, normalize=None), None
    preview.on_train_batch_start(by_hand(True, tmp_path), module, batch, 0)  # type: ignore[arg-type]
    with Image.open(tmp_path / "preview-train-epoch0000.png") as picture:
        heights = 96 + CAPTION_HEIGHT + 2 * 48 + 3 * GAP
        assert picture.size == (4 * (96 + GAP) + GAP, heights + GAP)
        assert (tile(picture, 3, 0, 96) == 0).all()


@pytest.mark.parametrize(
    ("batch", "views", "targets"),
    [
        ((torch.zeros(2, 3, 4, 5), torch.tensor([1, 2])), 1, [1, 2]),
        ({"x": torch.zeros(2, 1, 4, 5), "id": torch.tensor([8, 9]), "label": torch.tensor([0, 1])}, 1, [0, 1]),
        ([torch.zeros(2, 4, 5, 3, dtype=torch.uint8)], 1, None),
        (([torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 4, 4)], torch.tensor([3, 3])), 2, [3, 3]),
        ((torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4, dtype=torch.int64)), 1, None),  # a mask is no view
        ((torch.zeros(2, 8), torch.zeros(2)), 0, None),
        (("text", 3), 0, None),
    ],
)  # fmt: skip
def test_finding_images(batch: object, views: int, targets: Sequence[int] | None) -> None:
    found = find_images(batch)
    if views == 0:
        assert found is None
        return
    assert found is not None
    assert len(found.views) == views
    assert (None if found.targets is None else found.targets.tolist()) == targets


def test_captions_of_every_kind_of_target() -> None:
    names = ("cat", "dog", "cow")
    assert _captions(torch.tensor([1, 0, 7]), 3, names) == ["dog", "cat", "7"]
    assert _captions(torch.tensor([1, 0]), 1, ()) == ["1"]
    assert _captions(torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0]]), 2, names) == ["cat 0.70\ndog 0.30", "dog"]
    assert _captions(torch.tensor([[1, 0, 1]]), 1, names) == ["cat, cow"]
    assert _captions(torch.tensor([0.25]), 1, names) == ["0.25"]
    assert _captions(None, 2, names) == ["", ""]


def layouts() -> Iterator[Tensor]:
    pixels = torch.randint(0, 256, (2, 6, 5, 3), dtype=torch.uint8)
    yield from (pixels, pixels.permute(0, 3, 1, 2))


def test_pixels_in_any_layout_and_scale() -> None:
    torch.manual_seed(0)
    for images in layouts():
        expected = images.permute(0, 2, 3, 1).numpy() if images.shape[1] == 3 else images.numpy()
        assert (_pixels(images, "auto") == expected).all()
        assert (_pixels(images / 255, "auto") == expected).all()
        channels_first = images if images.shape[1] == 3 else images.permute(0, 3, 1, 2)
        normalized = (channels_first / 255 - 0.5) / 0.2
        assert (_pixels(normalized.bfloat16().float(), Normalize((0.5,) * 3, (0.2,) * 3)) == expected).mean() > 0.4
        assert (_pixels(normalized, Normalize((0.5,) * 3, (0.2,) * 3)) == expected).all()
    grey = torch.tensor([[[[0.0, 1.0]]]])
    assert _pixels(grey, None).tolist() == [[[[0] * 3, [255] * 3]]]
    with pytest.warns(UserWarning, match=r"stretches values from -2\.00 to 2\.00 .* normalize=Normalize"):
        assert _pixels(grey * 4 - 2, "auto").tolist() == [[[[0] * 3, [255] * 3]]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": [-1]}, r"epochs must be whole numbers ≥ 0, got \[-1\]"),
        ({"every_n_epochs": 0}, "every_n_epochs must be ≥ 1, got 0"),
        ({"images": 0}, "images must be ≥ 1, got 0"),
        ({"stages": ["test"]}, r"stages must be some of \('train', 'val'\), got \['test'\]"),
        ({"normalize": "imagenet"}, "normalize must be a Normalize, \"auto\" or None, got 'imagenet'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchPreview(**arguments)
