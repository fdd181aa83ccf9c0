"""Draws the pictures of docs/preview.md, with the very commands that it shows.

    python docs/make_preview_pictures.py [--out docs/pictures/preview]

The photographs are scikit-learn's: "china" by danielbuechele and "flower" by vultilion (flickr.com), CC BY 2.0.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import lightning.pytorch as pl
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from lightning_gpuaug import BatchPreview, ImageDataModule, Mix, TrainRecipe
from lightning_gpuaug.cli import main as gpuaug

WINDOWS = ((0, 0, 640, 427), (100, 0, 520, 400), (250, 80, 630, 380), (0, 100, 300, 420))
POLICY = "rand-m9-mstd0.5-inc1"


class Nothing(pl.LightningModule):
    """A model that learns nothing: the pictures are of the data."""

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        """Skip."""

    def configure_optimizers(self) -> None:
        """None."""


def write_photographs(root: Path) -> Path:
    """Two class folders of four windows of a photograph each."""
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        (root / name).mkdir(parents=True)
        for i, window in enumerate(WINDOWS):
            Image.fromarray(pixels).crop(window).save(root / name / f"{i}.jpg", quality=92)
    return root


def batch_picture(train: Path, folder: Path) -> Path:
    """What `BatchPreview` writes for a mixed batch."""
    recipe = TrainRecipe(auto=POLICY, mix=Mix())
    data = ImageDataModule(train, batch_size=8, image_size=112, train_recipe=recipe, seed=1, num_threads=1)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, callbacks=[BatchPreview(epochs=[1, 2], stages=["train"])],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Nothing(), datamodule=data)
    return folder / "preview-train-epoch0002.png"


def main() -> None:
    """Write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parent / "pictures" / "preview"
    parser.add_argument("--out", type=Path, default=default, help=f"folder for the pictures (default: {default})")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        train = write_photographs(Path(folder) / "train")
        command = Path(folder) / "command.png"
        options = [f"--data.train={train}", "--data.image_size=136", f"--data.train_recipe.auto={POLICY}"]
        options += ["--data.train_recipe.erasing={}", "--indices=[0,5]", "--draws=5", f"--out={command}"]
        if gpuaug(["preview", *options]) != 0:
            raise SystemExit("gpuaug preview failed")
        for name, path in (("command", command), ("callback", batch_picture(train, Path(folder) / "run"))):
            Image.open(path).convert("RGB").quantize(192).save(out / f"{name}.png", optimize=True)
    print(f"written: {out}/command.png, {out}/callback.png")


if __name__ == "__main__":
    main()
