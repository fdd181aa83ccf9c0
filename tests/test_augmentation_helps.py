"""The training check in benchmarks/: its data, its arms, its arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import augmentation_helps as helps


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return helps.write_folders(tmp_path_factory.mktemp("digits"), seed=0)


def test_the_split_is_balanced_complete_and_follows_the_seed(folders: tuple[Path, Path], tmp_path: Path) -> None:
    train, test = folders
    assert [len(list((train / str(digit)).iterdir())) for digit in range(10)] == [helps.PER_CLASS] * 10
    assert len(list(train.glob("*/*.jpg"))) + len(list(test.glob("*/*.jpg"))) == 1797
    other, _ = helps.write_folders(tmp_path, seed=1)
    assert {path.name for path in other.glob("*/*.jpg")} != {path.name for path in train.glob("*/*.jpg")}


@pytest.mark.parametrize("arm", helps.ARMS)
def test_every_arm_gives_batches_alike(folders: tuple[Path, Path], arm: str) -> None:
    first, second = list(helps.batches_of(arm, folders[0], 2, 0))
    for images, labels in (first, second):
        assert images.shape == (50, 3, 32, 32)
        assert images.dtype == torch.float32
        assert torch.bincount(labels).tolist() == [5] * 10
    again = next(iter(helps.batches_of(arm, folders[0], 1, 0)))
    assert torch.equal(first[0], again[0])  # the seed decides
    by_class = [images[labels.argsort(stable=True)].mean((1, 2, 3)).sort().values for images, labels in (first, second)]
    assert torch.equal(*by_class) == (arm == "none")


def test_accuracy_counts_every_test_image(folders: tuple[Path, Path]) -> None:
    class Zero(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.eye(10)[torch.zeros(len(images), dtype=torch.int64)]

    zeros = len(list((folders[1] / "0").iterdir()))
    assert helps.accuracy(Zero(), folders[1]) == pytest.approx(zeros / 1747)


def test_differences_are_taken_seed_by_seed() -> None:
    mean, error = helps.difference([0.9, 0.8, 0.7], [0.8, 0.7, 0.6])
    assert mean == pytest.approx(0.1)
    assert error == pytest.approx(0.0, abs=1e-9)
