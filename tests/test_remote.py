"""Lists of s3:// addresses: read through DALI, in every other way as files are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning_gpuaug import FileList, ImageFolder
from lightning_gpuaug.sources.remote import RemoteReader
from tests.images import numbered
from tests.s3_server import in_a_process

HEAD = """
import sys
from pathlib import Path
import numpy as np
from lightning_gpuaug import FileList, ImageDataModule
from lightning_gpuaug.sources.encoded import fixed_paths
from lightning_gpuaug.sources.remote import RemoteReader
from tests.delivered import assert_alike, two_epochs
from tests.images import numbered
from tests.s3_server import s3_server
folder = Path(sys.argv[1])
files = numbered(folder, 12)
objects = {f"bucket/some/{Path(path).name}": Path(path).read_bytes() for path in files.paths}
names = [Path(path).name for path in files.paths]
"""


def test_batches_are_those_of_the_files(tmp_path: Path) -> None:
    out = in_a_process(
        tmp_path,
        HEAD
        + """
listing = folder / "remote.txt"
listing.write_text("".join(f"s3://bucket/some/{name} {i}\\n" for i, name in enumerate(names)))
below = folder / "below.txt"
below.write_text("".join(f"{name} {i}\\n" for i, name in enumerate(names)))
mixed = folder / "mixed.txt"
some = [path if i % 2 else f"s3://bucket/some/{Path(path).name}" for i, path in enumerate(files.paths)]
mixed.write_text("".join(f"{name} {i}\\n" for i, name in enumerate(some)))

local = two_epochs(files)
with s3_server(objects) as asked:
    for source in (FileList(listing), FileList(below, root="s3://bucket/some"), FileList(mixed)):
        assert source.feed == "bytes", source
        assert_alike(two_epochs(source), local)
    assert asked
for source in (FileList(below, root="s3://bucket/some"), FileList(listing, root="s3://bucket/some")):
    assert source.sample_name(2) == names[2]
assert FileList(listing).location(1) == f"s3://bucket/some/{names[1]}"
print("alike")
""",
    )
    assert out == "alike\n"


def test_a_missing_object_is_a_bad_image(tmp_path: Path) -> None:
    out = in_a_process(
        tmp_path,
        HEAD
        + """
listing = folder / "remote.txt"
listing.write_text("".join(f"s3://bucket/some/{name} {i}\\n" for i, name in enumerate([*names, "lost.jpg"])))
with s3_server(objects):
    for mode in ("raise", "substitute"):
        data = ImageDataModule(
            val=FileList(listing), train=FileList(listing), batch_size=13, eval_batch_size=13, image_size=8,
            num_threads=1, on_bad_image=mode,
        ).setup_for("cpu")
        import warnings
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                print(sorted(sum((labels.tolist() for _, labels in data.val_dataloader()), [])))
                print(*(str(w.message) for w in heard if "bad image" in str(w.message)))
            except RuntimeError as error:
                print(error)
        data.teardown("fit")
""",
    )
    raised, left, warned = out.splitlines()
    for said in (raised, warned):
        assert "s3://bucket/some/lost.jpg" in said
        assert "unreadable: S3 Object not found. bucket=bucket object=some/lost.jpg" in said
    assert left == str(list(range(12)))


def test_the_reader_reads_files_too_and_begins_again(tmp_path: Path) -> None:
    from lightning_gpuaug.sources.encoded import fixed_paths

    source = numbered(tmp_path, 5)
    reader = RemoteReader(fixed_paths([*source.paths, str(tmp_path / "lost")]))
    for rows in ([3], [0, 4, 0], [5, 1], [2]):
        encoded = reader.begin(np.array(rows), False).result()
        for row, i in enumerate(rows):
            assert encoded.content(row) == (Path(source.paths[i]).read_bytes() if i < 5 else b"")
        assert list(encoded.problems) == [row for row, i in enumerate(rows) if i == 5]
        reader.close()


def test_what_is_not_read_is_refused(tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    listing.write_text("a.jpg 0\nhttps://host/b.jpg 1\n")
    with pytest.raises(ValueError, match=r"list\.txt:2: a path must be on a file system or in S3, got 'https://host"):
        FileList(listing).check()
    with pytest.raises(ValueError, match=r"FileList\.root must be on a file system or in S3, got 'gs://bucket'"):
        FileList(listing, root="gs://bucket")
    with pytest.raises(ValueError, match=r"ImageFolder\.root must be on a file system, got 's3://b/t': .* FileList of"):
        ImageFolder("s3://b/t")
    for place in ("s3://b/a?x", "s3://b/y/../x", "s3://b//x", "s3://b/y/./x", "s3://b/a#x"):
        listing.write_text(f"{place} 0\n")
        with pytest.raises(
            ValueError, match=r"list\.txt:1: a path in S3 must have no .* DALI would read another object"
        ):
            FileList(listing).check()
        if (below := place.removeprefix("s3://b/")).startswith("/"):
            continue  # that is a file
        listing.write_text(f"{below} 0\n")
        with pytest.raises(ValueError, match=r"list\.txt:1: a path in S3 must have no"):
            FileList(listing, root="s3://b/").check()
    listing.write_text("a..b/.c/...x 0\n")
    FileList(listing, root="s3://b/p/").check()
