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

TEXT = """# Parity with torchvision, timm and other origins

Can the augmentation be swapped without changing what is trained on? `gpuaug parity FOLDER` answers it for your
images; this page is its answer for scikit-learn's two photographs, written by `python docs/make_parity.py` with
{versions}. "Agrees" is the command's own verdict; where one line does not, its exit code is 1.

| command | what it compares |
|---|---|
| `gpuaug parity /data/val` | everything on this page, for images of your own |
| `gpuaug parity /data/val --recipe timm_a1` | one published recipe, `all`, or a file with `--origin timm_a1` |
| `gpuaug parity /data/val --policy rand-m9-mstd0.5-inc1` | one value of `TrainRecipe.auto`, and the ops |

## Ops, with equal parameters

The same images, the same parameters, both sides on the CPU: our op beside timm's (Pillow), torchvision's (v2, on
tensors) or Pillow's (what torchvision and timm do with Pillow images). Differences are absolute, in levels of 0..255,
over all values, magnitudes and both signs ({size} × {size} pixels). Windows, rectangles, shares and the order of the
jitter are the same on both sides.

### Ops of policies

{ops}

### Steps of a recipe

{steps}

What is left:

- `GaussianBlur`: Pillow approximates a Gaussian by three box blurs, ours is a true one.
- torchvision's warps, bilinear: torchvision blends the border with the fill twice, so a ring one pixel wide is darker
  there.
- torchvision's shears and rotations, nearest, and Pillow's nearest crop: where a source point lies exactly between
  two pixels, the sides may take different ones. (torchvision's plain "nearest" on tensors takes another pixel; it
  calls what Pillow and we take "nearest-exact".)
- Crops, bilinear and bicubic: ±1, where a sum just meets a rounding: Pillow and torchvision round between the two
  passes, we do not. Bicubic without antialias: torch's kernel has a = -0.75 there and -0.5 with antialias; ours has
  -0.5 in both, as Pillow's. No published recipe uses it.
- `ColorJitter`, `RandomGrayscale` beside Pillow: ours are torchvision's on tensors, where grey is truncated; Pillow
  rounds it, blends contrast with a mean that is rounded, and turns hue in 256 whole steps with 8 bits of saturation.
- Levels of ±1: float32 beside float64, or a value that just meets a rounding.
- timm asks Pillow to keep 0 bits at `posterize`'s strongest magnitude. Older versions of Pillow give black for it,
  and so do we; Pillow {pillow} refuses, and timm stops with a `ValueError`. The comparison takes black.
- `ops` resizes, as the loader does where the GPU decodes. With `decode="cpu"` DALI resizes, within a few levels of
  it.

### Noise

Erasing with noise has no equal pixels inside of the rectangle (outside they are above). What is written there, in
units of the normalised image, beside timm's; the distance is the largest difference of the cumulative distributions
(0..1).

{noise}

## Published recipes, each side drawing for itself

Every file of `configs/recipes` beside the pipeline that it comes from, as its authors run it, on Pillow images:
torchvision's reference (v1, v2), timm's `create_transform` and `Mixup` (A1–A3, DeiT), and FFCV's, SimCLR's and DINO's
written with torchvision.transforms from their sources. Ours are batches of the loader (`decode="cpu"`), the large
views at {size} pixels on both sides. Both sides draw {draws} batches of both photographs.

Means, stds and histograms (earth mover's distance) are in levels of 0..255: **ours to the origin / the origin to
itself**, drawn twice. The second number is what chance alone makes; in brackets the first in standard errors. (One
run of the origin stands in both, so they share its luck. In the histogram, standard errors are the largest of the
shares of 16 levels, some 40 of them, so 2 to 3 are usual.) The last columns name the op whose frequency, and the drawn
number whose distribution lies furthest apart: frequencies in standard errors, distributions as the
largest difference of the cumulative ones (0..1), again beside the origin's to itself. All recipes are drawn from one
seed, so those that are alike share their luck.

{published}

Beyond {limit:g} standard errors the command says "differs", and beyond {known:g} levels where the origin is known to
resample or filter otherwise:

{differences}

Whatever the pixels, ops and numbers must be drawn alike. Also known: torchvision pairs mixed images i with i - 1, we
i with N - 1 - i, as timm does; batches are shuffled, so that partners are random either way. Repeated augmentation
changes which samples an epoch has, not what is made of one, and is not part of this.

### What they draw

Of the ops of a policy, jitter and other steps: applications an image (of mixing: a batch), ours / the origin's.

{published_frequencies}

Of each number: the distance of the distributions, ours to the origin / the origin to itself.

{numbers}

## Policies, each side drawing for itself

Both sides draw {policy_draws} versions of the two photographs. The generators differ, so single images do too; the
columns "mean", "std" and "op frequency" give the largest difference (of a channel, or of an op) in standard errors:
about 1 is usual, and the largest of a dozen ops is often above 2. Above {limit:g} the command says "differs". All
policies are drawn from one seed, so those that are alike share their luck. The histograms of all pixels are compared
by the earth mover's distance, in levels; beside it stands the distance between two runs of the peer, which chance
alone makes.

{recipes}

Whether a network trained with one is as good as with the other: [augmentation_helps.md](augmentation_helps.md).

### How often each op comes

Applications a drawn image, ours / theirs, over {counted:,} draws on each side (small images; the ops do not depend on
them).

{frequencies}
"""


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def verdict(parity: dict[str, Any]) -> str:
    """Whether a line is within its limits."""
    return "yes" if parity["agrees"] else "**no**"


def ops_table(ops: list[dict[str, Any]]) -> str:
    """Ops with equal parameters."""
    rows = [
        [o["peer"], o["op"], str(o["cases"]), f"{o['equal']:.2%}", f"{o['mean']:.3f}", str(o["p99"]), str(o["p999"]),
         str(o["largest"]), f"{o['over_one']:.2%}", verdict(o)]
        for o in ops
    ]  # fmt: skip
    return table(["peer", "op", "cases", "equal", "mean", "99 %", "99.9 %", "max", "> 1", "agrees"], rows)


def noise_table(noise: list[dict[str, Any]]) -> str:
    """What erasing writes."""
    rows = [
        [n["op"], f"{n['count']:,}", *(f"{a:.3f} / {b:.3f}" for a, b in (n["mean"], n["std"])), f"{n['distance']:.4f}",
         f"{n['noise']:.4f}", verdict(n)]
        for n in noise
    ]  # fmt: skip
    heads = ["op", "numbers", "mean, ours / timm's", "std", "distance", "timm's to itself", "agrees"]
    return table(heads, rows)


def name_of(recipe: dict[str, Any]) -> str:
    """Of a published recipe and its views."""
    return f"`{recipe['recipe']}`" + (f", views {recipe['view']}" if recipe["view"] else "")


def published_table(recipes: list[dict[str, Any]]) -> str:
    """Published recipes and their origins."""
    rows = []
    for r in recipes:
        distances = [f"{d['found']:.2f} / {d['twice']:.2f} ({d['apart']:.1f})"
                     for d in (r["mean"], r["std"], r["histogram"])]  # fmt: skip
        op, (_, _, often) = max(r["frequency"].items(), key=lambda item: item[1][2])
        number, drawn = max(r["numbers"].items(), key=lambda item: item[1]["apart"])
        rows.append([r["peer"], name_of(r), f"{r['images']:,}", *distances, f"{often:.1f} ({op})",
                     f"{drawn['found']:.3f} / {drawn['twice']:.3f} ({number})", verdict(r)])  # fmt: skip
    heads = ["origin", "recipe", "images", "mean", "std", "histogram", "op frequency", "drawn number", "agrees"]
    return table(heads, rows)


def page(found: dict[str, Any]) -> str:
    """The whole document."""
    from lightning_gpuaug.cli.parity_published import MOST_KNOWN
    from lightning_gpuaug.cli.parity_statistics import STANDARD_ERRORS
    from lightning_gpuaug.cli.parity_steps import steps

    recipes = [
        [r["peer"], f"`{r['recipe']}`", f"{r['mean_apart']:.1f}", f"{r['std_apart']:.1f}",
         f"{r['frequency_apart']:.1f} ({r['frequency_apart_of']})", f"{r['histogram']:.2f}",
         f"{r['histogram_noise']:.2f}", verdict(r)]
        for r in found["recipes"]
    ]  # fmt: skip
    frequencies = [
        [f"`{r['recipe']}`", " · ".join(f"{op} {a:.3f} / {b:.3f}" for op, (a, b) in r["frequency"].items())]
        for r in found["recipes"]
    ]
    published = found["published"]
    drawn = [[name_of(r), " · ".join(f"{op} {a:.3f} / {b:.3f}" for op, (a, b, _) in r["frequency"].items())]
             for r in published]  # fmt: skip
    numbers = [[name_of(r), " · ".join(f"{n} {d['found']:.3f} / {d['twice']:.3f}" for n, d in r["numbers"].items())]
               for r in published]  # fmt: skip
    known = {r["recipe"]: r["known"] for r in published if r["known"]}
    of_steps = {(step.peer, step.op) for step in steps()}
    first = len(found["ops"]) - len(of_steps)  # the ops of the policies come first
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return TEXT.format(
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        pillow=versions["pillow"],
        size=found["ops"][0]["size"],
        draws=published[0]["draws"],
        policy_draws=found["recipes"][0]["draws"],
        counted=found["recipes"][0]["counted"],
        limit=STANDARD_ERRORS,
        known=MOST_KNOWN,
        ops=ops_table(found["ops"][:first]),
        steps=ops_table(found["ops"][first:]),
        noise=noise_table(found["noise"]),
        published=published_table(published),
        differences="\n".join(f"- `{name}`: {cause}." for name, cause in known.items()),
        published_frequencies=table(["recipe", "steps and ops"], drawn),
        numbers=table(["recipe", "numbers"], numbers),
        recipes=table(["peer", "policy", "mean", "std", "op frequency", "histogram", "peer twice", "agrees"], recipes),
        frequencies=table(["policy", "ops"], frequencies),
    )


def main() -> None:
    """Measure, or read, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300, help="of each photograph and side (default: %(default)s)")
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
