"""The augmentation benchmark's parts, tiny and on the CPU."""

from __future__ import annotations

import pytest
import torch

from lightning_gpuaug.bench import augment, augment_peers

CPU = torch.device("cpu")


@pytest.fixture
def bench() -> augment.Bench:
    return augment.Bench(CPU, batch=2, size=16, seconds=0.0, told=lambda row: None)


def test_every_recipe_and_the_ragged_ops_have_a_row(bench: augment.Bench) -> None:
    augment.floor(bench)
    augment.dense(bench)
    augment.ragged(bench)
    names = [row.what for row in bench.rows]
    assert names[1 : 1 + len(augment.RECIPES)] == [f"ours: {name}" for name in augment.RECIPES]
    assert len(names) == len(set(names)) == 1 + len(augment.RECIPES) + 4
    for row in bench.rows:
        assert 0 < row.p10_us <= row.median_us <= row.p90_us
        assert row.copy_us > 0
        assert row.ours == row.what.startswith("ours")
        assert (row.draw_us is not None) == row.ours
    dense = bench.rows[1]
    assert dense.counted_bytes == 2 * 16 * 16 * 3 * (1 + 2)  # uint8 in, bfloat16 out
    assert len(str(dense)) == len(augment.HEADER)


def test_factors_are_over_the_headline(bench: augment.Bench) -> None:
    def row(what: str, median: float) -> augment.Row:
        return augment.Row(what, what.startswith("ours"), median, median, median, median, None, None, 1, 1.0)

    rows = [row(f"ours: {augment.HEADLINE}", 100.0), row("kornia: + RandAugment(2, 9)", 2500.0), row("a copy", 1.0)]
    assert augment.factors(rows) == {"kornia: + RandAugment(2, 9)": 25.0}
    assert augment.factors(rows[1:]) == {}


@pytest.mark.parametrize("name", ["torchvision", "dali"])
def test_peers(name: str, bench: augment.Bench) -> None:
    assert augment_peers.measure(name, bench) is None
    assert len(bench.rows) == {"torchvision": 4, "dali": 2}[name]
    assert not any(row.ours for row in bench.rows)
    assert any("RandAugment" in row.what for row in bench.rows)


def test_a_peer_that_is_absent_or_fails_is_named(bench: augment.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: augment.Bench) -> None:
        raise RuntimeError("no kernel\nand more")

    monkeypatch.setitem(augment_peers.PEERS, "kornia", broken)
    assert augment_peers.measure("kornia", bench) == "failed: RuntimeError: no kernel"
    monkeypatch.setitem(augment_peers.PEERS, "kornia", lambda bench: __import__("no_such_library"))
    assert augment_peers.measure("kornia", bench) == "not installed (No module named 'no_such_library')"


def test_pictures_are_dense_reproducible_and_not_flat() -> None:
    first, again, other = (augment.pictures((2, 16, 16, 3), CPU, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.is_contiguous()
    assert first.dtype == torch.uint8
    assert first.float().std() > 10
