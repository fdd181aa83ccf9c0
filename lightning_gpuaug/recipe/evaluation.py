"""What happens to images that are evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightning_gpuaug.recipe.checks import (
    Interpolation,
    check_resampling,
    check_step,
    check_switch,
    is_number,
    require,
)
from lightning_gpuaug.recipe.steps import Normalize


@dataclass(frozen=True)
class EvalRecipe:
    """Evaluation: resize the shorter side, take the centre, normalise.

    Attributes:
        crop_ratio: image_size / shorter side after the resize, in (0, 1]; 0.875 resizes to 256 for 224.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: widen the filter when shrinking, as Pillow does.
        normalize: mean and std, or None for pixels on the 0..1 scale.
        exif_orientation: rotate as the EXIF tag says.
    """

    crop_ratio: float = 0.875
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    normalize: Normalize | None = field(default_factory=Normalize)
    exif_orientation: bool = False

    def __post_init__(self) -> None:
        """Validate every field."""
        rule = "must be a number in (0, 1]"
        require(is_number(self.crop_ratio) and 0.0 < self.crop_ratio <= 1.0, "EvalRecipe.crop_ratio", rule,
                self.crop_ratio)  # fmt: skip
        check_resampling("EvalRecipe", self.interpolation, self.antialias)
        check_step("EvalRecipe.normalize", self.normalize, Normalize)
        check_switch("EvalRecipe.exif_orientation", self.exif_orientation)
