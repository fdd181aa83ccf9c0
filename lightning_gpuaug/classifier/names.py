"""Names and values from a config file, checked before anything expensive happens."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import timm
import timm.optim


def _nearest(name: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; nearest: {', '.join(matches)}" if matches else ""


def require_known_model(name: str) -> None:
    """Check that timm knows `name`: an architecture, `architecture.tag`, or a prefixed `hf-hub:` / `local-dir:` source.

    Raises:
        ValueError: timm has no such architecture, or no such pretrained tag of it.
    """
    if not isinstance(name, str):
        raise ValueError(f"model must be a timm model name, got {name!r}")
    if ":" in name:
        return  # a Hub repository or a folder: only loading it can tell
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise ValueError(f"model must be a timm model name, got {name!r}{_nearest(architecture, timm.list_models())}")
    if tag:
        tagged = timm.list_models(f"{architecture}.*", pretrained=True)
        if name not in tagged:
            raise ValueError(
                f"model must name a pretrained tag of {architecture!r}, got {name!r}{_nearest(name, tagged)}"
            )


def require_known_optimizer(name: str) -> None:
    """Check that `name` is one of `timm.optim.list_optimizers()`, or that with the prefix `lookahead_`.

    Raises:
        ValueError: timm has no such optimizer.
    """
    if not isinstance(name, str):
        raise ValueError(f"optimizer must be a timm optimizer name, got {name!r}")
    base = name.lower().removeprefix("lookahead_")
    known = [str(known_name) for known_name in timm.optim.list_optimizers()]  # type: ignore[attr-defined]
    if base not in known:
        raise ValueError(f"optimizer must be a timm optimizer name, got {name!r}{_nearest(base, known)}")


def require_plain(name: str, value: object) -> None:
    """Check that `value` is made of what YAML can say, so that a checkpoint holding it loads with `weights_only=True`.

    Raises:
        ValueError: something in it is not a dict with string keys, list, tuple, str, int, float, bool or None.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{name} must have string keys, got {key!r}")
            require_plain(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            require_plain(f"{name}[{index}]", item)
    elif not isinstance(value, str | int | float | bool | None):
        raise ValueError(f"{name} must be plain YAML data (str, number, bool, null, list, dict), got {value!r}")
