"""The doctor on two gloo ranks: collectives stay in step, training stays what it was."""

from __future__ import annotations

from pathlib import Path

from tests.ddp import launch
from tests.images import numbered


def test_two_ranks_train_as_without_it(tmp_path: Path) -> None:
    source = numbered(tmp_path, 80)
    common = {"list": str(source.path), "batch_size": 2, "folder": str(tmp_path)}
    options = {"max_epochs": 2, "limit_val_batches": 0, "accumulate_grad_batches": 2}
    doctor = {"every_n_batches": 6, "batches": 4, "probe_seconds": 0.02}
    with_doctor, without = launch(
        tmp_path, [{**common, "options": options, "doctor": doctor}, {**common, "options": options}]
    )
    for rank in range(2):
        for part in ("train", "weights", "metrics"):
            assert with_doctor[rank][part] == without[rank][part]
        assert len(without[rank]["train"]) == 40
    verdicts = [rank["verdict"] for rank in with_doctor]
    assert all(verdicts)
    figures = [text.split("img/s")[0].split()[-1] for text in verdicts]
    assert figures[0] == figures[1]  # the two ranks' rates, added up
