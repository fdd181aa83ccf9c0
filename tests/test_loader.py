"""The loader's contract, with real DALI on tiny JPEGs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_gpuaug import ImageDataModule, TrainRecipe
from lightning_gpuaug.loader import Loader
from tests.images import numbered

SIZE = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numbered")


@pytest.fixture(scope="module", params=[False, True], ids=["here", "worker"])
def data(folder: Path, request: pytest.FixtureRequest) -> Iterator[object]:
    """data(n): a data module over n samples, closed at the end; batches made in the caller's thread or the worker's."""
    patch = pytest.MonkeyPatch()
    patch.setattr("lightning_gpuaug.data.Loader", partial(Loader, ahead=request.param))
    source = lru_cache(lambda n: numbered(folder / str(n), n))
    made: list[ImageDataModule] = []

    def make(n: int, rank: int = 0, world: int = 1, **options: object) -> ImageDataModule:
        options = {"image_size": SIZE, "num_threads": 1, "train": source(n), "val": source(n), **options}
        dm = ImageDataModule(**options).setup_for("cpu", rank, world)  # type: ignore[arg-type]
        made.append(dm)
        return dm

    yield make
    patch.undo()
    for dm in made:
        dm.teardown("test")


def labels(loader: Loader) -> list[list[int]]:
    return [targets.tolist() for _, targets in loader]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 64), st.integers(1, 9), st.integers(1, 4))
def test_every_pass_delivers_what_len_says(data, n: int, batch_size: int, world: int) -> None:
    n = max(n, world)
    modules = [data(n, rank, world, eval_batch_size=batch_size, batch_size=1) for rank in range(world)]
    for _ in range(2):
        passes = [labels(dm.val_dataloader()) for dm in modules]
        assert {len(p) for p in passes} == {len(modules[0].val_dataloader())}
        assert sorted(sum((sum(p, []) for p in passes), [])) == list(range(n))
        assert all(row for p in passes for row in p)
    for dm in modules:
        dm.teardown("test")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 64), st.integers(1, 6), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_training_epochs(data, n: int, batch_size: int, world: int, seed: int, drop_last: bool) -> None:
    n = max(n, batch_size * world)
    modules = [data(n, rank, world, batch_size=batch_size, seed=seed, drop_last=drop_last) for rank in range(world)]
    loaders = [dm.train_dataloader() for dm in modules]
    for _ in range(3):
        passes = [labels(loader) for loader in loaders]
        assert {len(p) for p in passes} == {len(loaders[0])}
        seen = sum((sum(p, []) for p in passes), [])
        assert len(seen) == len(set(seen)) == (n // (batch_size * world) * batch_size * world if drop_last else n)
    for dm in modules:
        dm.teardown("test")


def test_remainder_and_len(data) -> None:
    """5 files, batches of 2: 3 steps with the remainder, 2 without, in every epoch."""
    keep, drop = (data(5, batch_size=2, drop_last=d).train_dataloader() for d in (False, True))
    for _ in range(3):
        assert sorted(map(len, labels(keep))) == [1, 2, 2]
        assert list(map(len, labels(drop))) == [2, 2]
    assert (len(keep), len(drop)) == (3, 2)


def test_seeds_epochs_and_ranks(data) -> None:
    """Another seed, another order; the same seed, the same; epochs differ; ranks are disjoint."""

    def epochs(seed: int, rank: int = 0, world: int = 1) -> list[list[int]]:
        loader = data(8, rank, world, seed=seed, batch_size=2).train_dataloader()
        return [sum(labels(loader), []) for _ in range(2)]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    assert epochs(1)[0] != epochs(1)[1]
    for a, b in zip(epochs(1, 0, 2), epochs(1, 1, 2), strict=True):
        assert sorted(a + b) == list(range(8))


def test_draws_belong_to_the_sample(data) -> None:
    """The same sample in the same epoch looks the same at any batch size, rank and world; other epochs differ."""

    def seen(rank: int, world: int, batch_size: int, epochs: int = 1) -> list[dict[int, torch.Tensor]]:
        loader = data(8, rank, world, batch_size=batch_size, seed=4).train_dataloader()
        return [
            {int(t): image for images, targets in loader for image, t in zip(images, targets, strict=True)}
            for _ in range(epochs)
        ]

    first, second = seen(0, 1, 4, epochs=2)
    for rank in range(2):
        for index, image in seen(rank, 2, 2)[0].items():
            assert torch.equal(image, first[index])
    assert not any(torch.equal(first[i], second[i]) for i in range(8))


def test_targets_are_int64_vectors(data) -> None:
    for n, batch_size in ((2, 2), (1, 1)):
        images, targets = next(iter(data(n, batch_size=batch_size).train_dataloader()))
        assert (targets.dtype, targets.shape) == (torch.int64, (n,))
        assert images.shape == (n, 3, SIZE, SIZE)


def test_iter_has_no_side_effects_and_passes_may_be_left(data) -> None:
    loader = data(7, batch_size=2).val_dataloader()
    for _ in range(3):
        iter(loader)
    partial = iter(loader)
    assert [next(partial)[1].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    assert labels(loader) == [[0, 1], [2, 3], [4, 5], [6]]
    with pytest.raises(RuntimeError, match="newer iter"):
        next(partial)
    assert labels(loader) == [[0, 1], [2, 3], [4, 5], [6]]


def test_a_training_epoch_left_early_is_not_continued(data) -> None:
    left, whole = (data(8, batch_size=2, seed=5).train_dataloader() for _ in range(2))
    epochs = [labels(whole) for _ in range(3)]
    next(iter(left))
    assert labels(left) == epochs[1]
    assert labels(left) == epochs[2]


def test_held_batches_never_change(data) -> None:
    for dtype in ("float32", "uint8"):
        loader = data(32, batch_size=4, dtype=dtype).train_dataloader()
        held = [(images, images.clone()) for images, _ in loader]
        list(loader)
        assert all(torch.equal(images, copy) for images, copy in held)


def test_output_types_and_layouts(data) -> None:
    reference = next(iter(data(4, batch_size=4).train_dataloader()))[0]
    for dtype in ("float32", "float16", "bfloat16"):
        for channels_last in (False, True):
            images, _ = next(iter(data(4, batch_size=4, dtype=dtype, channels_last=channels_last).train_dataloader()))
            assert images.dtype == getattr(torch, dtype)
            memory_format = torch.channels_last if channels_last else torch.contiguous_format
            assert images.is_contiguous(memory_format=memory_format)
            assert torch.equal(images, reference.to(images.dtype))
    raw = next(iter(data(4, batch_size=4, dtype="uint8").train_dataloader()))[0]
    recipe = TrainRecipe()
    assert recipe.normalize is not None
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (recipe.normalize.mean, recipe.normalize.std))
    torch.testing.assert_close((raw / 255 - mean) / std, reference, atol=1e-5, rtol=0)


def test_prediction_gives_indices_and_names(data, folder: Path) -> None:
    source = numbered(folder / "predict", 5)
    dm = data(5, predict=source, batch_size=2)
    rows = [indices for _, indices in dm.predict_dataloader()]
    assert [r.tolist() for r in rows] == [[0, 1], [2, 3], [4]]
    assert [Path(dm.sample_name(i)).name for i in torch.cat(rows)] == [f"{i:06d}.jpg" for i in range(5)]


def test_state_continues_mid_epoch_to_the_bit(data) -> None:
    whole = data(24, batch_size=4, seed=9).train_dataloader()
    expected = [batch for _ in range(2) for batch in whole]
    for stop in range(1, 12):
        dm = data(24, batch_size=4, seed=9)
        loader = dm.train_dataloader()
        taken = 0
        while taken < stop:
            for _ in loader:
                taken += 1
                if taken == stop:
                    break
        resumed = data(24, batch_size=4, seed=9)
        resumed.load_state_dict(pickle.loads(pickle.dumps(dm.state_dict())))
        rest = []
        while len(rest) < len(expected) - stop:
            rest += list(resumed.train_dataloader())
        for (x, y), (x2, y2) in zip(expected[stop:], rest, strict=True):
            assert torch.equal(y, y2)
            assert torch.equal(x, x2)


@pytest.mark.parametrize(("world", "then"), [(2, 1), (1, 2), (2, 3), (3, 2)])
def test_state_continues_under_another_world(data, world: int, then: int) -> None:
    n, batch = 36, 3
    before = [data(n, rank, world, batch_size=batch) for rank in range(world)]
    seen = []
    states = []
    for dm in before:
        run = iter(dm.train_dataloader())
        seen += sum((next(run)[1].tolist() for _ in range(2)), [])
        states.append(dm.state_dict())
    assert all(state == states[0] for state in states)
    after = [data(n, rank, then, batch_size=batch) for rank in range(then)]
    for dm in after:
        dm.load_state_dict(states[0])
    rests = [labels(dm.train_dataloader()) for dm in after]
    assert len({len(r) for r in rests}) == 1
    seen += sum((sum(r, []) for r in rests), [])
    assert len(seen) == len(set(seen))
    assert n - len(seen) < batch * then
    following = sum((sum(labels(dm.train_dataloader()), []) for dm in after), [])
    assert sorted(following) == list(range(n))


def test_a_changed_data_set_is_refused(data, folder: Path) -> None:
    dm = data(8, batch_size=2)
    next(iter(dm.train_dataloader()))
    state = dm.state_dict()
    with pytest.raises(ValueError, match="not the checkpoint's: 7 samples now, 8 then"):
        data(7, batch_size=2).load_state_dict(state)


def test_a_changed_seed_and_recipe_are_told(data) -> None:
    expected = labels(data(8, batch_size=2, seed=1).train_dataloader())
    dm = data(8, batch_size=2, seed=1)
    next(iter(dm.train_dataloader()))
    other = data(8, batch_size=2, seed=2)
    with pytest.warns(UserWarning, match="seed=2 is ignored"):
        other.load_state_dict(dm.state_dict())
    assert labels(other.train_dataloader()) == expected[1:]
    with pytest.warns(UserWarning, match="train_recipe or image_size"):
        data(8, batch_size=2, seed=1, image_size=9).load_state_dict(dm.state_dict())


def test_data_modules_pickle_and_build_nothing(data) -> None:
    dm = data(6, batch_size=2)
    before = labels(dm.train_dataloader())
    copy = pickle.loads(pickle.dumps(dm))
    assert labels(copy.setup_for("cpu").train_dataloader()) == before
    with pytest.raises(TypeError, match="pickle the ImageDataModule"):
        pickle.dumps(dm.train_dataloader())
    copy.teardown("test")


def test_memory_is_flat_over_epochs_and_rebuilds(data) -> None:
    def resident() -> int:
        return int(
            next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line).split()[1]
        )

    dm = data(16, batch_size=4)
    sizes = []
    for turn in range(20):
        list(dm.train_dataloader())
        if turn % 2:
            dm.train_dataloader().close()
        sizes.append(resident())
    assert np.mean(sizes[-3:]) < 1.05 * np.mean(sizes[3:6])
