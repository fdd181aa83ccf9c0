"""Datasets of Python: samples of every form, targets of every kind, orders, and what is refused."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gpuaug import Examples, ImageDataModule, weighted_order
from lightning_gpuaug.plan import Plan
from tests.record_files import jpeg
from tests.sources.plain_dataset import Killed, Paths


class Items:
    """A dataset of what a function gives; pickles if the function does."""

    def __init__(self, item: Callable[[int], Any], count: int = 6, **attributes: Any) -> None:
        self.item, self.count = item, count
        vars(self).update(attributes)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


def pair(index: int) -> tuple[bytes, int]:
    return jpeg(index), index


def fetched(source: Examples) -> tuple[list[bytes], Any]:
    source.check()
    reader = source.reader()
    encoded = reader.begin(np.arange(len(source)), False).result()
    reader.close()
    assert encoded.problems == {}
    return [encoded.content(i) for i in range(len(source))], encoded.targets


def test_samples_of_every_form(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.jpg" for i in range(6)]
    for i, path in enumerate(paths):
        path.write_bytes(jpeg(i))
    wanted = [jpeg(i) for i in range(6)]
    forms: list[tuple[Callable[[int], Any], dict[str, Any]]] = [
        (pair, {}),
        (lambda i: [paths[i], i], {}),
        (lambda i: (str(paths[i]), torch.tensor(i)), {}),
        (lambda i: {"image": np.frombuffer(jpeg(i), np.uint8), "label": np.int32(i)}, {}),
        (lambda i: {"image": torch.frombuffer(bytearray(jpeg(i)), dtype=torch.uint8), "label": i, "z": 0}, {}),
        (lambda i: {"image": {"bytes": jpeg(i), "path": None}, "label": i}, {}),
        (lambda i: {"image": {"bytes": None, "path": str(paths[i])}, "label": i}, {}),
        (lambda i: {"jpg": bytearray(jpeg(i)), "cls": i}, {"image": "jpg", "label": "cls"}),
        (lambda i: (i, "x", jpeg(i)), {"image": 2, "label": 0}),
    ]
    for item, fields in forms:
        contents, targets = fetched(Examples(Items(item), **fields))
        assert contents == wanted
        assert targets.tolist() == list(range(6))
        assert targets.dtype == np.int64
    for bare in (
        lambda i: jpeg(i),
        lambda i: {"image": jpeg(i)},
        lambda i: (jpeg(i),),
        lambda i: {"bytes": jpeg(i), "path": None},
    ):
        contents, targets = fetched(Examples(Items(bare)))
        assert contents == wanted
        assert targets.tolist() == [-1] * 6


@pytest.mark.parametrize(
    ("target", "dtype", "shape"),
    [(lambda i: i > 2, np.int64, (6,)), (lambda i: i / 2, np.float32, (6,)), (lambda i: [0, i], np.float32, (6, 2)),
     (lambda i: torch.ones(2, 3) * i, np.float32, (6, 2, 3)), (lambda i: np.float16(i), np.float32, (6,))],
)  # fmt: skip
def test_targets_of_every_kind(target: Callable[[int], Any], dtype: Any, shape: tuple[int, ...]) -> None:
    _, targets = fetched(Examples(Items(lambda i: (b"x", target(i)))))
    assert (targets.dtype, targets.shape) == (dtype, shape)
    assert np.array_equal(targets, np.array([np.asarray(target(i)) for i in range(6)], dtype=dtype))


def test_known_targets_and_classes() -> None:
    source = Examples(Items(lambda i: jpeg(i)), known_targets=[0, 1, 2, 0, 1, 2], class_names=("a", "b", "c"))
    assert source.targets.tolist() == [0, 1, 2, 0, 1, 2]
    assert source.num_classes == 3
    assert fetched(source)[1] is None
    assert source.with_classes(("c", "b", "a")).targets.tolist() == [2, 1, 0, 2, 1, 0]
    assert Examples(Items(pair), known_targets=np.eye(6)).num_classes == 6
    assert Examples(Items(pair, classes=["x", "y"])).classes == ("x", "y")

    class Label:
        names = ("cat", "dog")

    assert Examples(Items(pair, features={"label": Label()})).classes == ("cat", "dog")
    with pytest.raises(ValueError, match="knows its targets only as it fetches"):
        _ = Examples(Items(pair)).num_classes
    translated = Examples(Items(pair, 3), class_names=("a", "b", "c")).with_classes(("c", "b", "a"))
    assert fetched(translated)[1].tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="class 'd' not among"):
        Examples(Items(pair), class_names=("d",)).with_classes(("a",))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (lambda i: (torch.zeros(3, 4, 4), 1), r"Items\[0\]: an image must be encoded.*got Tensor of shape \(3, 4, 4\)"),
        (lambda i: {"img": b"x", "label": 1}, r"Items\[0\]: a sample must have 'image', has img, label"),
        (lambda i: {"image": b"x", "fine": 1}, r"Items\[0\]: a sample must have 'label', has image, fine"),
        (lambda i: 1 / i, r"Items\[0\] raised ZeroDivisionError: division by zero"),
    ],
)
def test_samples_that_are_wrong(item: Callable[[int], Any], message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        Examples(Items(item)).check()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda i: "cat", r"Items\[0\]: a target must be a number or a vector of numbers, got 'cat'"),
        (lambda i: None, r"Items\[0\]: a target must be a number or a vector of numbers, got None"),
        (lambda i: torch.ones(3, dtype=torch.bfloat16), r"Items\[0\]: a target must be a tensor that NumPy can hold: "),
        (lambda i: torch.ones(3, requires_grad=True), r"Items\[0\]: a target must be a tensor that NumPy can hold: "),
        (lambda i: None if i == 2 else i, r"Items\[2\]: a target must be a number or a vector of numbers, got None"),
        (
            lambda i: [[0], [0, 1]],
            r"Items\[0\]: a target must be a number or a vector of numbers, got \[\[0\], \[0, 1\]\]",
        ),
        (lambda i: [0, 1], r"Items\[0\]: a target must have 3 values, one a class, got 2"),
        (
            lambda i: [0] * (3 + i // 3),
            r"Items\[3\]: targets must be of one kind, got numbers of shape \(4,\), .* of shape \(3,\)",
        ),
        (lambda i: 0.5 if i == 2 else i, r"Items\[2\]: targets must be of one kind, got a floating-point number, "),
        (lambda i: 0 if i == 3 else 0.5, r"Items\[3\]: targets must be of one kind, got a whole number, the first"),
        (lambda i: 4 - i, r"Items\[0\]: target must be in 0\.\.2, got 4"),
        (lambda i: 1 - i, r"Items\[2\]: targets must be of one kind, got none \(-1\), the first being a whole number"),
        (lambda i: 2 if i else -1, r"Items\[1\]: targets must be of one kind, got a whole number, .* none \(-1\)"),
        (lambda i: -2 * i, r"Items\[1\]: target must be in 0\.\.2, got -2"),
    ],
)
def test_targets_that_are_wrong(target: Callable[[int], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fetched(Examples(Items(lambda i: (b"x", target(i))), class_names=("a", "b", "c")))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda i: -7, r"Items\[0\]: target must be a class from 0, got -7"),
        (lambda i: np.int8(1 - 2 * i), r"Items\[2\]: target must be a class from 0, got -3"),
        (lambda i: np.uint64(2**63 + i), r"Items\[0\]: a target must fit 64 bits with a sign, got 9223372036854775808"),
        (lambda i: [0.5, 1e39], r"Items\[0\]: a target must fit float32, got 1e\+39"),
        (lambda i: 2**64 - 1, r"Items\[0\]: a target must fit 64 bits with a sign, got 18446744073709551615"),
    ],
)
def test_class_numbers_that_are_none(target: Callable[[int], Any], message: str) -> None:
    """Of samples, and known before; without a class list."""
    with pytest.raises(ValueError, match=message):
        fetched(Examples(Items(lambda i: (b"x", 0 if i == 1 else target(i)))))
    with pytest.raises(ValueError, match=r"must (be|fit)"):
        _ = Examples(Items(pair), known_targets=[target(i) for i in range(6)]).targets


def test_samples_without_a_target_have_minus_one() -> None:
    """All of them, as in the test splits of Hugging Face."""
    source = Examples(Items(lambda i: (b"x", -1)), class_names=("a", "b"))
    assert fetched(source)[1].tolist() == [-1] * 6
    assert fetched(source.with_classes(("b", "a")))[1].tolist() == [-1] * 6
    known = Examples(Items(pair), known_targets=[-1] * 6, class_names=("a", "b"))
    assert known.with_classes(("b", "a")).targets.tolist() == [-1] * 6
    with pytest.raises(ValueError, match=r"Items\[4\]: target must be in 0\.\.1, got -1"):
        _ = Examples(Items(pair), known_targets=[0, 1, 1, 0, -1, 1], class_names=("a", "b")).targets


def test_whole_numbers_of_any_type_are_int64() -> None:
    """NumPy makes floating-point numbers of uint64 and int64 together."""
    mixed = [np.uint64(2**62 + 1), 2**62 + 3, np.int8(2), True, torch.tensor(4), np.uint64(5)]
    _, targets = fetched(Examples(Items(lambda i: (b"x", mixed[i]))))
    assert targets.dtype == np.int64
    assert targets.tolist() == [2**62 + 1, 2**62 + 3, 2, 1, 4, 5]


@pytest.mark.parametrize(
    "wrong", ["cat", None, torch.zeros(2, 2, dtype=torch.complex64), -3, np.datetime64("2026-01-01")]
)
def test_check_looks_at_the_first_target(wrong: Any) -> None:
    items = Items(lambda i: (b"x", wrong))
    with pytest.raises(ValueError, match=r"Items\[0\]: a? ?target must"):
        Examples(items).check()
    Examples(items, known_targets=[0] * 6).check()


@pytest.mark.parametrize("bad", [1, 3])
def test_the_kind_of_targets_is_that_of_the_first_good_sample(bad: int) -> None:
    """Whichever batch comes first, and whatever is wrong with the images before it."""

    def item(index: int) -> Any:
        if index < bad:
            raise OSError("gone")
        return b"x", index / 2 if index == 5 else index

    for order in ([4, 5], [5, 4], [5]):
        source = Examples(Items(item), workers=1)
        source.check()
        with (
            closing(source.reader()) as reader,
            pytest.raises(ValueError, match=r"Items\[5\]: .* got a floating-point number, the first being a whole"),
        ):
            reader.begin(np.array(order), False).result()
    none_first = Examples([(b"x", None), (b"x", 1), (b"x", 2)], workers=1)  # type: ignore[arg-type]
    with (
        closing(none_first.reader()) as reader,
        pytest.raises(ValueError, match=r"list\[0\]: a target must be .*, got None"),
    ):
        reader.begin(np.array([1, 2]), False).result()


@pytest.mark.parametrize("processes", [False, True])
def test_a_sample_without_a_target_among_others_is_an_error(processes: bool) -> None:
    """Nothing stands in for it, whichever batch it is in."""
    samples = [(b"x", 0), (b"x", 1), (b"x",), (b"x",)]
    source = Examples(samples, workers=1, processes=processes)  # type: ignore[arg-type]
    source.check()
    with (
        closing(source.reader()) as reader,
        pytest.raises(ValueError, match=r"list\[2\]: .* got none \(-1\), the first being a"),
    ):
        reader.begin(np.array([2, 3]), False).result()
    unlabelled = Examples([(b"x",)] * 4, workers=1, processes=processes)  # type: ignore[arg-type]
    with closing(unlabelled.reader()) as reader:
        targets = reader.begin(np.array([2, 3]), False).result().targets
    assert targets is not None
    assert targets.tolist() == [-1, -1]


def test_what_cannot_be_read_is_a_bad_image(tmp_path: Path) -> None:
    def item(index: int) -> Any:
        if index == 2:
            raise OSError("the share is gone")
        return {1: tmp_path, 3: good, 4: tmp_path / "none.jpg"}.get(index, jpeg(index)), index

    good = tmp_path / "good.jpg"
    good.write_bytes(jpeg(3))
    with closing(Examples(Items(item)).reader()) as reader:
        encoded = reader.begin(np.arange(6), False).result()
    assert encoded.problems == {
        1: f"unreadable: is a directory: {tmp_path}",
        2: "unreadable: the share is gone",
        4: f"unreadable: no such file or directory: {tmp_path / 'none.jpg'}",
    }
    assert [encoded.content(i) for i in range(6)] == [jpeg(0), b"", b"", jpeg(3), b"", jpeg(5)]
    assert encoded.targets is not None
    assert encoded.targets[[0, 3, 5]].tolist() == [0, 3, 5]


def test_a_path_with_a_zero_byte_is_not_cut_there(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(0))
    with (
        closing(Examples(Items(lambda i: (f"{tmp_path}/a.jpg\0b", i))).reader()) as reader,
        pytest.raises(ValueError, match=r"Items\[0\]: a path must have no zero byte, got '.*a\.jpg\\x00b'"),
    ):
        reader.begin(np.arange(6), False).result()


def test_processes_fetch_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.jpg" for i in range(6)]
    for i, path in enumerate(paths):
        path.write_bytes(jpeg(i))
    source = Examples(Paths([str(path) for path in paths]), processes=True, workers=2)
    contents, targets = fetched(source)
    assert contents == [jpeg(i) for i in range(6)]
    assert targets.tolist() == list(range(6))
    assert pickle.loads(pickle.dumps(source)).fingerprint() == source.fingerprint()


def test_a_process_that_is_killed_is_explained() -> None:
    source = Examples(Killed(), processes=True, workers=2)
    with closing(source.reader()) as reader:
        assert reader.begin(np.array([1]), False).result().content(0) == b"1"
        told = r"^Examples\.processes: a process that fetches from Killed ended .* lower Examples\.workers \(2\), .*$"
        with pytest.raises(RuntimeError, match=told):
            reader.begin(np.arange(4), False).result()
        with pytest.raises(RuntimeError, match=told):  # and those that were to follow
            reader.begin(np.array([1]), False).result()
    with closing(source.reader()) as reader:
        assert reader.begin(np.array([3]), False).result().content(0) == b"3"


@pytest.mark.parametrize(
    "dataset",
    [Items(lambda i: (b"x", i)), Items(pair, lock=threading.Lock()), Items(pair, local=type("Local", (), {}))],
    ids=["lambda", "lock", "local class"],
)
def test_a_dataset_that_cannot_be_sent_to_processes_is_explained(dataset: Items) -> None:
    source = Examples(dataset, processes=True)
    told = r"^Examples\.processes: Items cannot be sent to another process \(.*\); define what it holds at the top .*$"
    with closing(source.reader()) as reader:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=told):
                reader.begin(np.arange(3), False)


def test_exclude() -> None:
    source = Examples(Items(pair), exclude=("1", "4"), known_targets=range(6))
    assert len(source) == 4
    assert source.targets.tolist() == [0, 2, 3, 5]
    assert fetched(source)[0] == [jpeg(i) for i in (0, 2, 3, 5)]
    assert [source.sample_name(i) for i in range(4)] == ["0", "2", "3", "5"]
    assert source.location(1) == "Items[2]"


# ---- orders ----------------------------------------------------------------------------------------------------------


def batches(source: Examples, world: int, epochs: int = 1, **options: Any) -> list[list[list[int]]]:
    """Per rank, the targets of each step."""
    told = []
    for rank in range(world):
        options = {"batch_size": 2, "image_size": 8, "num_threads": 1, **options}
        dm = ImageDataModule(train=source, **options).setup_for("cpu", rank, world)
        told.append([targets.tolist() for _ in range(epochs) for _, targets in dm.train_dataloader()])
        dm.teardown("test")
    return told


def test_an_order_is_dealt_to_the_ranks() -> None:
    order = lambda seed, epoch: [5, 5, 0, 1, 2, 3 + epoch % 3, seed, 4]  # noqa: E731
    source = Examples(Items(pair), order=order)
    assert batches(source, 2, 2, seed=3) == [
        [[5, 0], [2, 3], [5, 0], [2, 3]],
        [[5, 1], [3, 4], [5, 1], [4, 4]],
    ]
    dm = ImageDataModule(train=source, batch_size=2, image_size=8, num_threads=1, seed=1).setup_for("cpu")
    loader = iter(dm.train_dataloader())
    assert [next(loader)[1].tolist() for _ in range(3)] == [[5, 5], [0, 1], [2, 3]]
    state = dm.state_dict()
    del loader
    dm.teardown("test")
    dm = ImageDataModule(train=source, batch_size=2, image_size=8, num_threads=1, seed=1).setup_for("cpu")
    dm.load_state_dict(state)
    assert [t.tolist() for _, t in dm.train_dataloader()] == [[1, 4]]
    assert [t.tolist() for _, t in dm.train_dataloader()][2] == [2, 4]
    dm.teardown("test")


def test_evaluation_ignores_the_order() -> None:
    source = Examples(Items(pair), order=lambda seed, epoch: [0, 0])
    dm = ImageDataModule(train=source, val=source, batch_size=2, image_size=8, num_threads=1).setup_for("cpu")
    assert len(dm.train_dataloader()) == 1
    assert [t.tolist() for _, t in dm.val_dataloader()] == [[0, 1], [2, 3], [4, 5]]
    dm.teardown("test")


def test_weighted_order() -> None:
    weights = np.array([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])
    order = weighted_order(weights, 80_000)
    drawn = order(7, 3)
    assert np.array_equal(drawn, order(7, 3))
    assert not np.array_equal(drawn, order(7, 4))
    assert not np.array_equal(drawn, order(8, 3))
    share = np.bincount(drawn, minlength=6) / len(drawn)
    assert share[[0, 3, 5]].tolist() == [0, 0, 0]
    assert np.abs(share - weights / 8).max() < 0.01
    for wrong in ([], [-1.0, 2.0], [0.0], [[1.0]], [float("nan")]):
        with pytest.raises(ValueError, match=r"weighted_order\.weights must"):
            weighted_order(wrong)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (lambda seed, epoch: [0] * (epoch + 1), "must give equally many samples every epoch, got 2 in epoch 1 and 1"),
        (lambda seed, epoch: [0, 6], r"must give indices in 0\.\.5, got 0\.\.6 in epoch 0"),
        (lambda seed, epoch: [0.5], "must give a vector of indices, got float64"),
        (lambda seed, epoch: [], r"must give indices in 0\.\.5, got none"),
        (lambda seed, epoch: [1], "must not give excluded samples, got 1"),
    ],
)
def test_orders_that_are_refused(order: Any, message: str) -> None:
    sampler = Examples(Items(pair), order=order, exclude=("1",)).sampler()
    assert sampler is not None
    with pytest.raises(ValueError, match=message):
        Plan(sampler.size, 1, sampler=sampler).order(1)
