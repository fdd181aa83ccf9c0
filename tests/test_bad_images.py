"""Images that cannot be decoded: named, replaced in training, left out in evaluation; never a lost step."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.bad_images import BadImageError, BadImages, BadImageWarning
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.sources import FileList
from tests.images import numbered, write_images


def broken(folder: Path, count: int, bad: dict[int, bytes]) -> FileList:
    source = numbered(folder, count)
    for index, content in bad.items():
        Path(source.paths[index]).write_bytes(content)
    return source


def module(source: FileList, **options: object) -> ImageDataModule:
    options = {"batch_size": 2, "image_size": 8, "num_threads": 1, **options}
    return ImageDataModule(train=source, val=source, **options).setup_for("cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", ["train", "val"])
def test_raise_names_the_file(tmp_path: Path, stage: str) -> None:
    source = broken(tmp_path, 8, {5: b"garbage"})
    dm = module(source)
    loader = dm.train_dataloader() if stage == "train" else dm.val_dataloader()
    with pytest.raises(BadImageError, match=r"000005\.jpg: "):
        list(loader)
    dm.teardown("test")


def test_a_file_that_was_changed_meanwhile_is_told_from_a_bad_one(tmp_path: Path) -> None:
    source = numbered(tmp_path, 12)
    dm = module(source)
    list(dm.val_dataloader())
    Image.fromarray(np.zeros((5, 4, 3), dtype=np.uint8)).save(source.paths[10])  # far behind what is decoded ahead
    with pytest.raises(BadImageError, match=r"000010\.jpg: its size is not what it was .* file was changed meanwhile"):
        list(dm.val_dataloader())
    dm.teardown("test")


def test_a_relative_path_after_a_change_of_folder_says_from_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "data" / "a", 2)
    monkeypatch.chdir(tmp_path)
    dm = ImageDataModule(train="data", batch_size=2, image_size=8, num_threads=1).setup_for("cpu")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(
        BadImageError, match=r"^data/a/00000\d\.jpg: unreadable: no such file .* \(seen from .*elsewhere\)$"
    ):
        list(dm.train_dataloader())
    dm.teardown("test")


def test_substitute_in_evaluation_gives_every_good_sample_once(tmp_path: Path) -> None:
    dm = module(broken(tmp_path, 8, {5: b"garbage"}), on_bad_image="substitute")
    loader = dm.val_dataloader()
    with pytest.warns(BadImageWarning, match=r"left out: .*000005\.jpg: .*1 so far"):
        first = [t.tolist() for _, t in loader]
    assert first == [[0, 1], [2, 3], [4], [6, 7]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # known now: not met again
        assert [t.tolist() for _, t in loader] == first
    assert len(loader) == 4
    assert [Path(path).name for path in dm.bad_images] == ["000005.jpg"]
    dm.teardown("test")


def test_substitute_in_training_keeps_every_batch_full(tmp_path: Path) -> None:
    dm = module(broken(tmp_path, 8, {5: b"garbage"}), on_bad_image="substitute", seed=3)
    loader = dm.train_dataloader()
    with pytest.warns(BadImageWarning, match="replaced"):
        epochs = [[t.tolist() for _, t in loader] for _ in range(3)]
    for epoch in epochs:
        assert [len(step) for step in epoch] == [2] * 4
        assert {0, 1, 2, 3, 4, 6, 7} == set(sum(epoch, []))
    dm.teardown("test")


@pytest.mark.parametrize("step", [0, 2, 3])
@pytest.mark.filterwarnings("ignore::lightning_gpuaug.bad_images.BadImageWarning")
def test_a_wholly_bad_training_step_is_resumed_to_the_bit(tmp_path: Path, step: int) -> None:
    """Also the last one, for which only steps before it have good images."""
    source = numbered(tmp_path, 8)
    planned = module(source, seed=3).plan("train").order(0).tolist()
    for index in planned[2 * step : 2 * step + 2]:
        Path(source.paths[index]).write_bytes(b"garbage")
    straight = [t.tolist() for _, t in module(source, on_bad_image="substitute", seed=3).train_dataloader()]
    assert len(straight) == 4
    for taken in range(1, 4):
        begun, resumed = (module(source, on_bad_image="substitute", seed=3) for _ in range(2))
        run = iter(begun.train_dataloader())
        assert [next(run)[1].tolist() for _ in range(taken)] == straight[:taken]
        resumed.load_state_dict(begun.state_dict())
        assert [t.tolist() for _, t in resumed.train_dataloader()] == straight[taken:]


def test_a_wholly_bad_step_borrows_from_a_later_one(tmp_path: Path) -> None:
    source = broken(tmp_path, 7, {2: b"", 3: b"x"})
    dm = module(source, on_bad_image="substitute")
    with pytest.warns(BadImageWarning):
        passes = [[t.tolist() for _, t in dm.val_dataloader()] for _ in range(2)]
    assert passes[0] == passes[1] == [[0, 1], [4], [5], [6]]
    dm.teardown("test")


def test_no_image_left_is_an_error(tmp_path: Path) -> None:
    source = broken(tmp_path, 4, dict.fromkeys(range(4), b"x"))
    dm = module(source, on_bad_image="substitute")
    for loader in (dm.val_dataloader(), dm.train_dataloader()):
        with pytest.warns(BadImageWarning), pytest.raises(BadImageError, match="can be decoded"):
            list(loader)
    dm.teardown("test")


def test_first_batch_and_last_batch_and_many(tmp_path: Path) -> None:
    bad = dict.fromkeys([0, 1, 6, 9], b"\xff\xd8\xff")
    dm = module(broken(tmp_path, 10, bad), on_bad_image="substitute", batch_size=4)
    with pytest.warns(BadImageWarning):
        assert [t.tolist() for _, t in dm.val_dataloader()] == [[2, 3], [4, 5, 7], [8]]
    dm.teardown("test")


def test_two_ranks_stay_in_step(tmp_path: Path) -> None:
    source = broken(tmp_path, 9, {4: b"x"})
    seen = []
    for rank in range(2):
        dm = ImageDataModule(
            val=source, batch_size=2, image_size=8, num_threads=1, on_bad_image="substitute"
        ).setup_for("cpu", rank, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BadImageWarning)
            steps = [t.tolist() for _, t in dm.val_dataloader()]
        assert len(steps) == len(dm.val_dataloader()) == 3
        assert all(steps)
        seen += sum(steps, [])
        dm.teardown("test")
    assert sorted(seen) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_kinds_of_damage_are_told_apart(tmp_path: Path) -> None:
    good = numbered(tmp_path, 8)
    whole = Path(good.paths[0]).read_bytes()
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "whole.png")
    png = (tmp_path / "whole.png").read_bytes()
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "real.gif")
    damage = {
        1: whole[: len(whole) // 2],
        2: b"",
        3: b"<!DOCTYPE html><html></html>",
        4: whole + b"trailing junk",
        5: png[: len(png) // 2],
        6: (tmp_path / "real.gif").read_bytes(),
    }
    for index, content in damage.items():
        Path(good.paths[index]).write_bytes(content)
    dm = module(good, on_bad_image="substitute", batch_size=8)
    with pytest.warns(BadImageWarning):
        ((_, targets),) = dm.val_dataloader()
    assert targets.tolist() == [0, 4, 7]
    reasons = {int(Path(path).stem): reason for path, reason in dm.bad_images.items()}
    for index, word in {1: "truncated JPEG", 2: "empty", 3: "HTML", 5: "truncated PNG", 6: "GIF"}.items():
        assert word in reasons[index]
    dm.teardown("test")


def test_a_decompression_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    """A PNG header that claims 60000×60000: nothing of that size is allocated."""
    import resource
    import struct
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    bomb += chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    source = broken(tmp_path, 4, {2: bomb})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for loader in (module(source).val_dataloader(), module(source).train_dataloader()):
        with pytest.raises(BadImageError, match=r"000002\.jpg: .*60000.60000"):
            list(loader)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    source = numbered(tmp_path, 4)
    dm = module(source)
    Path(source.paths[3]).unlink()
    with pytest.raises(BadImageError, match=r"000003\.jpg: .*no such file"):
        list(dm.val_dataloader())


def test_zero_padding_of_paths_is_harmless(tmp_path: Path) -> None:
    """Names of very different lengths in one batch."""
    paths = write_images(tmp_path, 2)
    long = tmp_path / ("é" * 60 + " with spaces.jpg")
    long.write_bytes(paths[1].read_bytes())
    (tmp_path / "list.txt").write_text(f"{paths[0]} 0\n{long} 1\n{paths[1]} 2\n")
    dm = module(FileList(tmp_path / "list.txt"), batch_size=3)
    ((images, targets),) = dm.val_dataloader()
    assert targets.tolist() == [0, 1, 2]
    assert bool((images[1] == images[2]).all())
    assert not bool((images[0] == images[1]).all())


class Planned(list[np.ndarray]):
    """The steps of a pass, as `BadImages.rows` asks for them."""

    def __init__(self, *steps: list[int]) -> None:
        super().__init__(np.array(step, dtype=np.int64) for step in steps)


def known_bad(exactly_once: bool, *indices: int) -> BadImages:
    bad = BadImages("substitute", exactly_once)
    bad.reasons = dict.fromkeys(indices, "bad")
    return bad


def walk(bad: BadImages, steps: Planned, epoch: int = 0) -> list[list[int]]:
    bad.start_from(epoch, 0)
    return [bad.rows(steps, epoch, step).tolist() for step in range(len(steps))]


def test_every_step_gets_a_good_image_and_every_good_image_comes_once() -> None:
    steps = Planned([0, 1], [2, 3], [4, 5], [6, 7])
    assert walk(known_bad(True, 0, 1), steps) == [[2], [3], [4, 5], [6, 7]]
    assert walk(known_bad(True, 0, 1, 2, 3), steps) == [[4], [5], [6], [7]]
    assert walk(known_bad(True, 0, 1, 3), steps) == [[2], [4], [5], [6, 7]]
    assert walk(known_bad(True, 6, 7), steps) == [[0, 1], [2, 3], [4], [5]]
    assert walk(known_bad(True, 4, 5, 6, 7), steps) == [[0], [2], [3], [1]]
    assert walk(known_bad(True, 2, 3, 6, 7), steps) == [[0], [4], [5], [1]]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_no_step_is_empty_and_no_image_twice_whatever_is_bad(sizes: list[int], data: st.DataObject) -> None:
    ends = np.cumsum(sizes).tolist()
    steps = Planned(*(list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)))
    samples = list(range(ends[-1]))
    bad = data.draw(st.lists(st.sampled_from(samples), unique=True, max_size=len(samples) - len(sizes)))
    dealt = walk(known_bad(True, *bad), steps)
    assert all(dealt)
    assert sorted(sum(dealt, [])) == sorted(set(samples) - set(bad))


def test_more_steps_than_good_images() -> None:
    """The other ranks make their steps, so this one makes them too, and says that an image comes twice."""
    steps = Planned([0, 1], [2, 3], [4, 5], [6, 7])
    with pytest.warns(BadImageWarning, match="sample 5 comes twice in evaluation pass 0"):
        assert walk(known_bad(True, 0, 1, 2, 3, 4), steps) == [[5], [6], [7], [5]]
    with pytest.raises(BadImageError, match=r"no image of this rank's 4 steps can be decoded \(8 bad"):
        walk(known_bad(True, *range(8)), steps)


def test_going_back_to_a_step_deals_the_rest_anew() -> None:
    """Steps are planned ahead, across the end of a pass too: when one fails, those behind it are planned again."""
    steps, bad = Planned([0, 1], [2, 3], [4, 5], [6, 7]), known_bad(True, 2, 3)
    assert walk(bad, steps) == [[0, 1], [4], [5], [6, 7]]
    bad.start_from(0, 2)
    assert bad.rows(steps, 0, 2).tolist() == [5]  # 4 was moved into step 1, which stands
    bad.start_from(0, 1)
    bad.reasons[4] = "found out now"
    assert [bad.rows(steps, 0, step).tolist() for step in (1, 2, 3)] == [[5], [6], [7]]
    bad.start_from(1, 0)  # the next pass begins to be planned
    assert bad.rows(steps, 1, 0).tolist() == [0, 1]
    bad.reasons[6] = "found out in the pass before"
    bad.start_from(0, 2)
    with pytest.warns(BadImageWarning, match="sample 0 comes twice"):  # 0, 1 and 5 have been handed over
        assert [bad.rows(steps, 0, step).tolist() for step in (2, 3)] == [[7], [0]]
    assert walk(bad, steps, epoch=1) == [[0], [5], [7], [1]]


def test_training_replaces_by_neighbours_in_turn() -> None:
    steps = Planned([0, 1, 2, 3], [4, 5, 6, 7])
    assert walk(known_bad(False, 1, 2), steps) == [[0, 0, 3, 3], [4, 5, 6, 7]]
    assert walk(known_bad(False, 4, 5, 6, 7), steps) == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert walk(known_bad(False), steps) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(BadImageError, match="no image of this rank's 2 steps"):
        walk(known_bad(False, *range(8)), steps)


def test_the_same_bad_image_twice_in_a_batch_is_found_once(tmp_path: Path) -> None:
    paths = write_images(tmp_path, 2)
    paths[1].write_bytes(b"x")
    (tmp_path / "list.txt").write_text(f"{paths[1]} 0\n{paths[0]} 1\n{paths[1]} 2\n")
    dm = module(FileList(tmp_path / "list.txt"), on_bad_image="substitute", batch_size=3)
    with pytest.warns(BadImageWarning) as told:
        assert [t.tolist() for _, t in dm.val_dataloader()] == [[1]]
    assert len(told) == 2  # two samples, one file
    assert list(dm.bad_images) == [str(paths[1])]
    dm.teardown("test")


@pytest.mark.parametrize("ahead", [False, True], ids=["here", "worker"])
def test_bad_images_at_both_ends_of_the_data(tmp_path: Path, ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch is one bad image: the pass that first meets it makes its step all the same, the next is exact."""
    monkeypatch.setattr("lightning_gpuaug.data.Loader", partial(Loader, ahead=ahead))
    source = broken(tmp_path, 13, dict.fromkeys([0, 4, 5, 12], b"x"))
    for prefetch in (1, 2, 5):
        dm = module(source, on_bad_image="substitute", prefetch=prefetch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BadImageWarning)
            first, *later = [
                [t.tolist() for (_, t), _ in zip(dm.val_dataloader(), range(leave_after), strict=False)]
                for leave_after in (99, 99, 3, 99)
            ]
        assert len(first) == 7
        assert all(first)
        assert set(sum(first, [])) == {1, 2, 3, 6, 7, 8, 9, 10, 11}
        assert len(sum(first, [])) == 10  # one comes twice
        assert later[0] == later[2] == [[1], [2, 3], [6], [7], [8, 9], [10], [11]]
        assert later[1] == later[0][:3]
        dm.teardown("test")
