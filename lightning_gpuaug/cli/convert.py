"""`gpuaug convert`: pack a folder of images into shards."""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuaug.cli.errors import FOUND_PROBLEMS, OK, UsageError, run_command

if TYPE_CHECKING:
    from lightning_gpuaug.sources import Source
    from lightning_gpuaug.tools.convert import Converted
    from lightning_gpuaug.tools.shard_files import Format

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def _bytes(text: str) -> int:
    """`256M` in bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None or int(match[1]) < 1:
        raise argparse.ArgumentTypeError(f"must be a size such as 256M or 1G, got {text!r}")
    return int(match[1]) * _UNITS[match[2].upper()]


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number in {least}..{most}, got {text!r}")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug convert",
        description="Pack images into TFRecord or WebDataset shards. Files are copied as they are unless --resize or "
        "--quality asks for other pixels. Every shard is read back before it gets its name; after an interruption, "
        "even kill -9, the same command continues: it keeps the shards whose checksums and images are as they were, "
        "and makes the others. The same images and options give the same shards, byte by byte.",
        epilog="example: gpuaug convert /data/train /data/shards --to webdataset --shuffle 0 --resize 256",
        allow_abbrev=False,
    )
    count = _number(1, 2**40)
    parser.add_argument("source", help="a folder of class folders, or a list (.txt, .csv, .tsv) of files and labels")
    parser.add_argument("folder", type=Path, help="where the shards go; made if it is not there")
    parser.add_argument("--to", choices=("webdataset", "tfrecord"), required=True, help="format of the shards")
    parser.add_argument("--prefix", help="first part of the shards' names (default: the source's name)")
    parser.add_argument("--shard-images", type=count, metavar="N", help="images in a shard at most")
    parser.add_argument(
        "--shard-bytes",
        type=_bytes,
        metavar="SIZE",
        help="bytes of the source files in a shard at most, such as 512M (default: 256M, without --shard-images)",
    )
    parser.add_argument(
        "--resize", type=_number(1, 65500), metavar="N", help="make the shorter side N pixels where it is longer (JPEG)"
    )
    parser.add_argument(
        "--quality",
        type=_number(1, 100),
        metavar="Q",
        help="encode every image as a JPEG of this quality, 1..100 "
        "(without it only resized images are encoded anew, with 90)",
    )
    parser.add_argument(
        "--shuffle", type=_number(0, 2**32 - 1), metavar="SEED", help="shuffle the images over all shards by this seed"
    )
    parser.add_argument(
        "--classes",
        type=Path,
        metavar="FILE",
        help="label with this class map, such as train-classes.json of an earlier conversion; for validation images",
    )
    parser.add_argument("--exclude", metavar="FILE", help="leave out what this list names (see gpuaug scan)")
    parser.add_argument(
        "--on-bad",
        choices=("fail", "skip"),
        default="fail",
        help="what a bad image does: stop, or be left out and named (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="make every shard anew, whatever is there under this prefix"
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    return parser


def _source(args: argparse.Namespace) -> Source:
    from lightning_gpuaug.sources import FileList, ImageFolder
    from lightning_gpuaug.tools.shard_contents import find_shards

    path = os.path.expanduser(args.source)
    if not os.path.exists(path):
        raise UsageError(f"no such folder or list: {path}")
    if (shards := find_shards(path)) is not None:
        raise UsageError(f"the source must be a folder or a list of images, got {shards.format} data: {path}")
    source: Source
    if os.path.isdir(path):
        source = ImageFolder(path, exclude=args.exclude or ())
    else:
        source = FileList(path, exclude=args.exclude or ())
    if args.classes is not None:
        source = _under_classes(source, args.classes)
    source.check()
    return source


def _under_classes(source: Source, path: Path) -> Source:
    """The same samples with the labels of a class map.

    The map of a conversion of class numbers is empty: numbers are what they are under it, and names are nothing.
    """
    if classes := _class_list(path):
        return source.with_classes(classes)
    if source.classes is not None:
        raise UsageError(
            f"--classes: {path} names no classes, as of a list of class numbers, and the labels of the source are "
            f"names, such as {source.classes[0]!r}; give a class map that has them"
        )
    return source


def _class_list(path: Path) -> tuple[str, ...]:
    """The class names of a class map, in the order of their labels."""
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--classes: {path} cannot be read: {error}") from error
    if not isinstance(labels, dict) or sorted(labels.values(), key=str) != sorted(range(len(labels)), key=str):
        raise UsageError(f"--classes: {path} must map class names to 0..{max(0, len(labels) - 1)}, each once")
    return tuple(sorted(labels, key=labels.__getitem__))


def run_convert(args: argparse.Namespace) -> Converted:
    """Convert as the parsed options say."""
    from lightning_gpuaug.cli.progress import progress_bar
    from lightning_gpuaug.tools.convert import ConvertOptions, convert

    source = _source(args)
    inside = Path(args.source).expanduser().resolve()
    if inside in (args.folder.resolve(), *args.folder.resolve().parents):
        raise UsageError(
            f"the folder for the shards must not lie inside of the source, got {args.folder} in {args.source}"
        )
    prefix = args.prefix or Path(args.source).expanduser().resolve().stem
    if not re.fullmatch(r"[\w.-]+", prefix) or prefix.startswith("."):
        raise UsageError(f"--prefix must be letters, digits, '_', '-' and '.', got {prefix!r}")
    options = ConvertOptions(
        format=args.to,
        prefix=prefix,
        shard_images=args.shard_images,
        shard_bytes=args.shard_bytes,
        resize=args.resize,
        quality=args.quality,
        shuffle=args.shuffle,
        on_bad=args.on_bad,
        overwrite=args.overwrite,
        processes=args.workers,
    )
    with progress_bar("convert", len(source), "images") as advance:
        return convert(source, args.folder, options, advance)


def _print(done: Converted, to: Format, again: str, seconds: float) -> None:
    for finding in done.bad:
        print(f"{finding.name}: {finding.reason}")
    if not done.complete:
        print(
            f"stopped at {len(done.bad)} bad image(s): repair them, or use --on-bad skip; finished shards are kept and "
            f"{again} continues. `gpuaug scan` finds all bad images at once"
        )
        return
    kept = f", {done.kept} of them finished earlier" if done.kept else ""
    left_out = f", {len(done.bad)} bad image(s) left out" if done.bad else ""
    made = "" if done.kept == done.shards else f"every {'new ' if done.kept else ''}record read back"
    compared = "every kept shard compared with its checksum" if done.kept else ""
    print(
        f"{done.samples:,} images in {done.shards:,} shards ({done.bytes / 2**20:,.1f} MiB{kept}{left_out}) "
        f"in {seconds:.1f} s, {', '.join(filter(None, (made, compared)))}"
    )
    if to == "tfrecord":
        print(f"train on them: ImageDataModule(train=TFRecord({_files(done, to)}))")
        return
    usual = {"jpg", "png"}
    image = "" if usual.issuperset(done.suffixes) else f', image="{";".join(sorted(usual.union(done.suffixes)))}"'
    print(f"train on them: ImageDataModule(train=WebDataset({_files(done, to)}{image}))")


def _files(done: Converted, to: Format) -> str:
    """A Python expression for all shards, whatever the folder's name means in a pattern."""
    from lightning_gpuaug.tools.shard_plan import name_template

    folder = os.path.join(".", done.folder) if done.folder.startswith("~") else done.folder
    if "{" in folder:  # nothing escapes a brace, but names of files that are there are taken as they are
        name = name_template(done.prefix, to, done.shards)
        path = os.path.join(folder.replace("{", "{{").replace("}", "}}"), name)
        return f"[f{_quoted(path)} for i in range({done.shards})]"
    if "*" in done.pattern:
        folder = glob.escape(folder)
    return _quoted(os.path.join(folder, done.pattern))


def _quoted(text: str) -> str:
    """`text` as a Python string in double quotes."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def main(args: list[str]) -> int:
    """Run `gpuaug convert` with `args` and return the exit code."""
    kept = f"interrupted; finished shards are kept, {_again(args)} continues"
    return run_command("convert", lambda: _run(args), interrupted=kept)


def _again(args: list[str]) -> str:
    """What to call after a run that did not come to its end."""
    return "the same command without --overwrite" if "--overwrite" in args else "the same command"


def _run(args: list[str]) -> int:
    begin = time.perf_counter()
    options = _parser().parse_args(args)
    done = run_convert(options)
    if options.json:
        print(json.dumps(asdict(done), indent=2))
    else:
        _print(done, options.to, _again(args), time.perf_counter() - begin)
    return FOUND_PROBLEMS if done.bad else OK
