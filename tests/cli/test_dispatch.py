"""The command itself: overview, exit codes, start-up."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.dispatch import COMMANDS
from lightning_gpuaug.cli.errors import run_command


def test_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, line) in COMMANDS.items():
        assert name in out
        assert line in out
    assert "exit codes" in out


@pytest.mark.parametrize("args", [[], ["nope"], ["--nope"]])
def test_wrong_usage_is_2(args: list[str]) -> None:
    assert main(args) == 2


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"example: gpuaug {command}") for line in lines)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_unknown_option_is_2(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    needed = {"index": ["x"], "scan": ["x"], "convert": ["x", "y", "--to=tfrecord"], "bench": ["augment"]}
    training = ["--model.model=test_resnet"] if COMMANDS[command][0].endswith(".training") else []
    options = needed.get(command, training)
    assert main([command, *options, "--no_such_option=1"]) == 2
    assert "no_such_option" in capsys.readouterr().err


def test_module_starts_without_heavy_imports() -> None:
    code = (
        "import sys, runpy; sys.argv = ['gpuaug', '--help']\n"
        "try:\n runpy.run_module('lightning_gpuaug.cli', run_name='__main__')\n"
        "except SystemExit as stop:\n assert stop.code == 0, stop.code\n"
        "assert not {'lightning', 'timm', 'jsonargparse', 'sklearn', 'nvidia.dali'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "gpuaug fit" in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("ends", ["", "; sys.exit(0)"])
def test_a_reader_of_the_output_that_has_gone_ends_the_command_quietly(unbuffered: str, ends: str) -> None:
    code = (
        "import sys\nfrom lightning_gpuaug.cli.errors import run_command\n"
        f"def body():\n print('a' * 100){ends}\n return 0\n"
        "sys.exit(run_command('fit', body))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_an_error() -> None:
    def body() -> int:
        raise BrokenPipeError(errno.EPIPE, "to a worker")

    with pytest.raises(BrokenPipeError, match="to a worker"):
        run_command("fit", body)
