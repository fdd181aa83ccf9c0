"""Writes docs/parity.md: what `gpuaug parity` says on this machine.

    python docs/make_parity.py [--draws 150] [--size 64] [--json parity.json]

The images are scikit-learn's two photographs, so that everyone can repeat it. With --json, a file that
`gpuaug parity --json` wrote is laid out instead of measuring anew.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
from pathlib import Path
from typing import Any

from lightning_gpuaug.cli import main as gpuaug

PACKAGES = ("timm", "torchvision", "pillow", "torch")

TEXT = """# Parity with timm and torchvision

Can the augmentation be swapped without changing what is trained on? `gpuaug parity FOLDER` answers it for your images;
this page is its answer for scikit-learn's two photographs, written by `python docs/make_parity.py` with {versions}.
"Agrees" is the command's own verdict; where one op or policy does not, its exit code is 1.

## Ops, with equal parameters

The same images, the same parameters, both sides on the CPU: our op beside timm's (Pillow) or torchvision's (v2, on
tensors). Differences are absolute, in levels of 0..255, over all values, magnitudes and both signs ({size} × {size}
pixels).

{ops}

What is left:

- `GaussianBlur`: Pillow approximates a Gaussian by three box blurs, ours is a true one.
- torchvision's warps, bilinear: torchvision blends the border with the fill twice, so a ring one pixel wide is darker
  there.
- torchvision's shears and rotations, nearest: where a source point lies exactly between two pixels, the sides may take
  different ones.
- Levels of ±1: float32 beside float64, or a value that just meets a rounding.
- timm asks Pillow to keep 0 bits at `posterize`'s strongest magnitude. Older versions of Pillow give black for it, and
  so do we; Pillow {pillow} refuses, and timm stops with a `ValueError`. The comparison takes black.

## Policies, each side drawing for itself

Both sides draw {draws} versions of the two photographs. The generators differ, so single images do too; the columns
"mean", "std" and "op frequency" give the largest difference (of a channel, or of an op) in standard errors: about 1 is
usual, and the largest of a dozen ops is often above 2. Above {limit:g} the command says "differs". All policies are
drawn from one seed, so those that are alike share their luck. The histograms of all pixels are compared by the earth
mover's distance, in levels; beside it stands the distance between two runs of the peer, which chance alone makes.

{recipes}

Whether a network trained with one is as good as with the other: [augmentation_helps.md](augmentation_helps.md).

## How often each op comes

Applications a drawn image, ours / theirs, over {counted:,} draws on each side (small images; the ops do not depend on
them).

{frequencies}
"""


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def page(found: dict[str, Any]) -> str:
    """The whole document."""
    from lightning_gpuaug.cli.parity_recipes import STANDARD_ERRORS

    ops = [
        [o["peer"], o["op"], str(o["cases"]), f"{o['equal']:.2%}", f"{o['mean']:.3f}", str(o["p99"]), str(o["p999"]),
         str(o["largest"]), f"{o['over_one']:.2%}", "yes" if o["agrees"] else "**no**"]
        for o in found["ops"]
    ]  # fmt: skip
    recipes = [
        [r["peer"], f"`{r['recipe']}`", f"{r['mean_apart']:.1f}", f"{r['std_apart']:.1f}",
         f"{r['frequency_apart']:.1f} ({r['frequency_apart_of']})", f"{r['histogram']:.2f}",
         f"{r['histogram_noise']:.2f}", "yes" if r["agrees"] else "**no**"]
        for r in found["recipes"]
    ]  # fmt: skip
    frequencies = [
        [f"`{r['recipe']}`", " · ".join(f"{op} {a:.3f} / {b:.3f}" for op, (a, b) in r["frequency"].items())]
        for r in found["recipes"]
    ]
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return TEXT.format(
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        pillow=versions["pillow"],
        size=found["ops"][0]["size"],
        draws=found["recipes"][0]["draws"],
        counted=found["recipes"][0]["counted"],
        limit=STANDARD_ERRORS,
        ops=table(["peer", "op", "cases", "equal", "mean", "99 %", "99.9 %", "max", "> 1", "agrees"], ops),
        recipes=table(["peer", "policy", "mean", "std", "op frequency", "histogram", "peer twice", "agrees"], recipes),
        frequencies=table(["policy", "ops"], frequencies),
    )


def main() -> None:
    """Measure, or read, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=150, help="of each photograph and side (default: %(default)s)")
    parser.add_argument("--size", type=int, default=64, help="of the images, pixels (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="what `gpuaug parity --json` has printed")
    options = parser.parse_args()
    if options.json is None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            gpuaug(["parity", "--draws", str(options.draws), "--size", str(options.size), "--json"])
        text = out.getvalue()
    else:
        text = options.json.read_text()
    path = Path(__file__).parent / "parity.md"
    path.write_text(page(json.loads(text)))
    print(f"written: {path}")


if __name__ == "__main__":
    main()
