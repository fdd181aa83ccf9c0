"""What `gpuaug parity` found, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from lightning_gpuaug.cli.parity import Found
    from lightning_gpuaug.cli.parity_ops import OpParity
    from lightning_gpuaug.cli.parity_published import Distance, PublishedParity
    from lightning_gpuaug.cli.parity_recipes import RecipeParity
    from lightning_gpuaug.cli.parity_steps import NoiseParity

_WIDTH = 150


def print_tables(found: Found) -> None:
    """Print what there is."""
    console = Console(width=max(_WIDTH, Console().width))
    for table in _tables(found):
        console.print(table)
    for known in {parity.recipe: parity.known for parity in found.published if parity.known}.items():
        console.print(": ".join(known), highlight=False)


def _tables(found: Found) -> Iterator[Table]:
    if found.ops:
        yield _ops(found.ops)
    if found.noise:
        yield _noise(found.noise)
    if found.recipes:
        yield _policies(found.recipes)
    if found.published:
        yield _published(found.published)


def _verdict(agrees: bool) -> str:
    return "ok" if agrees else "differs"


def _ops(ops: list[OpParity]) -> Table:
    title = "Ops: |ours - theirs| in levels of 0..255, over all values, magnitudes and signs"
    table = Table("peer", "op", "cases", "equal", "mean", "p50", "p99", "p99.9", "max", "> 1", "", title=title)
    for op in ops:
        table.add_row(
            op.peer, op.op, str(op.cases), f"{op.equal:.2%}", f"{op.mean:.3f}", str(op.median), str(op.p99),
            str(op.p999), str(op.largest), f"{op.over_one:.2%}", _verdict(op.agrees),
        )  # fmt: skip
    return table


def _noise(noise: list[NoiseParity]) -> Table:
    title = "Noise, ours / theirs, in units of the normalised image; distance of the distributions, 0..1"
    table = Table("peer", "op", "numbers", "mean", "std", "distance", "peer twice", "", title=title)
    for n in noise:
        table.add_row(
            n.peer, n.op, f"{n.count:,}", f"{n.mean[0]:.3f} / {n.mean[1]:.3f}", f"{n.std[0]:.3f} / {n.std[1]:.3f}",
            f"{n.distance:.4f}", f"{n.noise:.4f}", _verdict(n.agrees),
        )  # fmt: skip
    return table


def _policies(policies: list[RecipeParity]) -> Table:
    title = "Policies: ours - theirs, in standard errors; histogram distance in levels, beside two runs of the peer"
    table = Table("peer", "policy", "draws", "mean", "std", "op frequency", "histogram", "peer twice", "", title=title)
    for policy in policies:
        table.add_row(
            policy.peer, policy.recipe, str(policy.draws), f"{policy.mean_apart:.1f}", f"{policy.std_apart:.1f}",
            f"{policy.frequency_apart:.1f} ({policy.frequency_apart_of})", f"{policy.histogram:.2f}",
            f"{policy.histogram_noise:.2f}", _verdict(policy.agrees),
        )  # fmt: skip
    return table


def _published(recipes: list[PublishedParity]) -> Table:
    title = "Published recipes: distance in levels / the same between two runs of the origin (in standard errors)"
    table = Table(
        "origin", Column("recipe", no_wrap=True, min_width=24), "views", "images", "mean", "std", "histogram",
        "op frequency", "drawn number", "", title=title,
    )  # fmt: skip
    for r in recipes:
        (op, often), (number, drawn) = r.frequency_apart, r.number_apart
        table.add_row(
            r.peer, r.recipe, r.view, str(r.images), *(_distance(d) for d in (r.mean, r.std, r.histogram)),
            f"{often:.1f} ({op})", f"{drawn.found:.3f} / {drawn.twice:.3f} ({number})", _verdict(r.agrees),
        )  # fmt: skip
    return table


def _distance(distance: Distance) -> str:
    return f"{distance.found:.2f} / {distance.twice:.2f} ({distance.apart:.1f})"
