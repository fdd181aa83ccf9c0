"""What `gpuaug predict` leaves behind: a CSV of file, class and probability."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def write_predictions(
    path: Path, batches: Sequence[Any], name_of: Callable[[int], str], classes: Sequence[str] | None
) -> int:
    """Write one row for each image, in the order of `batches`.

    Args:
        path: the file to write; its folder is made.
        batches: `Classifier.predict_step`'s results: dictionaries with `index`, `label` and `probability`, each (N,).
        name_of: index to file name.
        classes: names of the labels; None leaves the column out.

    Returns:
        Number of rows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "label", "probability", *([] if classes is None else ["class"])])
        for batch in batches:
            columns = (batch["index"].tolist(), batch["label"].tolist(), batch["probability"].tolist())
            for index, label, probability in zip(*columns, strict=True):
                named = [] if classes is None else [classes[label]]
                writer.writerow([name_of(index), label, f"{probability:.6f}", *named])
                rows += 1
    return rows
