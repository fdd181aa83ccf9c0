"""What a checkpoint says of the training data, and whether the data at hand is that data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_gpuaug.sources import Source

_VERSION = 1


@dataclass(frozen=True)
class TrainingState:
    """Where training is, in terms that any number of ranks can continue from.

    The order is planned globally and all ranks make equal steps, so every rank's state is the same and nothing has to
    be gathered.

    Attributes:
        epoch: number of the running epoch.
        consumed: samples of it that all ranks together have taken, in its present pass over the data.
        seed: of the order and the augmentation's draws.
        fingerprint: of the data.
        size: number of samples, for messages.
        classes: class names, None where labels are numbers without names.
        recipe: what is done to the images, in a form that tells recipes apart.
        repeats: how often a sample comes in an epoch.
        cycle: whole passes over the data that the epoch has had before its present one.
    """

    epoch: int
    consumed: int
    seed: int
    fingerprint: str
    size: int
    classes: list[str] | None
    recipe: str
    repeats: int = 1
    cycle: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, which a checkpoint can hold."""
        return {"version": _VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TrainingState:
        """What `to_dict` gave; what a subclass of the data module has put beside it is not looked at.

        Raises:
            ValueError: it is of another version.
        """
        version = state.get("version")
        if version != _VERSION:
            raise ValueError(f"data state version must be {_VERSION}, got {version!r}")
        return cls(**{field.name: state[field.name] for field in dataclasses.fields(cls) if field.name in state})

    def require_classes(self, now: Sequence[str] | None) -> None:
        """Refuse another class list.

        Raises:
            ValueError: names the first difference.
        """
        classes = None if now is None else list(now)
        if classes != self.classes:
            raise ValueError(f"classes differ from the checkpoint's: {_first_difference(classes, self.classes)}")

    def require_data(self, source: Source, repeats: int) -> None:
        """Refuse other data, and another order of it.

        Raises:
            ValueError: says what differs.
        """
        if (now := source.fingerprint()) != self.fingerprint:
            raise ValueError(
                f"the training data is not the checkpoint's: {len(source)} samples now, {self.size} then, or other "
                f"names or labels (fingerprint {now} now, {self.fingerprint} then); "
                "resume with the same data, or start a new run from the weights alone"
            )
        if repeats != self.repeats:
            raise ValueError(
                f"train_recipe.repeats is {repeats} now, {self.repeats} in the checkpoint: "
                "the order of an epoch depends on it; resume with the same, or start a new run from the weights alone"
            )


def _first_difference(now: list[str] | None, then: list[str] | None) -> str:
    if now is None or then is None:
        return f"{len(now or [])} class names now, {len(then or [])} then"
    for i, (a, b) in enumerate(zip(now, then, strict=False)):
        if a != b:
            return f"class {i} is {a!r} now and was {b!r}"
    return f"{len(now)} classes now, {len(then)} then"
