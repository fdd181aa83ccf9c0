"""`gpuaug bench`: the documents, the overlay, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.bench.tune import Settings, overlay
from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.bench_output import require_places
from lightning_gpuaug.cli.digits import DigitsTree

QUICK = ["--data.batch_size=8", "--data.image_size=24", "--data.num_threads=1", "--device=cpu", "--seconds=0.01"]
DOCUMENT = {"schema", "title", "environment", "settings", "rows"}


def bench(*args: str) -> int:
    code: int = main(["bench", *args])
    return code


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """What `--json` prints, when it prints nothing else."""
    capsys.readouterr()
    assert bench(*args, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(found) >= DOCUMENT
    assert found["schema"] == 1
    assert found["environment"]["cpus"] >= 1
    return found


def error_of(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    capsys.readouterr()
    code = bench(*args)
    return code, capsys.readouterr().err.strip().splitlines()[-1]


# ---- augment -----------------------------------------------------------------------------------------------------


def test_augment_document_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--batch=2", "--size=16", "--seconds=0", "--device=cpu", "--peers", "torchvision", "kornia"]
    found = printed(capsys, "augment", *tiny, f"--chart={tmp_path / 'new' / 'a.png'}")
    rows = {row["what"]: row for row in found["rows"]}
    assert found["settings"] == {"device": "cpu", "batch": 2, "size": 16}
    ours, theirs = rows["ours: + RandAugment(2, 9)"], rows["torchvision, a sample at a time: + RandAugment(2, 9)"]
    assert set(ours) == {
        "what", "ours", "median_us", "p10_us", "p90_us", "host_us", "draw_us", "peak_mib", "counted_bytes", "copy_us",
    }  # fmt: skip
    assert found["factors"][theirs["what"]] == pytest.approx(theirs["median_us"] / ours["median_us"])
    assert set(found["missing"]) <= {"kornia"}
    assert set(found["missing"]) == ({"kornia"} if not any("kornia" in name for name in rows) else set())
    with Image.open(tmp_path / "new" / "a.png") as chart:
        assert chart.height > 40 * len(rows)


def test_augment_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(capsys, "augment", "--batch=3", "--device=cpu") == (
        2, "gpuaug bench augment: error: --batch must be even, for mixing pairs the images, got 3"
    )  # fmt: skip
    assert bench("augment", "--size=2") == 2
    assert bench("augment", "--seconds=nan") == 2


# ---- loader ------------------------------------------------------------------------------------------------------


def test_loader_document_and_chart(tree: DigitsTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "l.png"
    options = [f"--data.train={tree.train}", *QUICK, "--rounds=2", "--workers=0", f"--chart={chart}"]
    found = printed(capsys, "loader", *options)
    kinds = [row["kind"] for row in found["rows"]]
    assert kinds == ["loader", "peer", "peer", "peer", *["stage"] * 5]
    for row in found["rows"]:
        assert set(row) == {"what", "kind", "img_per_s", "rounds", "ours_over_this"}
        assert len(row["rounds"]) == 2
        assert row["img_per_s"] > 0
        assert row["ours_over_this"] == pytest.approx(found["rows"][0]["img_per_s"] / row["img_per_s"])
    assert found["settings"]["batch_size"] == 8
    assert found["settings"]["decode"] == "cpu"
    assert found["bound"]
    assert found["missing"] == {}
    with Image.open(chart) as image:
        assert image.width >= 1500


def test_loader_reads_the_training_configuration(
    tree: DigitsTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Model, trainer and the other stages are not its business; the data's settings are."""
    config = tmp_path / "c.yaml"
    text = f"data: {{train: {tree.train}, val: /nowhere, batch_size: 4, image_size: 16, num_threads: 1}}\n"
    config.write_text(f"{text}model: {{model: resnet50}}\ntrainer: {{accelerator: gpu}}\n")
    options = [f"--config={config}", *QUICK[3:], "--rounds=1", "--no-stages", "--peers"]
    found = printed(capsys, "loader", *options, "--data.batch_size=6")
    assert [row["kind"] for row in found["rows"]] == ["loader"]
    assert (found["settings"]["batch_size"], found["settings"]["image_size"]) == (6, 16)


def test_loader_makes_images_up_without_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightning_gpuaug.cli import bench_loader

    monkeypatch.setattr(bench_loader, "made_up_images", lambda batch: 16)
    found = printed(capsys, "loader", *QUICK, "--rounds=1", "--no-stages", "--peers")
    assert found["settings"]["images"] == 16


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--rounds=0"], 2, "--rounds must be at least 1, got 0"),
        (["--seconds=0"], 2, "--seconds must be above 0, got 0.0"),
        (["--budget=-1"], 2, "--budget must be above 0, got -1.0"),
        (["--workers=-1"], 2, "--workers must be 0 or more, got -1"),
        (["--data.train=/no/such"], 2, "no such folder: /no/such"),
        (["--data.train={class_path: Synthetic, init_args: {mode: cached}}"], 2, "nothing to load: Synthetic"),
        (["--data.batch_size=1000"], 2, "0 steps"),
        (["--nope=1"], 2, "nope"),
        (["--config=/no/such.yaml"], 2, "config: File does not exist: '/no/such.yaml'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_loader_refuses(
    options: list[str], code: int, line: str, tree: DigitsTree, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [] if options[0].startswith("--data.train") else [f"--data.train={tree.train}"]
    got, error = error_of(capsys, "loader", *data, "--device=cpu", *options)
    assert error.startswith("gpuaug bench loader: error: ")
    assert line in error
    assert got == code


# ---- tune --------------------------------------------------------------------------------------------------------


def test_tune_writes_an_overlay_that_fit_takes(
    tree: DigitsTree, tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "tuned.yaml"
    options = [f"--data.train={tree.train}", *QUICK, "--tune", "--budget=2", f"--overlay={path}"]
    options.remove("--data.num_threads=1")
    found = printed(capsys, "loader", *options, "--data.num_threads=2", "--data.prefetch=7")
    assert set(found["best"]) == {"num_threads", "prefetch"}
    assert found["rows"][0]["num_threads"] == 2
    assert found["rows"][0]["prefetch"] == 7
    assert found["after_img_per_s"] >= 0.97 * found["before_img_per_s"]
    assert yaml.safe_load(path.read_text()) == {"data": found["best"]}
    base = tmp_path / "base.yaml"
    base.write_text("data: {num_threads: 9, prefetch: 9, image_size: 40}\n")
    others = [option for option in tiny if "image_size" not in option]
    data = main(["fit", f"--config={base}", f"--config={path}", *others], run=False).datamodule
    assert isinstance(data, ImageDataModule)
    assert (data.num_threads, data.prefetch) == (found["best"]["num_threads"], found["best"]["prefetch"])
    assert data.image_size == 40
    assert printed(capsys, "loader", *options)["overlay"] == str(path)  # its own file may be written again


def test_tune_does_not_overwrite_another_file(
    tree: DigitsTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("data: {batch_size: 3}\n")
    code, error = error_of(capsys, "loader", f"--data.train={tree.train}", *QUICK, "--tune", f"--overlay={path}")
    assert code == 2
    assert "is no such overlay" in error
    assert path.read_text() == "data: {batch_size: 3}\n"


def test_the_overlay_changes_the_data_module(tmp_path: Path, tiny: list[str]) -> None:
    path = tmp_path / "tuned.yaml"
    names = ["decode", "hw_decoder_load", "num_threads", "prefetch"]
    path.write_text(overlay(Settings("gpu", 0.75, 7, 3), names, ["found here", ""]))
    base = tmp_path / "base.yaml"
    base.write_text("data: {num_threads: 2, prefetch: 5, hw_decoder_load: 0.1, image_size: 40}\n")
    options = [option for option in tiny if "image_size" not in option]
    data = main(["fit", f"--config={base}", f"--config={path}", *options], run=False).datamodule
    assert (data.decode, data.hw_decoder_load, data.num_threads, data.prefetch) == ("gpu", 0.75, 7, 3)
    assert data.image_size == 40  # the rest is the base file's
    path.write_text(overlay(Settings("cpu", 0.75, 7, 3), names, []))
    assert "hw_decoder_load" not in path.read_text()
    data = main(["fit", f"--config={base}", f"--config={path}", *options], run=False).datamodule
    assert (data.decode, data.hw_decoder_load) == ("cpu", 0.1)


# ---- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "option"),
    [(what, option) for what in ("augment", "loader") for option in ("--chart", "--json")] + [("loader", "--overlay")],
)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file/x", "Not a directory"),
        ("file/new/x", "Not a directory"),
        ("folder", "Is a directory"),
        ("read-only", "Permission denied"),
        ("", "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    what: str, name: str, reason: str, option: str, tree: DigitsTree, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "read-only").touch()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "read-only" not in str(path) and allowed(path, mode))
    monkeypatch.setattr(f"lightning_gpuaug.cli.bench_{what}.run", lambda *_: pytest.fail("was run"))
    before = sorted(tmp_path.rglob("*"))
    path = str(tmp_path / name) if name else ""
    options = [f"--data.train={tree.train}"] if what == "loader" else []
    code, error = error_of(capsys, what, *options, *["--tune"] * (option == "--overlay"), f"{option}={path}")
    rule = f"{option} must be a file that can be written to, got {path or repr(path)} ({reason})"
    assert (code, error) == (2, f"gpuaug bench {what}: error: {rule}")
    assert sorted(tmp_path.rglob("*")) == before


def test_places_that_are_no_new_files(tmp_path: Path) -> None:
    """What is there keeps its content; a link that leads nowhere yet, a pipe and a device are fine."""
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("old", "link", "pipe"):
        require_places({"--json": str(tmp_path / name)})
    require_places({"--json": "-", "--chart": None, "--overlay": os.devnull})
    assert (tmp_path / "old").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old", "pipe"]


# ---- usage -------------------------------------------------------------------------------------------------------


def test_what_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench() == 2
    assert bench("--help") == 0
    out = capsys.readouterr().out
    assert "augment" in out
    assert "loader" in out
    assert error_of(capsys, "nope") == (
        2, "gpuaug bench: error: what to measure must be one of augment, loader, got 'nope'"
    )  # fmt: skip


@pytest.mark.parametrize("what", ["augment", "loader"])
def test_help_has_an_example(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(what, "--help") == 0
    assert f"example: gpuaug bench {what}" in capsys.readouterr().out
