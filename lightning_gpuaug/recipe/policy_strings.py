"""timm's policy strings, read: a name, then sections of a key and its value, as in "rand-m9-mstd0.5-inc1".

The grammar is that of `timm.data.auto_augment`. Where timm skips what it does not understand, this is an error, which
names the nearest string that is valid.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lightning_gpuaug.recipe.policies import MOST_CHAINS, MOST_OPS, NAMED_POLICIES

TABLES = ("v0", "v0r", "original", "originalr", "3a")
OP_SETS = ("weights", "3a", "3aw")
_INFINITY = float("inf")


@dataclass(frozen=True)
class _Number:
    """A section's number."""

    low: float
    high: float
    whole: bool = False

    def read(self, text: str) -> float:
        value = int(text) if self.whole else float(text)
        if not self.low <= value <= self.high:
            raise ValueError
        return value

    def nearest(self, text: str) -> str | None:
        """The nearest valid number to a wrong one, None if it is no number at all."""
        try:
            value = min(max(float(text), self.low), self.high)
        except ValueError:
            return None
        return f"{round(value) if self.whole else value:g}"

    def __str__(self) -> str:
        """The rule."""
        if self.low == self.high:
            return f"{self.low:g}"
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} in {self.low:g}..{self.high:g}" if self.high < _INFINITY else f"{kind} ≥ {self.low:g}"


@dataclass(frozen=True)
class _Choice:
    """A section's word."""

    words: tuple[str, ...]

    def read(self, text: str) -> str:
        if text not in self.words:
            raise ValueError
        return text

    def nearest(self, text: str) -> str | None:
        return next(iter(difflib.get_close_matches(text, self.words, 1, 0.5)), None)

    def __str__(self) -> str:
        """The rule."""
        return " or ".join(self.words)


_NOISE = _Number(0, _INFINITY)
_GRAMMAR: dict[str, dict[str, _Number | _Choice]] = {
    "rand": {"m": _Number(0, 30, True), "n": _Number(1, MOST_OPS, True), "p": _Number(0, 1), "mstd": _NOISE,
             "mmax": _Number(1, 30, True), "inc": _Number(0, 1, True), "t": _Choice(OP_SETS)},
    "augmix": {"m": _Number(0, 10, True), "w": _Number(1, MOST_CHAINS, True), "d": _Number(1, 3, True),
               "a": _Number(1e-3, 1e3), "b": _Number(0, 0, True), "mstd": _NOISE},
    **{name: {"mstd": _NOISE} for name in TABLES},
}  # fmt: skip


@dataclass(frozen=True)
class PolicyString:
    """A timm policy string, read.

    Attributes:
        name: "rand", "augmix", or one of `TABLES`.
        values: of its sections.
    """

    name: str
    values: dict[str, float | str]

    def number(self, key: str, default: float) -> float:
        """A section's number."""
        return float(self.values.get(key, default))

    def word(self, key: str) -> str | None:
        """A section's word, None without it."""
        value = self.values.get(key)
        return None if value is None else str(value)


def read_policy(text: str) -> PolicyString:
    """Read a timm policy string.

    Raises:
        ValueError: in one line: what is wrong with it, the grammar, and the nearest valid string.
    """
    name, *sections = text.split("-")
    if name not in _GRAMMAR:
        raise _error(text, f"no policy {name!r}; known are {_names()}")
    rules, values = _GRAMMAR[name], dict[str, float | str]()
    for section in sections:
        key, value = _split(section, rules)
        if key is None:
            raise _error(text, f"{name!r} has no section {section!r}")
        if key in values:
            raise _error(text, f"section {key!r} is given twice")
        try:
            values[key] = rules[key].read(value)
        except ValueError:
            raise _error(text, f"{key!r} must be {rules[key]}, got {value!r}") from None
    problem = _too_many_ops(name, values)
    if problem is not None:
        raise _error(text, problem)
    return PolicyString(name, values)


def _split(section: str, rules: dict[str, _Number | _Choice]) -> tuple[str | None, str]:
    """A section's key, None if there is no such key, and its value."""
    if "t" in rules and section.startswith("t"):
        return "t", section[1:]
    match = re.fullmatch(r"([a-z]+?)([\d.].*|inf)", section)
    if match is None or match[1] not in rules:
        return None, section
    return match[1], match[2]


def _too_many_ops(name: str, values: Mapping[str, float | str]) -> str | None:
    """What is wrong with AugMix's chains and their depth together."""
    width, depth = float(values.get("w", 3)), float(values.get("d", 3))
    if name == "augmix" and width * depth > MOST_OPS:
        return f"{width:g} chains need 'd1' or 'd2' (at most {MOST_OPS} ops)"
    return None


def grammar() -> str:
    """Every form that a string may take, in one line."""
    forms = []
    for name, rules in _GRAMMAR.items():
        if name in TABLES[1:]:
            continue
        head = "|".join(TABLES) if name in TABLES else name
        keys = "".join(f"[-{key}{'SET' if isinstance(rule, _Choice) else '#'}]" for key, rule in rules.items())
        forms.append(head + keys)
    return ", ".join(forms)


def _names() -> str:
    return ", ".join([*NAMED_POLICIES, *_GRAMMAR])


def _error(text: str, problem: str) -> ValueError:
    return ValueError(
        f"TrainRecipe.auto: {problem} (in {text!r}); grammar: {grammar()}, or a name; "
        f"the nearest valid one is {nearest_policy(text)!r}"
    )


def nearest_policy(text: str) -> str:
    """The valid policy, a string of timm's or a name, that is most like `text`."""
    names = [*NAMED_POLICIES, *_GRAMMAR]
    folded = {name.lower(): name for name in names}
    head, *sections = [part for part in re.split(r"[-_,;:\s]+", text.strip().lower()) if part] or [""]
    whole = difflib.get_close_matches(re.sub(r"[-_,;:\s]+", "_", text.strip().lower()), list(folded), 1, 0.8)
    if whole and folded[whole[0]] not in _GRAMMAR:
        return folded[whole[0]]
    begun = [known for known in folded if len(head) > 2 and known.startswith(head)]
    closest = [head] if head in folded else begun or difflib.get_close_matches(head, list(folded), 1, 0.4)
    name = folded[closest[0]] if closest else "rand"
    if name not in _GRAMMAR and sections:
        name = "augmix" if "mix" in name.lower() else "rand"
    if name not in _GRAMMAR:
        return name
    rules, corrected = _GRAMMAR[name], dict[str, str]()
    for section in sections:
        key, value = _split(section, rules)
        if key is None:
            match = re.match(r"([a-z]*)(.*)", section)
            assert match is not None
            near = difflib.get_close_matches(match[1], list(rules), 1, 0.6)
            if not near or not (match[2] or near[0] == "inc"):
                continue
            key, value = near[0], match[2] or "1"
        nearest = rules[key].nearest(value)
        if nearest is not None:
            corrected.setdefault(key, nearest)
    if _too_many_ops(name, corrected):
        corrected["d"] = "2"
    return "-".join([name, *(key + value for key, value in corrected.items())])
