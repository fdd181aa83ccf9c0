"""Draws the pictures of docs/augment.md: each op at three strengths, beside the image.

    python docs/make_augment_pictures.py [--out docs/pictures/augment]

The test image is made here (shapes, a gradient, a texture, a face of sorts), so that nobody's photograph is needed.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from lightning_gpuaug import ops
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word

SIZE, GAP, LABEL = 144, 6, 16


def test_image() -> torch.Tensor:
    """(SIZE, SIZE, 3) uint8."""
    scale = 4
    side = SIZE * scale
    y, x = np.mgrid[:side, :side] / side
    sky = np.stack([90 + 120 * y, 140 + 70 * y, 225 - 40 * y], -1)
    grass = np.stack([70 + 50 * np.sin(60 * x) * np.sin(47 * y), 130 + 40 * np.sin(80 * x + 9 * y), 60 + 20 * y], -1)
    picture = np.where((y > 0.66 + 0.04 * np.sin(7 * x))[..., None], grass, sky)
    image = Image.fromarray(picture.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)

    def box(a: float, b: float, c: float, d: float) -> tuple[float, ...]:
        return tuple(v * side for v in (a, b, c, d))

    draw.ellipse(box(0.74, 0.08, 0.92, 0.26), fill=(250, 220, 90))
    draw.polygon([(v[0] * side, v[1] * side) for v in ((0.06, 0.48), (0.27, 0.26), (0.48, 0.48))], fill=(165, 60, 50))
    draw.rectangle(box(0.10, 0.48, 0.44, 0.78), fill=(220, 200, 170))
    draw.rectangle(box(0.16, 0.54, 0.25, 0.64), fill=(70, 90, 120))
    draw.rectangle(box(0.30, 0.56, 0.38, 0.78), fill=(110, 70, 45))
    draw.ellipse(box(0.58, 0.40, 0.86, 0.68), fill=(230, 175, 140))
    for left in (0.65, 0.75):
        draw.ellipse(box(left, 0.49, left + 0.045, 0.535), fill=(30, 30, 40))
    draw.arc(box(0.65, 0.50, 0.79, 0.63), 20, 160, fill=(140, 40, 50), width=5)
    draw.rectangle(box(0.62, 0.68, 0.82, 0.93), fill=(40, 110, 160))
    return torch.from_numpy(np.array(image.resize((SIZE, SIZE), Image.Resampling.BOX)))


def record_of(program: list[Op], fill: tuple[int, int, int] = (124, 116, 104), flags: int = 0) -> torch.Tensor:
    """One record of a program."""
    params = torch.zeros(1, rec.WORDS, dtype=torch.int32)
    params[0, Word.VERSION], params[0, Word.FLAGS] = rec.VERSION, flags
    params[0, Word.FILL] = fill[0] | fill[1] << 8 | fill[2] << 16
    params[0, Word.PROGRAM :] = torch.tensor(rec.program_words(program), dtype=torch.int32)
    return params


def run(image: torch.Tensor, params: torch.Tensor, chains: int = 1) -> torch.Tensor:
    """One image through its record."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return ops.augment(image[None], params, mean, std, dtype=torch.uint8, chains=chains)[0].permute(1, 2, 0)


def rotate(degrees: float, border: str = "constant") -> Op:
    """A rotation, counter-clockwise."""
    angle = math.radians(degrees)
    return Op(Opcode.ROTATE, (math.cos(angle), -math.sin(angle)), "bilinear", border)


def erased(image: torch.Tensor, flag: Flag, side: int) -> torch.Tensor:
    """A square erased."""
    params = record_of([], flags=int(flag))
    params[0, Word.ERASE : Word.ERASE + 4] = torch.tensor([40, 30, side, side])
    return run(image, params)


def augmixed(image: torch.Tensor, weight: float) -> torch.Tensor:
    """AugMix of three fixed chains, which together weigh `weight`."""
    chains = [rotate(25), Op(Opcode.SOLARIZE, (120.0,)), Op(Opcode.SHEAR_X, (0.3,), "bilinear")]
    params = record_of([op._replace(flags=rec.CHAIN_END) for op in chains])
    params[0, Word.CHAINS] = 3
    weights = torch.tensor([1 - weight, *[weight / 3] * 3])
    params[0, Word.ORIGINAL_WEIGHT : Word.ORIGINAL_WEIGHT + 4] = weights.view(torch.int32)
    return run(image, params, 3)


def mixed(image: torch.Tensor, share: float, box: list[int] | None) -> torch.Tensor:
    """The image mixed with its inverted mirror image."""
    both = torch.stack([image, 255 - image.flip(1)])
    boxes = None if box is None else torch.tensor([box] * 2, dtype=torch.int32)
    result = ops.mix(both, torch.tensor([1, 0]), share, boxes, dtype=torch.uint8)
    return result[0].permute(1, 2, 0)


def strips(image: torch.Tensor) -> dict[str, list[tuple[str, torch.Tensor]]]:
    """Name of the op -> three (label, picture)."""

    def each(make: object, values: list[float], label: str = "{:g}") -> list[tuple[str, torch.Tensor]]:
        assert callable(make)
        return [(label.format(v), run(image, record_of([make(v)]))) for v in values]

    one = "no parameter"
    near = 0.002
    return {
        "translate": each(lambda v: Op(Opcode.TRANSLATE, (-v, 0.0)), [10, 30, 60], "{:g} px"),
        "shear": each(lambda v: Op(Opcode.SHEAR_X, (v,), "bilinear"), [0.1, 0.3, 0.99]),
        "rotate": each(rotate, [9, 30, 135], "{:g}°"),
        "perspective": each(
            lambda v: Op(Opcode.PERSPECTIVE, (1, v * 40, 0, v * 40, 1, 0, v, v), "bilinear"), [near, 2 * near, 4 * near]
        ),
        "border": [
            (name, run(image, record_of([rotate(30, name)]))) for name in ("replicate", "reflect", "reflect101")
        ],
        "interpolation": [
            (name, run(image, record_of([Op(Opcode.AFFINE, (0.25, 0, 50, 0, 0.25, 55), name)])))
            for name in rec.INTERPOLATIONS
        ],
        "brightness": each(lambda v: Op(Opcode.BRIGHTNESS, (v,)), [0.3, 0.7, 1.6]),
        "contrast": each(lambda v: Op(Opcode.CONTRAST, (v, 1 - v)), [0.2, 0.6, 1.9]),
        "saturation": each(lambda v: Op(Opcode.SATURATION, (v, 1 - v)), [0.0, 0.5, 1.9]),
        "hue": each(lambda v: Op(Opcode.HUE, (v,)), [-0.3, 0.1, 0.5]),
        "posterize": each(lambda v: Op(Opcode.POSTERIZE, (int(v),)), [6, 4, 2], "{:g} bits"),
        "solarize": each(lambda v: Op(Opcode.SOLARIZE, (float(v),)), [220, 150, 80]),
        "solarize_add": each(lambda v: Op(Opcode.SOLARIZE_ADD, (float(v), 128.0)), [30, 70, 110]),
        "invert": each(lambda v: Op(Opcode.INVERT), [0], one),
        "gamma": each(lambda v: Op(Opcode.GAMMA, (v, 1.0)), [0.4, 0.8, 2.2]),
        "equalize": each(lambda v: Op(Opcode.EQUALIZE), [0], one),
        "autocontrast": [
            (label, run((image.float() * scale + shift).to(torch.uint8), record_of([Op(Opcode.AUTOCONTRAST)])))
            for label, scale, shift in (("of full range", 1.0, 0), ("of 40..190", 0.6, 40), ("of 100..130", 0.12, 100))
        ],
        "sharpness": each(lambda v: Op(Opcode.SHARPNESS, (1 - v,)), [0.0, 1.9, 4.0]),
        "grayscale": each(lambda v: Op(Opcode.GRAYSCALE), [0], one),
        "blur": each(lambda v: Op(Opcode.BLUR, (v, 23)), [0.5, 1.5, 4.0], "sigma {:g}"),
        "erase": [
            ("constant", erased(image, Flag.ERASE_CONSTANT, 40)),
            ("noise", erased(image, Flag.ERASE_NOISE, 40)),
            ("noise", erased(image, Flag.ERASE_NOISE, 80)),
        ],
        "mixup": [(f"share {share:g}", mixed(image, share, None)) for share in (0.9, 0.7, 0.5)],
        "cutmix": [(f"{side} px", mixed(image, 0.5, [30, 40, side, side])) for side in (30, 60, 90)],
        "augmix": [(f"chains {weight:g}", augmixed(image, weight)) for weight in (0.2, 0.5, 0.9)],
    }


def strip(image: torch.Tensor, pictures: list[tuple[str, torch.Tensor]]) -> Image.Image:
    """The image and its pictures side by side, labelled."""
    cells = [("image", image), *pictures]
    sheet = Image.new("RGB", (len(cells) * (SIZE + GAP) - GAP, SIZE + LABEL), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (label, picture) in enumerate(cells):
        sheet.paste(Image.fromarray(picture.contiguous().numpy()), (i * (SIZE + GAP), 0))
        draw.text((i * (SIZE + GAP) + SIZE // 2, SIZE + 2), label, fill=(60, 60, 60), anchor="ma")
    return sheet


def main() -> None:
    """Write a picture an op."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parent / "pictures" / "augment"
    parser.add_argument("--out", type=Path, default=default, help=f"folder for the pictures (default: {default})")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    image = test_image()
    for name, pictures in strips(image).items():
        strip(image, pictures).quantize(192).save(out / f"{name}.png", optimize=True)
    print(f"wrote {len(list(out.glob('*.png')))} pictures to {out}")


if __name__ == "__main__":
    main()
