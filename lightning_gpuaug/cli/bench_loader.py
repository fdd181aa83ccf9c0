"""`gpuaug bench loader`: images per second of the configured loader, of its stages and of others; `--tune`."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gpuaug.cli.bench_output import Lines, add_output_options, require_places
from lightning_gpuaug.cli.bench_tune import tuned
from lightning_gpuaug.cli.errors import OK, UsageError, run_command
from lightning_gpuaug.cli.progress import step_bar

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from lightning_gpuaug.bench.environment import Environment
    from lightning_gpuaug.cli.data_config import DataParser
    from lightning_gpuaug.data import ImageDataModule

PEERS = ("torchvision", "timm", "dali")


def _parser() -> DataParser:
    from lightning_gpuaug.cli.data_config import data_parser

    parser = data_parser(
        "bench loader",
        "Images per second of the configured training data: the whole loader, its stages, and other loaders over the "
        "same files, measured in turns; the ratio is that of the medians. --tune searches num_threads, prefetch, "
        "hw_decoder_load and decode within --budget seconds and writes what it found as a YAML overlay. Without "
        "--config and --data.train it measures made-up JPEGs (500 x 375).",
        "gpuaug bench loader --config configs/imagenet_resnet50.yaml --data.train /data/train --chart loader.png",
    )
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto", help="where batches must arrive")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each loader is measured, in turns")
    parser.add_argument("--workers", type=int, help="processes of the Python loaders (default: the cores, at most 16)")
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, default=list(PEERS), help="others to measure; nothing behind it: none"
    )
    parser.add_argument("--no-stages", action="store_true", help="leave the stages out")
    parser.add_argument("--tune", action="store_true", help="search better settings, and only that")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds that --tune may take")
    parser.add_argument("--overlay", type=str, default="tuned.yaml", help="the file that --tune writes")
    add_output_options(parser)
    return parser


def _check(config: Namespace) -> None:
    for name, least in (("seconds", 0.0), ("budget", 0.0)):
        if not least < config[name] < float("inf"):
            raise UsageError(f"--{name} must be above {least:g}, got {config[name]}")
    if config.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, got {config.rounds}")
    if config.workers is not None and config.workers < 0:
        raise UsageError(f"--workers must be 0 or more, got {config.workers}")
    overlay = config.overlay if config.tune else None
    require_places({"--json": config.json, "--chart": config.chart, "--overlay": overlay})


def training_module(parser: DataParser, config: Namespace) -> ImageDataModule:
    """The data module of a configuration, with its training data alone, whole batches only.

    Raises:
        UsageError: the data is another kind of data module, or has no files.
    """
    from jsonargparse import Namespace

    from lightning_gpuaug.data import STAGES, ImageDataModule

    arguments = config.get("data.init_args")
    if arguments is None or "train_recipe" not in arguments:
        raise UsageError(f"data must be an ImageDataModule, got {config.get('data.class_path')}")
    for stage in STAGES:
        if stage != "train" and stage in arguments:
            arguments[stage] = None
    if arguments.get("train") is None:
        if config.get("config"):
            raise UsageError("no training data: give --data.train a folder of class folders")
        length = made_up_images(arguments.get("batch_size", 64))
        arguments["train"] = Namespace(  # type: ignore[no-untyped-call]
            class_path="lightning_gpuaug.sources.synthetic.Synthetic",
            init_args=Namespace(length=length),  # type: ignore[no-untyped-call]
        )
    arguments["drop_last"] = True  # a rate of whole batches
    data = parser.instantiate_classes(config).data
    if not isinstance(data, ImageDataModule):
        raise UsageError(f"data must be an ImageDataModule, got {type(data).__name__}")
    if getattr(data._given["train"], "cached", False):
        raise UsageError('nothing to load: Synthetic(mode="cached") has no files')
    seed = config.get("seed_everything")
    if data.seed is None and isinstance(seed, int) and not isinstance(seed, bool):
        data.seed = seed
    return data


def made_up_images(batch_size: int) -> int:
    """How many JPEGs to make up where there is no data: some batches of them."""
    return min(4096, max(512, 8 * batch_size))


def run(parser: DataParser, config: Namespace, say: Lines) -> None:
    """Measure, or tune, and publish."""
    from lightning_gpuaug.bench.environment import environment, one_line
    from lightning_gpuaug.bench.loader import device_of

    data = training_module(parser, config)
    try:
        device = device_of(config.device)
        data.setup_for(device)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    facts = environment()
    say(one_line(facts))
    try:
        found = tuned(data, device, config, facts, say) if config.tune else _measure(data, config, facts, say)
    finally:
        data.teardown("bench")
    say.publish(found)
    if config.chart is not None:
        _draw(found, Path(config.chart))
        say(f"wrote {config.chart}")


def _measure(data: ImageDataModule, config: Namespace, facts: Environment, say: Lines) -> dict[str, Any]:
    from lightning_gpuaug.bench.loader import OURS, compare, described
    from lightning_gpuaug.bench.loader_peers import described as peer_line
    from lightning_gpuaug.bench.loader_stages import STAGES, bounded_by, stage_rates
    from lightning_gpuaug.bench.report import document, table

    workers = config.workers if config.workers is not None else min(16, len(os.sched_getaffinity(0)))
    own, settings = described(data)
    loader = data.train_dataloader()
    stages: dict[str, list[float]] = {}
    of_stages = 0 if config.no_stages else len(STAGES)
    without: dict[str, str] = {}

    def told(name: str, rate: float) -> None:
        say(f"{name:24} {rate:12,.0f} img/s")

    with step_bar((1 + len(config.peers) + of_stages) * config.rounds) as doing:
        rates, missing = compare(
            data, config.peers, workers=workers, seconds=config.seconds, rounds=config.rounds, doing=doing, told=told
        )
        for _ in range(config.rounds if of_stages else 0):
            for name, found in stage_rates(loader, config.seconds, doing):
                if isinstance(found, str):
                    without[name] = found
                else:
                    stages.setdefault(name, []).append(found)
                    told(name, found)
    base = rates[OURS].median
    lines = {name: peer_line(name, workers, loader.decoding.num_threads) for name in rates if name != OURS}
    rows: list[dict[str, Any]] = []
    for name, rounds in [*((name, rate.rounds) for name, rate in rates.items()), *stages.items()]:
        middle = statistics.median(rounds)
        rows.append(
            {
                "what": own if name == OURS else lines.get(name, name),
                "kind": "loader" if name == OURS else "stage" if name in stages else "peer",
                "img_per_s": middle,
                "rounds": list(rounds),
                "ours_over_this": base / middle,
            }
        )
    missing |= {name: reason for name, reason in without.items() if name not in stages}
    shape = "RandomResizedCrop" if data.train_recipe.crop is not None else "resize"
    title = (
        f"Loading {settings['images']:,} images, {shape} {settings['image_size']}, batch {settings['batch_size']}, "
        f"to {settings['device']}"
    )
    cells = [
        [row["what"], row["img_per_s"], min(row["rounds"]), max(row["rounds"]), f"{row['ours_over_this']:.2f} x"]
        for row in rows
    ]
    say(f"\n{title}\n{table(['', 'img/s', 'least', 'most', 'ours / this'], cells)}")
    for name, reason in missing.items():
        say(f"{name}: {reason}")
    bound = bounded_by(base, {name: statistics.median(rounds) for name, rounds in stages.items()}) if stages else None
    if bound is not None:
        say(bound)
    if data.train_recipe.needs_program and len(rates) > 1:
        say("the others make a crop and a flip only; ours the whole recipe")
    return document(title, facts, settings, rows) | {"bound": bound, "missing": missing}


def _draw(found: dict[str, Any], path: Path) -> None:
    from lightning_gpuaug.bench.chart import Bar, Panel, bar_chart
    from lightning_gpuaug.bench.environment import machine

    best = found.get("best")
    bars: dict[bool, list[Bar]] = {False: [], True: []}
    for row in found["rows"]:
        stands_out = row["kind"] in ("loader", "stage") or (
            best is not None and all(row[name] == best[name] for name in best)
        )
        bar = Bar(row["what"], row["img_per_s"], f"{row['img_per_s']:,.0f}", stands_out)
        bars[row["kind"] == "stage"].append(bar)
    panels = [Panel(bars[False], "images per second, more is better")]
    if bars[True]:
        panels.append(Panel(bars[True], "stages of ours: images per second", log=True))
    bar_chart(panels, path, title=found["title"], note=machine(found["environment"]))


def main(args: list[str]) -> int:
    """Run `gpuaug bench loader` with `args` and return the exit code."""
    return run_command("bench loader", lambda: _run(args))


def _run(args: list[str]) -> int:
    parser = _parser()
    config = parser.parse_args(args)
    _check(config)
    run(parser, config, Lines(config.json))
    return OK
