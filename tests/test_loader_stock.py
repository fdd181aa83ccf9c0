"""The loader's stock: made early, handed over as always; and its timings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from lightning_gpuaug.bad_images import BadImageError
from lightning_gpuaug.finish import Output
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.pipeline import DecodePipeline, Decoding
from lightning_gpuaug.plan import Plan
from lightning_gpuaug.recipe import TrainRecipe
from tests.images import numbered


def loader(folder: Path, ahead: bool, count: int = 22, break_file: int | None = None) -> Loader:
    source = numbered(folder, count)
    if break_file is not None:
        Path(source.paths[break_file]).write_bytes(b"\xff\xd8\xff no image")
    plan = Plan(count, batch_size=4, shuffle=break_file is None, drop_last=True, seed=1)
    decoding = Decoding(TrainRecipe(), 8, 4, "cpu", None, num_threads=1)
    return Loader(source, plan, decoding, Output(torch.device("cpu")), seed=5, ahead=ahead)


@pytest.mark.parametrize("ahead", [False, True], ids=["here", "worker"])
def test_a_stock_changes_neither_batches_nor_place(ahead: bool, tmp_path: Path) -> None:
    plain = loader(tmp_path, ahead)
    expected = [batch for _ in range(2) for batch in plain]
    plain.close()
    stocked = loader(tmp_path, ahead)
    got = []
    for _ in range(2):
        for i, batch in enumerate(stocked):
            got.append(batch)
            place = stocked.place
            if i == 0:
                assert stocked.stock(3) == 3
                made = stocked.timings.batches
            if i in (1, 2):
                assert stocked.timings.batches == made  # nothing is begun while some lie ready
            if i == 3:
                assert stocked.stock(5) == 1  # the pass has no more
            assert stocked.place == place
    stocked.close()
    assert len(got) == len(expected) == 10
    for (images, labels), (same, same_labels) in zip(got, expected, strict=True):
        assert torch.equal(images, same)
        assert torch.equal(labels, same_labels)


@pytest.mark.parametrize("ahead", [False, True], ids=["here", "worker"])
def test_nothing_is_decoded_while_a_stock_is_used(ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[int] = []
    take_out = DecodePipeline._take_out
    monkeypatch.setattr(DecodePipeline, "_take_out", lambda pipe: (outputs.append(len(pipe)), take_out(pipe)))
    stocked = loader(tmp_path, ahead)
    batches = iter(stocked)
    next(batches)
    assert stocked.stock(3) == 3
    assert stocked._pipe is not None
    assert len(stocked._pipe._decoded) == len(stocked._pipe) > 0  # what it was given is all done
    taken = len(outputs)
    for _ in range(2):
        next(batches)
    assert len(outputs) == taken
    plain = loader(tmp_path, ahead)
    assert [labels.tolist() for _, labels in batches] == [labels.tolist() for _, labels in list(plain)[3:]]
    stocked.close()
    plain.close()


def test_a_first_pass_begins_with_a_stock_where_it_says_so(tmp_path: Path) -> None:
    plain, quiet = loader(tmp_path, ahead=True), loader(tmp_path, ahead=True)
    quiet._quiet = 3  # as on a GPU
    made = []
    for (images, labels), (same, same_labels) in zip(quiet, plain, strict=True):
        made.append(quiet.timings.batches)
        assert torch.equal(images, same)
        assert torch.equal(labels, same_labels)
    assert made[:2] == [3, 3]  # the third may see the next one come
    assert quiet._quiet == 0
    for (images, _), (same, _) in zip(quiet, plain, strict=True):
        assert torch.equal(images, same)
    quiet.close()
    plain.close()


@pytest.mark.parametrize(
    ("broken", "asked", "ready"),
    [(9, 4, [[4, 5, 6, 7]]), (13, 2, [[4, 5, 6, 7], [8, 9, 10, 11]])],
    ids=["in it", "behind it"],  # where DALI has met the bad image too, when the stock is at rest
)
@pytest.mark.parametrize("ahead", [False, True], ids=["here", "worker"])
def test_a_bad_image_in_or_behind_a_stock_is_named_in_its_turn(
    ahead: bool, broken: int, asked: int, ready: list[list[int]], tmp_path: Path
) -> None:
    bad = loader(tmp_path, ahead, break_file=broken)
    batches = iter(bad)
    next(batches)
    assert bad.stock(asked) == len(ready)
    assert [next(batches)[1].tolist() for _ in ready] == ready
    with pytest.raises(BadImageError, match=rf"0000{broken:02}\.jpg"):
        next(batches)
    bad.close()


def test_a_stock_is_forgotten_by_a_new_pass(tmp_path: Path) -> None:
    again = loader(tmp_path, ahead=True)
    first = iter(again)
    next(first)
    again.stock(3)
    plain = loader(tmp_path, ahead=True)
    list(plain)
    assert [labels.tolist() for _, labels in again] == [labels.tolist() for _, labels in plain]
    again.close()
    plain.close()


def test_timings_and_variants(tmp_path: Path) -> None:
    own = loader(tmp_path, ahead=False)
    batches = iter(own)
    next(batches)
    before = own.timings
    next(batches)
    spent = own.timings.since(before)
    assert spent.batches == 1
    assert min(spent.prepare, spent.decode, spent.finish) > 0
    place = own.place
    other = own.variant(dataclasses.replace(own.decoding, num_threads=2, batch_size=2), 2)
    images, _ = next(iter(other))
    assert images.shape == (2, 3, 8, 8)
    other.close()
    assert own.place == place
    assert len(list(batches)) == 3
    own.close()
