"""The data part of a training configuration: the same YAML files and `--data.…` options, without model and trainer."""

from __future__ import annotations

import json
import os
from typing import Any

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]
from lightning.pytorch import LightningDataModule

from lightning_gpuaug.cli import strict_yaml
from lightning_gpuaug.cli.errors import UsageError, message_to_user_behind
from lightning_gpuaug.cli.training import PARSER_MODE, HelpFormatter, Parser
from lightning_gpuaug.data import STAGES, ImageDataModule

_KEPT = ("seed_everything", "data")


class DataParser(Parser):
    """A parser of `--config`, `--seed_everything` and `--data`; what else a configuration says is not its business."""

    def parse_path(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Namespace:
        """Parse the data part of a configuration file."""
        document = strict_yaml.read(path)
        kept = {key: document[key] for key in _KEPT if key in document}
        parsed: Namespace = self.parse_string(json.dumps(kept), str(path), *args, **kwargs)
        return parsed


def data_parser(command: str, description: str, example: str) -> DataParser:
    """The parser of a command that needs the data of a training configuration.

    Args:
        command: its name.
        description: what it does.
        example: a command line, shown at the end of the help.
    """
    parser = DataParser(
        prog=f"gpuaug {command}",
        description=description,
        epilog=f"example: {example}",
        parser_mode=PARSER_MODE,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action=ActionConfigFile, help="a training configuration; later ones win")
    parser.add_argument(
        "--seed_everything", type=bool | int, default=0, help="seed of the run, unless data.seed says otherwise"
    )
    parser.add_lightning_class_args(LightningDataModule, "data", subclass_mode=True, required=False)
    parser.set_defaults({"data": {"class_path": f"{ImageDataModule.__module__}.{ImageDataModule.__qualname__}"}})
    return parser


def training_data(parser: DataParser, config: Namespace) -> ImageDataModule:
    """The data module of a parsed configuration with its training data alone, for the CPU.

    Args:
        parser: that has parsed.
        config: what it has parsed. Other stages' data, the batch size and `decode` in it are overwritten.

    Raises:
        UsageError: the data is another kind of data module, or there is no training data.
    """
    arguments = config.get("data.init_args")
    if arguments is None or "train_recipe" not in arguments:
        raise UsageError(f"data must be an ImageDataModule, got {config.get('data.class_path')}")
    if arguments.get("train") is None:
        raise UsageError("no training data: give --data.train a folder of class folders, or --config a file that does")
    overwritten: dict[str, Any] = {stage: None for stage in STAGES if stage != "train"}
    overwritten |= {"batch_size": 2, "drop_last": False, "decode": "cpu"}
    for name, value in overwritten.items():
        if name in arguments:  # a subclass may not have it
            arguments[name] = value
    return made_data(parser, config)


def made_data(parser: DataParser, config: Namespace) -> ImageDataModule:
    """The data module of a parsed configuration, which has the run's seed where it has none of its own.

    Raises:
        UsageError: it is another kind of data module, or its arguments are wrong.
    """
    try:
        data = parser.instantiate_classes(config).data
    except Exception as error:
        message = message_to_user_behind(error)
        if message is None:
            raise
        raise UsageError(str(message)) from error
    if not isinstance(data, ImageDataModule):
        raise UsageError(f"data must be an ImageDataModule, got {type(data).__name__}")
    seed = config.get("seed_everything")
    if data.seed is None and isinstance(seed, int) and not isinstance(seed, bool):
        data.seed = seed
    return data
