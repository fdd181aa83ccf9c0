"""What a scan tells: findings, classes, sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.tools.contents import Contents
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.scan import TYPES, ImageFacts, find_duplicates, misnamed

QUANTILES = {"min": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "max": 1.0}


@dataclass(frozen=True)
class ScanReport:
    """What a scan tells.

    Attributes:
        where: what was scanned.
        kind: what it is.
        samples: how many there are.
        good: how many of them have no finding.
        findings: in the order of the samples; those of the place itself first.
        counts: findings by kind.
        types: samples by image type (first bytes).
        class_counts: samples of each class, good or not; of classes without names, those that occur. Empty without
            labels, or with several a sample.
        sizes: min, p5, median, p95, max of width, height, shorter_side (pixels) and bytes of the good samples.
        misnamed: samples whose extension is another type's; they decode.
        unused: files that are no samples, by reason.
        seconds: how long the scan took.
    """

    where: str
    kind: str
    samples: int
    good: int
    findings: list[Finding]
    counts: dict[str, int]
    types: dict[str, int]
    class_counts: dict[str, int]
    sizes: dict[str, dict[str, float]]
    misnamed: list[str]
    unused: dict[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def make_report(contents: Contents, facts: ImageFacts, seconds: float) -> ScanReport:
    """Put together what was found; duplicates too if the files were hashed."""
    findings = [Finding(contents.names[i], *problem) for i, problem in sorted(facts.problems.items())]
    duplicates = find_duplicates(contents, facts) if facts.digests.shape[1] else {}
    bad = np.zeros(len(contents), dtype=bool)
    bad[list(facts.problems)] = True
    findings = [*contents.findings, *findings, *duplicates.values()]
    by_type = np.bincount(facts.types, minlength=len(TYPES))
    return ScanReport(
        where=contents.where,
        kind=contents.kind,
        samples=len(contents),
        good=len(contents) - len(facts.problems) - len(duplicates),  # a duplicate is readable
        findings=findings,
        counts=dict(Counter(finding.kind for finding in findings)),
        types={name: int(number) for name, number in zip(TYPES, by_type, strict=True) if number},
        class_counts=_class_counts(contents),
        sizes=_size_statistics(facts, ~bad),
        misnamed=[contents.names[i] for i in misnamed(contents, facts)],
        unused=contents.unused,
        seconds=round(seconds, 3),
    )


def _class_counts(contents: Contents) -> dict[str, int]:
    if contents.targets is None:
        return {}
    labels, numbers = np.unique(contents.targets, return_counts=True)
    found = dict(zip(labels.tolist(), numbers.tolist(), strict=True))  # labels may be of any size
    if contents.classes is None:
        return {str(label): number for label, number in found.items()}
    return {name: found.get(label, 0) for label, name in enumerate(contents.classes)}


def _size_statistics(facts: ImageFacts, chosen: npt.NDArray[np.bool_]) -> dict[str, dict[str, float]]:
    if not chosen.any():
        return {}
    width, height = facts.sizes[chosen].T
    columns = {
        "width": width,
        "height": height,
        "shorter_side": np.minimum(width, height),
        "bytes": facts.bytes[chosen],
    }
    points = list(QUANTILES.values())
    return {
        name: dict(zip(QUANTILES, np.quantile(values, points, method="nearest").tolist(), strict=True))
        for name, values in columns.items()
    }
