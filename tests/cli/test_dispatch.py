"""The command itself: overview, exit codes, start-up."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.dispatch import COMMANDS


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
    options = ["--model.model=test_resnet"] if COMMANDS[command][0].endswith(".training") else []
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
