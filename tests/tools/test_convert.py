"""Converting: the same samples come out, in whole shards, whatever happened on the way."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.sources import FileList, ImageFolder, Source, TFRecord, WebDataset
from lightning_gpuaug.tools import shard_files
from lightning_gpuaug.tools.convert import Converted, ConvertOptions, convert
from lightning_gpuaug.tools.journal import Journal
from lightning_gpuaug.tools.shard_files import Format, VerificationError
from lightning_gpuaug.tools.tfrecord_file import read_records
from tests.tools.broken import EXPECTED, break_tree, jpeg, write_tree

FORMATS: tuple[Format, ...] = ("webdataset", "tfrecord")


def run(source: Source, folder: Path, form: Format = "webdataset", **options: object) -> Converted:
    return convert(source, folder, ConvertOptions(form, "train", processes=1, **options))  # type: ignore[arg-type]


def contents(folder: Path, done: Converted) -> list[tuple[str, int, bytes]]:
    """(name, label, image) of every record, read by other means than the writer's."""
    found: list[tuple[str, int, bytes]] = []
    for path in sorted(folder.glob("train-[0-9]*")):
        if path.suffix == ".tar":
            with tarfile.open(path) as tar:
                parts = [(m.name, tar.extractfile(m).read()) for m in tar.getmembers()]  # type: ignore[union-attr]
            for (image, data), (label, text) in zip(parts[::2], parts[1::2], strict=True):
                assert label == image.rsplit(".", 1)[0] + ".cls"
                found.append((image.rsplit(".", 1)[0], int(text), data))
        else:
            with open(path, "rb") as file:
                for features in read_records(file, path.name):
                    name = features["image/filename"].decode()  # type: ignore[union-attr]
                    label = features["image/class/label"]
                    found.append((name.rsplit(".", 1)[0], label, features["image/encoded"]))  # type: ignore[arg-type]
    assert len(found) == done.samples
    return found


def expected(source: Source) -> list[tuple[str, int, bytes]]:
    return [
        (source.sample_name(i).rsplit(".", 1)[0], int(source.targets[i]), Path(source.paths[i]).read_bytes())
        for i in range(len(source))
    ]


@pytest.fixture
def tree(tmp_path: Path) -> ImageFolder:
    write_tree(tmp_path / "data", good=5)
    return ImageFolder(tmp_path / "data")


@pytest.mark.parametrize("form", FORMATS)
def test_all_samples_come_out_as_they_went_in(tree: ImageFolder, tmp_path: Path, form: Format) -> None:
    seen: list[int] = []
    done = convert(tree, tmp_path / "out", ConvertOptions(form, "train", shard_images=4, processes=1), seen.append)
    assert (done.samples, done.shards, done.kept, done.complete, done.bad) == (10, 3, 0, True, [])
    assert contents(tmp_path / "out", done) == expected(tree)
    assert sum(seen) == 10
    assert json.loads((tmp_path / "out/train-classes.json").read_text()) == {"a": 0, "b": 1}
    manifest = json.loads((tmp_path / "out/train-manifest.json").read_text())
    assert [shard["samples"] for shard in manifest["shards"]] == [4, 4, 2]
    for shard in manifest["shards"]:
        assert hashlib.sha256((tmp_path / "out" / shard["name"]).read_bytes()).hexdigest() == shard["sha256"]
    hidden = [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
    assert hidden == []


@pytest.mark.parametrize("form", FORMATS)
def test_the_sources_read_what_was_converted(tree: ImageFolder, tmp_path: Path, form: Format) -> None:
    done = run(tree, tmp_path / "out", form, shard_images=3, shuffle=1)
    kind = WebDataset if form == "webdataset" else TFRecord
    names = tuple(json.loads((tmp_path / "out/train-classes.json").read_text()))
    source = kind(str(tmp_path / "out" / done.pattern), class_names=names, index_dir=tmp_path / "index")
    data = ImageDataModule(train=source, val=tree, batch_size=2, image_size=16, num_threads=1, drop_last=False)
    data.setup_for("cpu")
    assert data.classes == ("a", "b")
    ranges = source.reader().ranges
    found = []
    for i in range(len(source)):
        with open(bytes(ranges.paths[ranges.file[i]]), "rb") as file:
            file.seek(int(ranges.offset[i]))
            found.append((int(source.targets[i]), file.read(int(ranges.length[i]))))
    assert found == [(label, image) for _, label, image in contents(tmp_path / "out", done)]
    assert sorted(found) == sorted((label, image) for _, label, image in expected(tree))
    assert sum(len(targets) for _, targets in data.train_dataloader()) == 10
    data.teardown("fit")


@pytest.mark.parametrize(("form", "processes"), [("webdataset", 2), ("tfrecord", 1)])
def test_equal_input_gives_equal_bytes_in_any_number_of_processes(
    tree: ImageFolder, tmp_path: Path, form: Format, processes: int
) -> None:
    options = ConvertOptions(form, "train", shard_images=3, shuffle=7, resize=20, processes=1)
    convert(tree, tmp_path / "one", options)
    two = ConvertOptions(form, "train", shard_images=3, shuffle=7, resize=20, processes=processes)
    done = convert(tree, tmp_path / "two", two)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert done.pattern == ("train-{000000..000003}.tar" if form == "webdataset" else "train-*-of-00004.tfrecord")


def test_shuffling_is_a_permutation_by_its_seed(tree: ImageFolder, tmp_path: Path) -> None:
    orders = [contents(tmp_path / f"s{s}", run(tree, tmp_path / f"s{s}", shuffle=s)) for s in (0, 1)]
    assert orders[0] != orders[1] != expected(tree)
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(expected(tree))


def test_shards_are_cut_by_bytes(tree: ImageFolder, tmp_path: Path) -> None:
    sizes = [Path(path).stat().st_size for path in tree.paths]
    done = run(tree, tmp_path / "out", shard_bytes=3 * max(sizes))
    manifest = json.loads((tmp_path / "out/train-manifest.json").read_text())
    counts = [shard["samples"] for shard in manifest["shards"]]
    assert done.samples == sum(counts) == 10
    for begin, count in zip(np.cumsum([0, *counts]), counts, strict=False):
        assert sum(sizes[begin : begin + count]) <= 3 * max(sizes)
    assert max(counts) >= 3
    one_each = run(tree, tmp_path / "one", shard_bytes=1)
    assert one_each.shards == 10


@pytest.mark.parametrize("form", FORMATS)
def test_resizing_makes_the_shorter_side_fit_and_enlarges_nothing(tmp_path: Path, form: Format) -> None:
    (tmp_path / "data/a").mkdir(parents=True)
    y, x = np.mgrid[0:300, 0:200]
    photo = Image.fromarray(np.stack([x % 256, y % 256, (x + y) % 256], -1).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(tmp_path / "data/a/0_large.jpg", exif=exif, quality=95)
    photo.resize((60, 50)).save(tmp_path / "data/a/1_small.jpg")
    Image.fromarray((np.arange(200 * 300) % 65536).astype(np.uint16).reshape(200, 300)).save(tmp_path / "data/a/2.png")
    photo.convert("RGBA").save(tmp_path / "data/a/3.png")
    done = run(ImageFolder(tmp_path / "data"), tmp_path / "out", form, resize=100)
    images = [data for _, _, data in contents(tmp_path / "out", done)]
    opened = [Image.open(io.BytesIO(data)) for data in images]
    assert [image.size for image in opened] == [(100, 150), (60, 50), (150, 100), (100, 150)]
    assert [image.format for image in opened] == ["JPEG"] * 4
    assert images[1] == (tmp_path / "data/a/1_small.jpg").read_bytes()
    assert opened[0].getexif()[0x0112] == 6
    reference = np.asarray(photo.resize((100, 150), Image.Resampling.LANCZOS)).astype(int)
    assert np.abs(np.asarray(opened[0]).astype(int) - reference).mean() < 4
    assert opened[2].mode == "L"
    assert np.asarray(opened[2]).max() > 100  # sixteen bits scaled, not clipped
    assert opened[3].mode == "RGB"


def test_quality_encodes_every_image_anew(tree: ImageFolder, tmp_path: Path) -> None:
    done = run(tree, tmp_path / "out", quality=30)
    for (_, _, data), path in zip(contents(tmp_path / "out", done), tree.paths, strict=True):
        assert data != Path(path).read_bytes()
        assert len(data) < Path(path).stat().st_size


@pytest.mark.parametrize("size", [(10, 65501), (65501, 10)])
def test_a_side_that_no_jpeg_has_is_told_as_that(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "data/a").mkdir(parents=True)
    Image.new("RGB", size).save(tmp_path / "data/a/long.png")
    Image.new("RGB", (65500, 9)).save(tmp_path / "data/a/most.png")
    source = ImageFolder(tmp_path / "data")
    (found,) = run(source, tmp_path / "out", quality=90, on_bad="skip").bad
    assert (found.name, found.kind) == ("a/long.png", "oversized")
    assert found.reason == (
        f"cannot be encoded ({size[0]}×{size[1]} pixels, a JPEG has at most 65500 a side; "
        "without --quality it is copied as it is)"
    )
    assert run(source, tmp_path / "smaller", quality=90, resize=9).bad == []
    assert run(source, tmp_path / "copied").bad == []
    (tmp_path / "thin/a").mkdir(parents=True)
    Image.new("RGB", (3, 99999)).save(tmp_path / "thin/a/x.png")
    (found,) = run(ImageFolder(tmp_path / "thin"), tmp_path / "still", resize=2).bad
    assert found.reason == "cannot be encoded (2×66666 pixels, a JPEG has at most 65500 a side)"


@pytest.mark.parametrize("form", FORMATS)
def test_a_bad_image_stops_it_or_is_left_out(tmp_path: Path, form: Format) -> None:
    write_tree(tmp_path / "data")
    break_tree(tmp_path / "data")
    (tmp_path / "data/a/dangling.jpg").unlink()
    source = ImageFolder(tmp_path / "data")
    bad = sorted(EXPECTED.keys() - {"a/dangling.jpg"})
    stopped = run(source, tmp_path / "out", form)
    assert not stopped.complete
    assert sorted(finding.name for finding in stopped.bad) == bad
    assert list((tmp_path / "out").glob("train-[0-9]*")) == []
    done = run(source, tmp_path / "out", form, on_bad="skip")  # continues the same conversion
    assert done.complete
    assert sorted(finding.name for finding in done.bad) == bad
    names = [name for name, _, _ in contents(tmp_path / "out", done)]
    left = [i for i in range(len(source)) if source.sample_name(i) not in EXPECTED]
    assert names == [source.sample_name(i).rsplit(".", 1)[0] for i in left]


def test_finished_shards_are_kept_and_lost_ones_made_again(tree: ImageFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tree, out, shard_images=2)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    (out / "train-000001.tar").unlink()
    (out / "train-000003.tar").write_bytes(b"cut")
    (out / ".train-000001.tar.partial").write_bytes(b"left by a kill")
    done = run(tree, out, shard_images=2)
    assert (done.kept, done.shards) == (3, 5)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    again = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert {name for name in times if times[name] != again[name]} == {"train-000001.tar", "train-000003.tar"}
    assert run(tree, out, shard_images=2).kept == 5


def test_a_line_cut_off_the_journal_is_as_if_not_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.begin({"version": 1})
    journal.add(shard_files.ShardDone("x.tar", 1, 2, "abc", [], ["jpg"], "def"))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"name": "y.t')
    journal = Journal(path)
    assert journal.identity == {"version": 1}
    assert list(journal.shards) == ["x.tar"]
    journal.close()
    assert path.read_bytes() == whole


def test_two_at_once_are_refused(tree: ImageFolder, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = Journal(tmp_path / "out/.train-journal.jsonl")
    with pytest.raises(RuntimeError, match="another gpuaug convert is writing to"):
        run(tree, tmp_path / "out")
    other.close()
    assert run(tree, tmp_path / "out").complete


def test_another_conversion_is_not_mixed_in(tree: ImageFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tree, out, shard_images=2)
    with pytest.raises(ValueError, match=r"another conversion \(with another --shard-images\)"):
        run(tree, out, shard_images=5)
    assert len(list(out.glob("*.tar"))) == 5
    done = run(tree, out, shard_images=5, overwrite=True)
    assert contents(out, done) == expected(tree)
    assert len(list(out.glob("*.tar"))) == 2
    (out / "train-000007.tar").write_bytes(b"")
    with pytest.raises(ValueError, match=r"do not belong to this conversion, such as train-000007.tar"):
        run(tree, out, shard_images=5)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange/train-000000.tar").write_bytes(b"")
    with pytest.raises(ValueError, match="shards of unknown origin"):
        run(tree, tmp_path / "strange")
    assert sorted(path.name for path in (tmp_path / "strange").iterdir()) == ["train-000000.tar"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_shard_that_reads_back_differently_gets_no_name(
    tree: ImageFolder, tmp_path: Path, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = shard_files._suffix

    def flip_a_byte_on_disk(file: object, name: str, form: Format, written: object) -> None:
        file.seek(700)  # type: ignore[attr-defined]
        byte = file.read(1)  # type: ignore[attr-defined]
        file.seek(700)  # type: ignore[attr-defined]
        file.write(bytes([byte[0] ^ 1]))  # type: ignore[attr-defined]
        file.seek(0)  # type: ignore[attr-defined]
        verify(file, name, form, written)  # type: ignore[arg-type]

    verify = shard_files._verify
    assert honest(jpeg()) == "jpg"
    monkeypatch.setattr(shard_files, "_verify", flip_a_byte_on_disk)
    with pytest.raises((VerificationError, ValueError), match=r"train-0+"):
        run(tree, tmp_path / "out", form)
    assert list((tmp_path / "out").glob("*train-0*")) == []


def test_keys_stay_apart(tmp_path: Path) -> None:
    folder = tmp_path / "data/n.01"
    folder.mkdir(parents=True)
    for name in ("x.1.jpg", "x.2.jpg", "x_1.jpg", "x.1.jpeg", "ä b.jpg"):
        (folder / name).write_bytes(jpeg())
    source = ImageFolder(tmp_path / "data")
    done = run(source, tmp_path / "out")
    keys = [key for key, _, _ in contents(tmp_path / "out", done)]
    assert len(set(keys)) == 5
    assert "n.01/ä b" in keys
    assert all("." not in key.rsplit("/", 1)[1] for key in keys)


@pytest.mark.parametrize(
    "names",
    [
        ("x/a-00000002.jpg", "x/a.jpg", "x/a.png"),
        ("x/a.jpg", "x/a.png", "x/a-00000001.jpg", "x/a-00000001-00000002.jpg"),
        ("0.png", "./0.png", "././0.png", "x/../0.png", "x//0.png", "x/0.png", "x/./0.png"),
        ("./.x.jpg", ".x.jpg", "_x.jpg", "a\tb.jpg", "ä" * 60 + "/b.jpg"),
    ],
)
def test_every_list_gives_shards_that_the_source_reads(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "x").mkdir()
    for i, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if not (tmp_path / name).exists():
            (tmp_path / name).write_bytes(jpeg(i))
    (tmp_path / "list.csv").write_text("file,label\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names)))
    done = run(FileList(tmp_path / "list.csv"), tmp_path / "out")
    source = WebDataset(str(tmp_path / "out" / done.pattern), index_dir=tmp_path / "index")
    assert source.targets.tolist() == list(range(len(names)))


def test_a_shard_that_the_source_would_refuse_gets_no_name(
    tree: ImageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightning_gpuaug.tools.shard_layout.keys_of", lambda names: ["a" for _ in names])
    with pytest.raises(ValueError, match=r"train-000000.tar:a: has two members 'jpg'"):
        run(tree, tmp_path / "out")
    assert list((tmp_path / "out").glob("*train-0*")) == []


def test_other_image_types_keep_their_own_suffix(tmp_path: Path) -> None:
    (tmp_path / "data/a").mkdir(parents=True)
    Image.fromarray(np.zeros((9, 7, 3), dtype=np.uint8)).save(tmp_path / "data/a/x.webp")
    Image.fromarray(np.zeros((9, 7, 3), dtype=np.uint8)).save(tmp_path / "data/a/y.jpg", "PNG")
    done = run(ImageFolder(tmp_path / "data"), tmp_path / "out")
    assert done.suffixes == ["png", "webp"]


def test_validation_images_follow_the_training_classes(tree: ImageFolder, tmp_path: Path) -> None:
    write_tree(tmp_path / "val", good=2, classes=("b",))
    with pytest.warns(UserWarning, match="no samples of class 'a'"):
        source = ImageFolder(tmp_path / "val").with_classes(("a", "b"))
    done = run(source, tmp_path / "out")
    assert {label for _, label, _ in contents(tmp_path / "out", done)} == {1}


def test_labels_must_be_one_a_sample(tree: ImageFolder, tmp_path: Path) -> None:
    listing = tmp_path / "data/list.csv"
    listing.write_text("file,x,y\na/0.jpg,1,1\n")
    with pytest.raises(ValueError, match="one label a sample"):
        run(FileList(listing), tmp_path / "out")
    assert not (tmp_path / "out").exists()
