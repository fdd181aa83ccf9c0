"""`gpuaug fit | validate | test | predict`: LightningCLI with this package's defaults, and no silent conflicts."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist
import yaml
from jsonargparse import DefaultHelpFormatter, Namespace, set_loader
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from lightning.pytorch.utilities import rank_zero_only

import lightning_gpuaug.sources  # noqa: F401  (short class names in YAML need the classes to be imported)
from lightning_gpuaug.callbacks import Throughput
from lightning_gpuaug.classifier import Classifier
from lightning_gpuaug.cli import strict_yaml
from lightning_gpuaug.cli.arguments import in_order, refuse_conflicts
from lightning_gpuaug.cli.checkpoints import Checkpoint, read_checkpoint
from lightning_gpuaug.cli.errors import OK, USAGE, UsageError, message_to_user_behind, one_line, report, run_command
from lightning_gpuaug.cli.predictions import write_predictions
from lightning_gpuaug.cli.source_errors import refuse_sources_that_cannot_be_built, refuse_wrong_sources
from lightning_gpuaug.data import ImageDataModule

PARSER_MODE = "gpuaug_yaml"
set_loader(PARSER_MODE, strict_yaml.load, exceptions=(yaml.YAMLError,))

EXAMPLES = {
    "fit": "gpuaug fit --config configs/imagenet_resnet50.yaml --data.train /data/train --data.val /data/val",
    "validate": "gpuaug validate --config runs/config.yaml --ckpt_path runs/last.ckpt",
    "test": "gpuaug test --config runs/config.yaml --data.test /data/test --ckpt_path runs/last.ckpt",
    "predict": "gpuaug predict --config runs/config.yaml --data.predict /data/new --ckpt_path runs/last.ckpt",
}


_log = logging.getLogger("lightning_gpuaug.config")
_log.addHandler(logging.NullHandler())  # what jsonargparse logs as errors comes again as an exception


class _DroppedArguments(logging.Handler):
    """Say on stderr which arguments a change of class drops; jsonargparse tells only its debug log."""

    @rank_zero_only
    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "discarding init_args" in message:
            print(f"gpuaug: note: {message}", file=sys.stderr)


@contextmanager
def _dropped_arguments_told() -> Iterator[None]:
    teller = _DroppedArguments()
    level, propagate = _log.level, _log.propagate
    _log.addHandler(teller)
    _log.setLevel(logging.DEBUG)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(teller)
        _log.setLevel(level)
        _log.propagate = propagate


class HelpFormatter(DefaultHelpFormatter):
    """Keeps the example on one line, so that it can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example: ") else super()._fill_text(text, width, indent)


class Parser(LightningArgumentParser):
    """A parser whose errors are short, and name the configuration file."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Report `message` and exit with code 2, without the pages of usage that a Trainer's options make."""
        if not self.exit_on_error:
            super().error(message, ex)
        _, *words = getattr(getattr(ex, "subcommand_parser", None), "prog", self.prog).split()
        command = " ".join(word for word in words if not word.startswith("["))  # gpuaug [options] fit
        whole = os.environ.get("GPUAUG_TRACEBACK") == "1"
        report(command, message if whole else one_line(message))
        self.exit(USAGE)

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **kwargs: Any) -> Namespace:  # type: ignore[override]
        """Parse a command line, refusing contradictions; it wins over the files wherever `--config` stands in it."""
        given = sys.argv[1:] if args is None else list(args)
        refuse_conflicts(given)
        parsed: Namespace = super().parse_args(in_order(given), *more, **kwargs)
        return parsed

    def parse_path(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Namespace:
        """Parse a configuration file, refusing keys that are given twice."""
        strict_yaml.read(path)
        parsed: Namespace = super().parse_path(path, *args, **kwargs)
        return parsed

    def instantiate_classes(self, cfg: Namespace, *args: Any, **kwargs: Any) -> Namespace:
        """Build what is configured; a source that cannot be built is named, with the reason."""
        arguments = _image_data_arguments(_of_command(cfg))
        refuse_wrong_sources(arguments)
        try:
            built: Namespace = super().instantiate_classes(cfg, *args, **kwargs)
        except Exception:
            refuse_sources_that_cannot_be_built(arguments)
            raise
        data = _of_command(built).get("data")
        if isinstance(data, ImageDataModule) and "Namespace(class_path=" in repr(data):  # a source, taken for a path
            refuse_sources_that_cannot_be_built(arguments)
        return built


class TrainingCLI(LightningCLI):
    """LightningCLI for `ImageDataModule` and `Classifier`, or any other data module and model.

    - `data` is an `ImageDataModule` and `model` a `Classifier` unless a `class_path` says otherwise.
    - The model's `num_classes` is the data's; another number written by the user is an error.
    - `Throughput` watches every run. Its options are under `throughput:`, which no `callbacks` list replaces.
    - Only rank 0 writes `config.yaml`, beside the logs, and it reproduces the run.
    """

    def __init__(self, args: ArgsType = None, run: bool = True) -> None:
        """Parse, build and, with `run`, start. See `lightning.pytorch.cli.LightningCLI`."""
        settings = {
            "parser_mode": PARSER_MODE,
            "logger": _log,
            "formatter_class": HelpFormatter,
            "allow_abbrev": False,  # --trainer.max_epoch beside --trainer.max_epochs would be lost without a word
        }
        parser_kwargs: dict[str, Any] = {"prog": "gpuaug", **settings}
        for command, example in EXAMPLES.items():
            parser_kwargs[command] = {"epilog": f"example: {example}", **settings}
        super().__init__(
            LightningModule,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            parser_class=Parser,
            parser_kwargs=parser_kwargs,
            save_config_kwargs={"overwrite": True},
            auto_configure_optimizers=False,
            args=args,
            run=run,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Set the defaults, add the monitors that are always present, link the number of classes."""
        parser.set_defaults(
            {"data": {"class_path": _path(ImageDataModule)}, "model": {"class_path": _path(Classifier)}}
        )
        parser.add_lightning_class_args(Throughput, "throughput")
        parser.link_arguments(
            "data.num_classes",
            "model.init_args.num_classes",
            compute_fn=self._agreed_num_classes,
            apply_on="instantiate",
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse, and remember what the user wrote apart from what is a default."""
        given = sys.argv[1:] if args is None else args
        if not isinstance(given, list):
            raise TypeError(f"args must be a list of str, got {type(given).__name__}")
        if given and given[0] in EXAMPLES:
            parser.prog = f"gpuaug {given[0]}"  # what it finds wrong as a whole is told of this command
        self.config = parser.parse_args(given)
        with _dropped_arguments_told():
            written = parser.parse_args(given, defaults=False)
        self._written = _of_command(written)
        self._checkpoint = self._read_checkpoint()

    def _read_checkpoint(self) -> Checkpoint | None:
        """What is used of `ckpt_path`, read before LightningCLI reads it, which shows how torch fails at it."""
        path = self._configured("ckpt_path")
        return None if path is None else read_checkpoint(str(path))

    def _agreed_num_classes(self, num_classes: int) -> int:
        if self._checkpoint is not None and self._checkpoint.num_classes is not None and not self._trains_on_data():
            return self._checkpoint.num_classes  # the data to test or predict need not have every class, or labels
        written = self._written.get("model.init_args.num_classes")
        if written is not None and written != num_classes:
            raise UsageError(
                f"model.num_classes is {written} in the configuration but the training data has {num_classes} classes; "
                "remove model.num_classes (it follows the data) or point data.train at the right folder"
            )
        return num_classes

    def before_instantiate_classes(self) -> None:
        """Refuse what would be lost or doubled without a word."""
        self._refuse_model_unlike_checkpoint()
        self._refuse_second_throughput()

    def _refuse_model_unlike_checkpoint(self) -> None:
        # LightningCLI has by now put the checkpoint's hyperparameters over what the user wrote.
        arguments = self._written.get("model.init_args")
        for key, written in arguments.items() if arguments else ():
            used = self._configured(f"model.init_args.{key}")
            if written != used:
                raise UsageError(
                    f"model.{key} is {written!r} in the configuration but {used!r} in the checkpoint "
                    f"{self._configured('ckpt_path')}; remove it, the checkpoint's model is the one that is loaded"
                )

    def _refuse_second_throughput(self) -> None:
        listed = self._configured("trainer.callbacks") or []
        for callback in listed if isinstance(listed, list) else [listed]:
            if str(callback.get("class_path", "")).rpartition(".")[2] == Throughput.__name__:
                raise UsageError(
                    "Throughput is always present; set its options under `throughput:`, not trainer.callbacks"
                )

    def instantiate_classes(self) -> None:
        """Build data, model and trainer; what they refuse is the configuration's fault."""
        try:
            super().instantiate_classes()
        except Exception as error:
            message = message_to_user_behind(error)
            if message is None:
                raise
            raise UsageError(str(message)) from error
        self._refuse_other_image_size()

    def _refuse_other_image_size(self) -> None:
        """Refuse images of a size that the network does not take: it would say so with its first batch."""
        data, network = self.datamodule, getattr(self.model, "network", None)
        embedding = getattr(network, "patch_embed", None)  # how timm's transformers say it
        size = getattr(embedding, "img_size", None)
        if not isinstance(data, ImageDataModule) or not isinstance(self.model, Classifier) or not size:
            return
        if getattr(embedding, "strict_img_size", False) and tuple(size) != (data.image_size, data.image_size):
            raise UsageError(
                f"data.image_size is {data.image_size} but {self.model.hparams['model']} takes images of "
                f"{size[0]}; set data.image_size to that, or model.model_args to {{img_size: {data.image_size}}}"
            )

    def _trains_on_data(self) -> bool:
        """Whether training data, whose classes the model must have, is configured (or may be: another data module)."""
        arguments = self._configured("data.init_args")
        return arguments is None or "train" not in arguments or arguments["train"] is not None

    def _configured(self, key: str) -> Any:
        return _of_command(self.config).get(key)

    def predict(self, **kwargs: Any) -> None:
        """Run `Trainer.predict`; a `Classifier`'s predictions are written to `predictions.csv`, one file a rank."""
        data = self.datamodule
        if not isinstance(self.model, Classifier) or not isinstance(data, ImageDataModule):
            self.trainer.predict(**kwargs)
            return
        if isinstance(self.trainer.strategy.launcher, _MultiProcessingLauncher):
            raise UsageError(
                f"trainer.strategy {self._configured('trainer.strategy')!r} forks or spawns its processes, and their "
                "predictions do not come back to be written; give --trainer.strategy=ddp"
            )
        batches = self.trainer.predict(**kwargs) or []
        if kwargs.get("return_predictions") is False:  # a callback has them
            return
        rank, several = self.trainer.global_rank, self.trainer.world_size > 1
        folder = Path(self.trainer.log_dir or self.trainer.default_root_dir)
        path = folder / (f"predictions-rank{rank}.csv" if several else "predictions.csv")
        rows = write_predictions(path, batches, data.sample_name, data.classes)
        print(f"{rows} predictions written to {path}")


def _image_data_arguments(cfg: Namespace) -> Namespace | None:
    """Arguments of `data`, if it is an `ImageDataModule`: those of others mean what they like."""
    module, _, name = (cfg.get("data.class_path") or "").rpartition(".")
    given = getattr(importlib.import_module(module), name, None) if module else None
    ours = isinstance(given, type) and issubclass(given, ImageDataModule)
    return cfg.get("data.init_args") if ours else None


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def main(args: list[str], run: bool = True) -> Any:
    """Run `args` (the command's name first); see `lightning_gpuaug.cli.main`."""
    if not run:
        return TrainingCLI(args[1:], run=False)
    return run_command(args[0], lambda: _run(args))


def _in_process_group() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextmanager
def _process_group_left() -> Iterator[None]:
    """Destroy the process group that a run has made, once it has ended well.

    Lightning does so for NCCL alone. A thread of gloo's may hold tensors that Python knows while Python ends, and a
    rank that has done all its work is aborted then (pytorch/pytorch#179291).
    """
    before = _in_process_group()
    yield
    if not before and _in_process_group():
        dist.destroy_process_group()


def _run(args: list[str]) -> int:
    try:
        with warnings.catch_warnings():
            if args[0] != "fit":  # which may begin without one
                warnings.filterwarnings("error", message=".*there is no last checkpoint available")
            with _process_group_left():
                TrainingCLI(args)
    except Exception as error:
        if isinstance(error, ValueError | UserWarning) and "(ckpt_path=" in str(error):  # what the Trainer finds
            raise UsageError(f"ckpt_path: {error}") from error
        message = message_to_user_behind(error)
        if message is None or not _from_set_up(error):
            raise
        raise UsageError(str(message)) from error
    return OK


def _of_command(config: Namespace) -> Namespace:
    """The part of a configuration that is its command's; all of it where no command is run."""
    part: Namespace = config.get(str(config.get("subcommand")), config)
    return part


def _from_set_up(error: BaseException) -> bool:
    """Whether the data module refused what it was configured with, before the first batch."""
    set_up = {ImageDataModule.setup.__code__, ImageDataModule.load_state_dict.__code__}
    return any(frame.f_code in set_up for frame, _ in traceback.walk_tb(error.__traceback__))
