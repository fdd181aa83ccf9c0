"""MixUp and CutMix with soft targets, against `timm.data.Mixup` with the same shares and boxes forced on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.data import Mixup, mixup

from lightning_gpuaug import FileList, ImageDataModule, Mix, TrainRecipe
from lightning_gpuaug.augment.params import sample_params
from lightning_gpuaug.ops.record import Flag, Word
from tests.images import write_images

SIZE, ROWS, CLASSES = 24, 8, 5


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mix")
    paths = write_images(root / "images", 16, (30, 26))
    single = "".join(f"{path} {i % CLASSES}\n" for i, path in enumerate(paths))
    (root / "single.txt").write_text(single)
    several = "".join(f"{path} c{i % CLASSES};c{i * 2 % CLASSES}\n" for i, path in enumerate(paths))
    (root / "several.txt").write_text(several)
    return root


def batches(source: FileList, recipe: TrainRecipe) -> list[tuple[torch.Tensor, torch.Tensor, np.ndarray, int]]:
    dm = ImageDataModule(
        train=source, batch_size=ROWS, image_size=SIZE, num_threads=1, seed=4, train_recipe=recipe
    ).setup_for("cpu")  # fmt: skip
    loader = dm.train_dataloader()
    found = []
    for epoch in range(6):
        found += [(*batch, loader.plan.batch(epoch, step), epoch) for step, batch in enumerate(loader)]
    dm.teardown("test")
    return found


def forced(mix: Mix, records: np.ndarray, monkeypatch: pytest.MonkeyPatch, multi_label: bool) -> Mixup:
    """timm's Mixup, made to use the shares, kinds and boxes of `records`."""
    flags = records[:, Word.FLAGS]
    mixed = (flags & (Flag.MIXUP | Flag.CUTMIX)) != 0
    cut = (flags & Flag.CUTMIX) != 0
    share = np.where(mixed, records.view(np.float32)[:, Word.LAMBDA], 1.0)
    theirs = Mixup(
        mix.mixup_alpha, mix.cutmix_alpha, prob=mix.probability, switch_prob=mix.switch_probability, mode=mix.mode,
        label_smoothing=mix.label_smoothing, num_classes=CLASSES, multi_label=multi_label,
    )  # fmt: skip
    boxes = iter(records[row, Word.CUT : Word.CUT + 4] for row in range(ROWS) if cut[row] and share[row] != 1)

    def box(
        shape: object, lam: float, ratio_minmax: object = None, correct_lam: bool = True, count: object = None
    ) -> object:
        top, left, height, width = next(boxes)
        return (top, top + height, left, left + width), 1.0 - height * width / SIZE**2

    monkeypatch.setattr(mixup, "cutmix_bbox_and_lam", box)
    monkeypatch.setattr(theirs, "_params_per_batch", lambda: (float(share[0]), bool(cut[0])))
    monkeypatch.setattr(theirs, "_params_per_elem", lambda n: (share[:n].astype(np.float32), cut[:n]))
    return theirs


@pytest.mark.parametrize(("mode", "several"), [("batch", False), ("pair", False), ("elem", False), ("batch", True)])
def test_images_and_targets_are_timms(listing: Path, mode: str, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FileList(listing / ("several.txt" if several else "single.txt"), multilabel=several)
    mix = Mix(0.8, 1.0, 0.6, 0.5, mode, 0.1)  # type: ignore[arg-type]
    recipe = TrainRecipe(mix=mix)
    plain = batches(source, dataclasses.replace(recipe, mix=None))
    kinds = set()
    for (images, targets, indices, epoch), (x, y, same, _) in zip(batches(source, recipe), plain, strict=True):
        assert np.array_equal(indices, same)
        records = sample_params(recipe, indices, epoch, 4, SIZE, SIZE).records
        kinds |= set((records[:, Word.FLAGS] & (Flag.MIXUP | Flag.CUTMIX)).tolist())
        expected, soft = forced(mix, records, monkeypatch, several)(x.clone(), y)
        assert targets.dtype == torch.float32
        assert targets.shape == (ROWS, CLASSES)
        torch.testing.assert_close(images, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(targets, soft, atol=1e-6, rtol=0)
    assert kinds == {0, Flag.MIXUP, Flag.CUTMIX}


def test_pairs_share_their_draw_and_swap() -> None:
    records = sample_params(TrainRecipe(mix=Mix(0.4, 1.0, mode="pair")), np.arange(200), 0, 0, 32, 32).records
    mirrored = records[::-1]
    for word in (Word.LAMBDA, *range(Word.CUT, Word.CUT + 4)):
        assert np.array_equal(records[:, word], mirrored[:, word])
    assert len(np.unique(records[:, Word.LAMBDA])) > 80  # boxes have whole pixels, so some shares are equal
    assert {Flag.MIXUP, Flag.CUTMIX} == set((records[:, Word.FLAGS] & (Flag.MIXUP | Flag.CUTMIX)).tolist())


@pytest.mark.parametrize("value", [-0.1, 1.0, "x", True])
def test_label_smoothing_is_checked(value: object) -> None:
    with pytest.raises(ValueError, match=r"Mix.label_smoothing must be in \[0, 1\), got"):
        Mix(label_smoothing=value)  # type: ignore[arg-type]
