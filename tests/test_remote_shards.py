"""Record shards in S3: fetched once, and in every way as local ones from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3_server import in_a_process

HEAD = """
import os, subprocess, sys
from pathlib import Path
from lightning_gpuaug import ImageDataModule, RecordIO, TFRecord, WebDataset
from tests import record_files as files
from tests.delivered import assert_alike, two_epochs
from tests.images import numbered
from tests.s3_server import s3_server
folder = Path(sys.argv[1])
jpegs = [Path(path).read_bytes() for path in numbered(folder / "images", 12).paths]
data = folder / "data"
data.mkdir()
for k in range(2):
    part = list(enumerate(jpegs))[6 * k : 6 * k + 6]
    rows = [files.example({"image/encoded": jpeg, "image/class/label": i}) for i, jpeg in part]
    files.write_tfrecord(data / f"{k}.tfrecord", rows)
    members = {f"{i:03}.{end}": content for i, jpeg in part for end, content in (("jpg", jpeg), ("cls", b"%d" % i))}
    files.write_tar(data / f"{k}.tar", members)
    files.write_recordio(data / f"{k}.rec", [files.recordio_record(jpeg, i) for i, jpeg in part], data / f"{k}.idx")
objects = {f"bucket/some/{path.name}": path.read_bytes() for path in data.iterdir()}
cache = folder / "cache"
copies = lambda: sorted(path for path in (cache / "s3" / "bucket").iterdir() if path.suffix != ".lock")
"""


@pytest.mark.parametrize(
    "source",
    [
        "TFRecord(where + '{0..1}.tfrecord', index_dir=cache)",
        "WebDataset(where + '{0..1}.tar', index_dir=cache)",
        "RecordIO(where + '{0..1}.rec', where + '{0..1}.idx', index_dir=cache)",
    ],
    ids=lambda text: text.partition("(")[0],
)
def test_shards_are_those_of_local_files(tmp_path: Path, source: str) -> None:
    out = in_a_process(
        tmp_path,
        HEAD
        + f"""
def source(where):
    return {source}

local = source(str(data) + "/")
with s3_server(objects) as asked:
    remote = source("s3://bucket/some/")
    assert_alike(two_epochs(remote), two_epochs(local))
    assert [remote.sample_name(i) for i in range(12)] == [local.sample_name(i) for i in range(12)]
    assert remote.location(7).startswith("s3://bucket/some/1."), remote.location(7)
    assert asked
    asked.clear()
    source("s3://bucket/some/").check()
    assert not asked  # once is enough
print("alike")
""",
    )
    assert out == "alike\n"


def test_a_run_goes_on_to_the_bit_where_nothing_was_fetched_before(tmp_path: Path) -> None:
    """As on another machine: from the same shards, fetched again."""
    out = in_a_process(
        tmp_path,
        HEAD
        + """
def module(where, cache):
    source = TFRecord(where + "{0..1}.tfrecord", index_dir=folder / cache)
    return ImageDataModule(train=source, batch_size=2, image_size=8, num_threads=1, seed=3).setup_for("cpu")

with s3_server(objects):
    whole = module(str(data) + "/", "a")
    expected = [*whole.train_dataloader(), *whole.train_dataloader()]
    whole.teardown("fit")
    first = module("s3://bucket/some/", "b")
    batches = iter(first.train_dataloader())
    for _ in range(2):
        next(batches)
    state = first.state_dict()
    first.teardown("fit")
    second = module("s3://bucket/some/", "c")
    second.load_state_dict(state)
    rest = [*second.train_dataloader(), *second.train_dataloader()]
    second.teardown("fit")
    assert_alike(rest, expected[2:])
print("alike")
""",
    )
    assert out == "alike\n"


def test_several_processes_and_one_that_is_killed(tmp_path: Path) -> None:
    out = in_a_process(
        tmp_path,
        HEAD
        + """
child = "import os, sys; from lightning_gpuaug import TFRecord; "
check = "TFRecord('s3://bucket/some/{0..1}.tfrecord', index_dir=sys.argv[1]).check()"
dies = "os.link = lambda *args: os.kill(os.getpid(), 9); "
start = lambda code: subprocess.Popen([sys.executable, "-c", code, str(cache)])
with s3_server(objects):
    assert start(child + dies + check).wait() == -9
    assert [path.suffix for path in copies()] == [".part"]
    together = [start(child + check) for _ in range(3)]
    assert [one.wait() for one in together] == [0, 0, 0]
whole = [path.read_bytes() for path in copies() if path.suffix != ".part"]
assert sorted(whole) == sorted((data / f"{k}.tfrecord").read_bytes() for k in range(2))
print("whole")
""",
    )
    assert out == "whole\n"


def test_what_cannot_be_had_is_named_by_its_address(tmp_path: Path) -> None:
    out = in_a_process(
        tmp_path,
        HEAD
        + """
objects["bucket/some/cut.tfrecord"] = objects["bucket/some/0.tfrecord"][:-9]
with s3_server(objects):
    for name in ("none.tfrecord", "cut.tfrecord"):
        try:
            TFRecord("s3://bucket/some/" + name, index_dir=cache).check()
        except (OSError, ValueError) as error:
            print(error)
""",
    )
    absent, cut = out.splitlines()
    assert absent.startswith("s3://bucket/some/none.tfrecord: cannot be fetched from http://127.0.0.1:")
    assert cut.startswith("s3://bucket/some/cut.tfrecord:")
