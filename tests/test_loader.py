"""The loader's contract, with real DALI on tiny JPEGs."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from lightning_gpuaug import ImageDataModule, Mix, TrainRecipe
from lightning_gpuaug.bad_images import BadImageWarning
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.pipeline import DecodePipeline
from tests.images import numbered, pixels

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


def resident() -> int:
    """This process's memory, kB."""
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line).split()[1])


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


def test_a_state_may_hold_what_a_subclass_keeps_beside_it(data) -> None:
    dm = data(8, batch_size=2, seed=1)
    expected = labels(dm.train_dataloader())
    begun = data(8, batch_size=2, seed=1)
    next(iter(begun.train_dataloader()))
    resumed = data(8, batch_size=2, seed=1)
    resumed.load_state_dict({**begun.state_dict(), "curriculum": 3})
    assert labels(resumed.train_dataloader()) == expected[1:]
    with pytest.raises(ValueError, match=r"^data state version must be 1, got 2$"):
        resumed.load_state_dict({**begun.state_dict(), "version": 2})


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
    dm = data(16, batch_size=4)
    sizes = []
    for turn in range(20):
        list(dm.train_dataloader())
        if turn % 2:
            dm.train_dataloader().close()
        sizes.append(resident())
    assert np.mean(sizes[-3:]) < 1.05 * np.mean(sizes[3:6])


def test_a_loader_is_a_sized_iterable_like_any_other(data) -> None:
    """Wrappers take its length, several iterators, `zip`, and a second pass."""
    loader = data(6, batch_size=2).val_dataloader()
    assert len(loader) == 3
    assert not isinstance(loader, Iterator)
    first = [targets.tolist() for (_, targets), _ in zip(loader, range(10), strict=False)]
    assert first == labels(loader) == [[0, 1], [2, 3], [4, 5]]


def test_batches_too_large_for_the_data(data) -> None:
    """3 samples, batches of 8: one validation batch of 3; training says at set-up that it has no step."""
    with pytest.raises(ValueError, match=r"train data: 0 steps: 3 samples .* batch_size 8 .*drop_last"):
        data(3, batch_size=8)
    assert labels(data(3, batch_size=1, eval_batch_size=8).val_dataloader()) == [[0, 1, 2]]
    assert [len(step) for step in labels(data(3, batch_size=8, drop_last=False).train_dataloader())] == [3]


def test_the_remainder_is_dropped_by_default(data) -> None:
    assert [len(step) for step in labels(data(7, batch_size=2).train_dataloader())] == [2, 2, 2]


def test_an_error_while_a_batch_is_made_reaches_the_caller_and_the_next_pass_is_whole(data, monkeypatch) -> None:
    dm = data(12, batch_size=2)
    loader = dm.val_dataloader()
    finish, calls = loader._finish, []

    def fails_once(*args: object) -> object:
        calls.append(args)
        if len(calls) == 3:
            raise KeyError("of all things")
        return finish(*args)

    monkeypatch.setattr(loader, "_finish", fails_once)
    run, seen = iter(loader), []
    with pytest.raises(KeyError, match="of all things"):
        seen += [next(run)[1].tolist() for _ in range(6)]
    monkeypatch.setattr(loader, "_finish", finish)
    assert labels(loader) == [[2 * i, 2 * i + 1] for i in range(6)]
    dm.teardown("test")


@pytest.mark.parametrize("where", ["inside", "after"])
def test_an_interrupt_in_mid_batch_mixes_nothing_up(data, monkeypatch, where: str) -> None:
    """Ctrl-C between two lines of the loader: no later batch carries another's labels."""
    dm = data(12, batch_size=2, seed=3)
    whole = data(12, batch_size=2, seed=3)
    loader = dm.train_dataloader()
    expected = [batch for _ in range(3) for batch in whole.train_dataloader()]
    run = iter(loader)
    next(run)
    pop = DecodePipeline.pop

    def interrupted(self: DecodePipeline) -> object:
        monkeypatch.undo()
        if where == "after":
            pop(self)
        else:
            self._inside.popleft()
        raise KeyboardInterrupt

    monkeypatch.setattr(DecodePipeline, "pop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run)
    got = [*loader, *loader]
    for (images, targets), (images2, targets2) in zip(got, expected[6:], strict=True):
        assert torch.equal(targets, targets2)
        assert torch.equal(images, images2)


def test_passes_may_be_abandoned_at_any_step(data) -> None:
    loader = data(12, batch_size=2).val_dataloader()
    for steps in (1, 3, 5, 2):
        run = iter(loader)
        assert [next(run)[1].tolist() for _ in range(steps)] == [[2 * i, 2 * i + 1] for i in range(steps)]
        del run
    loader.close()
    loader.close()
    assert len(labels(loader)) == 6


def test_loaders_that_nobody_closes_let_their_threads_go(data) -> None:
    def threads() -> int:
        gc.collect()
        return sum(thread.name.startswith("gpuaug-loader") for thread in threading.enumerate())

    before = threads()
    source = data(8, batch_size=2)._given["train"]
    for _ in range(3):
        dm = ImageDataModule(train=source, batch_size=2, image_size=SIZE, num_threads=1).setup_for("cpu")
        next(iter(dm.train_dataloader()))
        del dm
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threads() == before


def test_changed_attributes_take_effect_at_the_next_loader(data) -> None:
    """Batch and image sizes that a tuner or progressive resizing sets; the epochs go on."""
    dm = data(12, batch_size=2, seed=6)
    expected = data(12, batch_size=3, seed=6).train_dataloader()
    loader = dm.train_dataloader()
    assert dm.train_dataloader() is loader
    list(loader)
    dm.batch_size, dm.image_size = 3, SIZE + 2
    batches = list(dm.train_dataloader())
    assert batches[0][0].shape == (3, 3, SIZE + 2, SIZE + 2)
    list(expected)
    assert [targets.tolist() for _, targets in batches] == labels(expected)
    assert len(dm.val_dataloader()) == 4  # eval_batch_size follows batch_size


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("batch_size", "8", "batch_size must be a whole number of at least 1, got '8'"),
        ("image_size", (8, 8), r"image_size must be a whole number of at least 1, got \(8, 8\)"),
        ("train_recipe", "crop", "train_recipe must be of type TrainRecipe, got 'crop'"),
        ("dtype", torch.float16, "dtype must be one of 'float32', .*, got torch.float16"),
        ("train_recipe", TrainRecipe(mix=Mix()), "batch_size must be even, got 3"),
    ],
)
def test_changed_attributes_are_checked_as_arguments_are(data, attribute: str, value: object, message: str) -> None:
    dm = data(12, batch_size=3)
    dm.train_dataloader()
    setattr(dm, attribute, value)
    with pytest.raises(ValueError, match=message):
        dm.train_dataloader()


def test_copies_share_nothing(data) -> None:
    dm = data(8, batch_size=2)
    run = iter(dm.train_dataloader())
    first = next(run)[1].tolist()
    copied = copy.deepcopy(dm).setup_for("cpu")
    assert labels(copied.train_dataloader())[0] == first
    assert len(list(run)) == 3
    copied.teardown("test")


def test_bad_images_are_remembered_after_the_loaders_are_gone(data, folder: Path) -> None:
    source = numbered(folder / "bad", 6)
    Path(source.paths[4]).write_bytes(b"garbage")
    dm = data(6, batch_size=2, train=source, val=source, on_bad_image="substitute")
    with pytest.warns(BadImageWarning):
        list(dm.val_dataloader())
    dm.teardown("fit")
    assert [Path(path).name for path in dm.bad_images] == ["000004.jpg"]
    assert copy.deepcopy(dm).bad_images == dm.bad_images


RESIDENT = """
import json, sys
from functools import partial
from pathlib import Path
import lightning_gpuaug.data
from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.sources import FileList
lightning_gpuaug.data.Loader = partial(Loader, ahead=sys.argv[2] == "worker")
dm = ImageDataModule(train=FileList(sys.argv[1]), batch_size=2, image_size=64, num_threads=1).setup_for("cpu")
loader, sizes = dm.train_dataloader(), []
for _ in range(20):
    list(loader)
    loader.close()
    status = Path("/proc/self/status").read_text().splitlines()
    sizes.append(int(next(line for line in status if "VmRSS" in line).split()[1]))
print(json.dumps(sizes))
"""


@pytest.mark.parametrize("thread", ["here", "worker"])
def test_memory_is_flat_for_mixed_sizes_and_rebuilds(tmp_path: Path, thread: str) -> None:
    """Images of tens to thousands of pixels, a rebuild after every epoch; in a process of its own, to see it alone."""
    lines = []
    for i, side in enumerate((20, 1200, 64, 700, 30, 333, 900, 48)):
        Image.fromarray(pixels(i, (side, side + 7))).save(tmp_path / f"{i}.jpg")
        lines.append(f"{i}.jpg {i}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RESIDENT, str(tmp_path / "list.txt"), thread],
        capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent.parent, check=True,
    )  # fmt: skip
    sizes = json.loads(done.stdout)
    assert np.mean(sizes[-3:]) < 1.05 * np.mean(sizes[3:6])


LEAVES_EARLY = """
import sys
from functools import partial
import lightning_gpuaug.data
from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.sources import FileList
lightning_gpuaug.data.Loader = partial(Loader, ahead=True)
dm = ImageDataModule(train=FileList(sys.argv[1]), batch_size=2, image_size=8, num_threads=1).setup_for("cpu")
for images, targets in dm.train_dataloader():
    break
print("left", tuple(images.shape))
"""


def test_a_script_that_leaves_its_loop_ends_at_once_and_quietly(folder: Path) -> None:
    source = numbered(folder / "script", 40)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LEAVES_EARLY, str(source.path)],
        capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "left (2, 3, 8, 8)\n", "")
    assert time.monotonic() - started < 60
