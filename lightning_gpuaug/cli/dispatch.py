"""Find the command; import only what it needs."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lightning_gpuaug.cli.errors import OK, USAGE

# name -> (module, one line). The help below reads it without importing anything.
COMMANDS = {
    "fit": ("lightning_gpuaug.cli.training", "train a model on image folders, from YAML and the command line"),
    "validate": ("lightning_gpuaug.cli.training", "run one pass over the validation images"),
    "test": ("lightning_gpuaug.cli.training", "run one pass over the test images"),
    "predict": ("lightning_gpuaug.cli.training", "run the model on images and write predictions.csv"),
    "preview": ("lightning_gpuaug.cli.preview", "draw what the training recipe makes of some images"),
    "parity": (
        "lightning_gpuaug.cli.parity",
        "compare augmentation with timm and torchvision, op by op and as a whole",
    ),
    "demo": ("lightning_gpuaug.cli.demo", "train on handwritten digits and show what the input pipeline did"),
}


def _overview() -> str:
    commands = "\n".join(f"  {name:<10} {line}" for name, (_, line) in COMMANDS.items())
    return f"""usage: gpuaug [--help] [--version] COMMAND ...

Image training with NVIDIA DALI decoding and native augmentation, on PyTorch Lightning.

commands:
{commands}

`gpuaug COMMAND --help` shows the options of one command.

examples:
  gpuaug demo
  gpuaug fit --config configs/imagenet_resnet50.yaml --data.train /data/train --data.val /data/val

exit codes: 0 fine, 1 problems found, 2 wrong usage
"""


def _version() -> str:
    try:
        return version("lightning-gpuaug")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown (not installed)"


def main(args: list[str] | None = None, run: bool = True) -> Any:
    """Run `gpuaug`.

    Args:
        args: what follows `gpuaug` on the command line; `sys.argv[1:]` by default.
        run: False builds data, model and trainer of `fit`, `validate`, `test` or `predict`, and starts nothing.

    Returns:
        The exit code: 0 fine, 1 problems found, 2 wrong usage. With `run=False` the `TrainingCLI`, whose `.trainer`,
        `.model` and `.datamodule` are ready to use.
    """
    given = list(sys.argv[1:] if args is None else args)
    if not given or given[0] in ("-h", "--help"):
        print(_overview(), end="")
        return OK if given else USAGE
    if given[0] == "--version":
        print(f"gpuaug {_version()}")
        return OK
    if given[0] not in COMMANDS:
        print(f"gpuaug: error: unknown command {given[0]!r}, choose from {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE
    command = import_module(COMMANDS[given[0]][0])
    return command.main(given, run) if COMMANDS[given[0]][0].endswith(".training") else command.main(given[1:])
