"""Options: what counts in whatever order they stand, and which contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.arguments import in_order, refuse_conflicts
from lightning_gpuaug.cli.errors import UsageError


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("fit --data.batch_size=8 --config a.yaml", "fit --config a.yaml --data.batch_size=8"),
        ("fit --model.lr -1 -c a.yaml --config=b.yaml", "fit -c a.yaml --config=b.yaml --model.lr -1"),
        ("--m.args.x=1 --m.init_args.args={y:2}", "--m.init_args.args={y:2} --m.args.x=1"),
        ("--data.batch_size=8 --data.class_path Other", "--data.class_path Other --data.batch_size=8"),
        (
            "--t.calls+=A --t.calls.init_args.x=1 --t.calls+ B --t.calls.x=2 --t={}",
            "--t={} --t.calls+=A --t.calls.init_args.x=1 --t.calls+ B --t.calls.x=2",
        ),
        ("fit", "fit"),
        ("", ""),
    ],
)
def test_files_come_first_and_wholes_before_their_parts(given: str, wanted: str) -> None:
    assert in_order(given.split()) == wanted.split()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            ["--data.r.hflip=0.1", "--data.r", "{hflip: 0.2}"],
            "data.r.hflip is given twice, as 0.1 by --data.r.hflip and as 0.2 by --data.r; keep one",
        ),
        (
            ["--data={init_args: {batch_size: 4}}", "--data.batch_size=9"],
            "data.batch_size is given twice, as 4 by --data and as 9 by --data.batch_size; keep one",
        ),
        (
            ["--data.train={class_path: A, init_args: {root: x}}", "--data.train.class_path=B"],
            "data.train is given twice, as 'A' by --data.train and as 'B' by --data.train.class_path; keep one",
        ),
        (["--a.x=1", "--a.x", "2"], "--a.x is given twice, as '1' and '2'; keep one"),
        (["--a={x: 1}", "--a={y: 1}"], "--a is given twice, as '{x: 1}' and '{y: 1}'; keep one"),
        (["--a={x: 1, x: 2}"], "--a: key `x` is given twice; keep one"),
        (["--a={b: {x: 1, x: 2}}"], "--a: key `b.x` is given twice; keep one"),
        (
            ["--data={batch_size: 4, init_args: {seed: 1}}"],
            "--data: `batch_size` stands beside init_args, which mixes the short and the long form; move it into "
            "init_args, or leave init_args out",
        ),
    ],
)
def test_contradictions_are_named(args: list[str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_conflicts(args)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    "args",
    [
        ["--data.r.hflip=0.1", "--data.r={hflip: 1e-1, mix: null}"],
        ["--a.x=8", "--a.init_args.x", "8"],
        ["--config=a", "--config=b", "-c", "d"],
        ["--t.calls+=A", "--t.calls.x=1", "--t.calls+=B", "--t.calls.x=2"],
        ["--a=Class", "--a.x=1", "--a.init_args={y: 2}"],
        ["--a={x: [1, 2", "--b=: :"],
    ],
)
def test_what_agrees_or_is_meant_to_repeat_passes(args: list[str]) -> None:
    refuse_conflicts(args)


def test_the_command_line_wins_wherever_config_stands(tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data: {batch_size: 4}\n")
    config = f"--config={tmp_path / 'c.yaml'}"
    for args in ([*tiny, config], [config, *tiny]):
        assert main(["fit", *args], run=False).datamodule.batch_size == 8
    extra = ["--model.model_args.drop_rate=0.1", "--model.model_args={in_chans: 3}"]
    model = main(["fit", *tiny, *extra], run=False).model
    assert model.hparams["model_args"] == {"in_chans": 3, "drop_rate": 0.1}


def test_a_list_counts_before_what_is_appended_to_it() -> None:
    args = ["--trainer.callbacks+=A", "--trainer.callbacks=[B]"]
    assert in_order(args) == args[::-1]
    with pytest.raises(UsageError, match=r"--trainer\.callbacks is given twice"):
        refuse_conflicts(["--trainer.callbacks=[B]", "--trainer.callbacks=[C]", "--trainer.callbacks+=A"])


def test_values_are_compared_as_they_are_written() -> None:
    refuse_conflicts(["--a.x=.nan", "--a.x=.nan"])
    refuse_conflicts(["--data={class_path: X, init_args: null}", "--a.x=!!int abc"])
    with pytest.raises(UsageError, match=r"--a\.x is given twice"):
        refuse_conflicts(["--a.x=1", "--a.x=true"])
