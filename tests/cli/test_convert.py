"""`gpuaug convert`: exit codes, what it prints, and being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightning_gpuaug import sources
from lightning_gpuaug.cli import main
from tests.tools.broken import break_tree, jpeg, write_tree


def test_whole_is_0_and_json_says_what_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path / "train")
    args = ["convert", str(tmp_path / "train"), str(tmp_path / "out"), "--to", "webdataset", "--shard-images", "4"]
    assert main([*args, "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "6 images in 2 shards" in out
    assert f'WebDataset("{tmp_path / "out"}/train-{{000000..000001}}.tar")' in out
    assert main([*args, "--workers", "1", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["kept"], done["samples"], done["complete"]) == (2, 6, True)


@pytest.mark.parametrize("to", ["webdataset", "tfrecord"])
@pytest.mark.parametrize("images", [3, 9])
@pytest.mark.parametrize(
    "folder", ["out", "out[1]", "out*", "?ut", "out{a,b}", "{1..3}", "{a", 'o"u"t', "o'u\\t", "~", "o\nut", "{a}*[b]"]
)
def test_the_closing_line_is_python_that_means_all_shards(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    to: str,
    images: int,
    folder: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path / "index"))
    write_tree(tmp_path / "train", good=2)
    for name in ("out", "outer", folder):  # some of which a pattern would mean too
        args = ["convert", "train", name, f"--to={to}", f"--shard-images={images}", "--workers=1"]
        assert main(args) == 0
    line = capsys.readouterr().out.rstrip("\n").splitlines()[-1]
    made = eval(line.removeprefix("train on them: "), {"ImageDataModule": lambda train: train, **vars(sources)})
    assert len(made) == 4
    assert {Path(file).parent.resolve() for file in made.files} == {tmp_path / folder}


def test_bad_images_are_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path / "train")
    break_tree(tmp_path / "train")
    (tmp_path / "train/a/dangling.jpg").unlink()
    args = ["convert", str(tmp_path / "train"), str(tmp_path / "out"), "--to=webdataset", "--workers=1"]
    assert main(args) == 1
    out = capsys.readouterr().out
    assert "a/half.jpg: truncated JPEG" in out
    assert "stopped at 6 bad image(s)" in out
    assert main([*args, "--on-bad", "skip"]) == 1
    assert "8 images in 1 shards" in capsys.readouterr().out
    bad = tmp_path / "bad.txt"
    assert main(["scan", str(tmp_path / "train"), "--exclude-list", str(bad)]) == 1
    assert main([*args, "--exclude", str(bad), "--prefix", "clean"]) == 0


def test_validation_shards_take_the_class_map_of_the_training_shards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path / "train", classes=("a", "b", "c"))
    write_tree(tmp_path / "val", classes=("a", "c"))
    out, more = str(tmp_path / "out"), ["--to=webdataset", "--workers=1"]
    assert main(["convert", str(tmp_path / "train"), out, *more]) == 0
    with pytest.warns(UserWarning, match="no samples of class 'b'"):
        assert main(["convert", str(tmp_path / "val"), out, *more, "--classes", f"{out}/train-classes.json"]) == 0
    assert json.loads((tmp_path / "out/val-classes.json").read_text()) == {"a": 0, "b": 1, "c": 2}
    write_tree(tmp_path / "other", classes=("d",))
    assert main(["convert", str(tmp_path / "other"), out, *more, "--classes", f"{out}/train-classes.json"]) == 1
    assert "class 'd' not among the 3 training classes" in capsys.readouterr().err
    (tmp_path / "map.json").write_text('{"a": 0, "b": 2}')
    assert main(["convert", str(tmp_path / "val"), out, *more, "--classes", str(tmp_path / "map.json")]) == 2
    assert "must map class names to 0..1, each once" in capsys.readouterr().err


def test_class_numbers_are_what_they_are_under_the_class_map_of_class_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path, classes=("0", "10"))
    (tmp_path / "train.txt").write_text("0/0.jpg 0\n0/1.jpg 4\n10/0.jpg 10\n")
    (tmp_path / "val.txt").write_text("0/2.jpg 4\n10/1.jpg 10\n")
    out, more = f"{tmp_path}/out", ["--to=webdataset", "--workers=1"]
    assert main(["convert", f"{tmp_path}/train.txt", out, *more]) == 0
    classes = ["--classes", f"{out}/train-classes.json"]
    assert main(["convert", f"{tmp_path}/val.txt", out, *more, *classes]) == 0
    val = sources.WebDataset(f"{out}/val-*", index_dir=tmp_path / "index")
    assert (val.targets.tolist(), val.classes) == ([4, 10], None)
    capsys.readouterr()
    (tmp_path / "names.txt").write_text("0/2.jpg cat\n")
    for place, name in ((tmp_path, "0"), (tmp_path / "names.txt", "cat")):
        assert main(["convert", str(place), str(tmp_path.parent / "other"), *more, *classes]) == 2
        assert f"--classes: {out}/train-classes.json names no classes, as of a list of" in (
            err := capsys.readouterr().err
        )
        assert f"the labels of the source are names, such as {name!r}; give a class map that has them" in err


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["{}/none", "{}/out", "--to=tfrecord"], "no such folder or list"),
        (["{}/train", "{}/out"], "--to"),
        (["{}/train", "{}/out", "--to=zip"], "invalid choice"),
        (["{}/train", "{}/out", "--to=tfrecord", "--shard-bytes=many"], "must be a size such as 256M"),
        (["{}/train", "{}/out", "--to=tfrecord", "--quality=101"], "must be a whole number in 1..100"),
        (["{}/train", "{}/out", "--to=tfrecord", "--prefix=a/b"], "--prefix"),
        (["{}/train", "{}/train/out", "--to=tfrecord"], "must not lie inside of the source"),
        (["{}/x.rec", "{}/out", "--to=tfrecord"], "must be a folder or a list of images, got recordio data"),
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], complaint: str) -> None:
    write_tree(tmp_path / "train", good=1)
    (tmp_path / "x.rec").touch()
    assert main(["convert", *(arg.format(tmp_path) for arg in args)]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path / "train", good=1)
    (tmp_path / "file").touch()
    assert main(["convert", f"{tmp_path}/train", f"{tmp_path}/file/out", "--to=tfrecord"]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line == f"gpuaug convert: error: the folder {tmp_path}/file/out cannot be made: Not a directory"


def _alive(folder: Path) -> list[str]:
    """Command lines of processes that have a file open below `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(link.startswith(str(folder)) for link in links):
            found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


def test_killed_in_the_middle_it_continues_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "train/a").mkdir(parents=True)
    for i in range(90):
        (tmp_path / f"train/a/{i:02d}.jpg").write_bytes(jpeg(i, (400, 500)))
    command = [sys.executable, "-m", "lightning_gpuaug.cli", "convert", str(tmp_path / "train")]
    options = ["--to=webdataset", "--shard-images=3", "--resize=200", "--workers=2"]
    out = tmp_path / "out"
    with subprocess.Popen([*command, str(out), *options], stdout=subprocess.DEVNULL) as running:
        journal = out / ".train-journal.jsonl"
        while running.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 3):
            time.sleep(0.01)
        assert running.poll() is None, "it was done before it could be killed"
        running.send_signal(signal.SIGKILL)
        running.wait()
    finished = {json.loads(line)["name"] for line in journal.read_bytes().splitlines()[1:] if line.endswith(b"}")}
    assert 2 <= len(finished) < 30
    times = {name: (out / name).stat().st_mtime_ns for name in finished}
    deadline = time.monotonic() + 20
    while _alive(out) and time.monotonic() < deadline:  # the workers see that they are alone
        time.sleep(0.05)
    assert _alive(out) == []

    again = subprocess.run([*command, str(out), *options, "--json"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    done = json.loads(again.stdout)
    assert done["kept"] == len(finished)
    assert done["samples"] == 90
    assert {name: (out / name).stat().st_mtime_ns for name in finished} == times
    assert main(["convert", str(tmp_path / "train"), str(tmp_path / "whole"), *options[:3], "--workers=1"]) == 0
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir()
    }


def test_what_is_said_of_kept_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path / "train")
    args = ["convert", f"{tmp_path}/train", f"{tmp_path}/out", "--to=webdataset", "--shard-images=2", "--workers=1"]
    assert main(args) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(" s, every record read back")
    assert main(args) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert "3 of them finished earlier" in line
    assert line.endswith(" s, every kept shard compared with its checksum")
    (tmp_path / "train/a/0.jpg").write_bytes(jpeg())
    assert main(args) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert "2 of them finished earlier" in line
    assert line.endswith(" s, every new record read back, every kept shard compared with its checksum")
    (tmp_path / "train/a/0.jpg").write_bytes(b"")
    assert main([*args, "--overwrite"]) == 1
    assert "the same command without --overwrite continues" in capsys.readouterr().out
