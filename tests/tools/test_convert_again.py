"""Converting into a folder that has shards: what is kept of them is right, all else is made anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuaug.sources import ImageFolder
from lightning_gpuaug.tools.convert import Converted, ConvertOptions, convert
from lightning_gpuaug.tools.journal import replace_json
from tests.tools.broken import jpeg, write_tree
from tests.tools.test_convert import contents, expected, run

SHARDS = [f"train-{i:06d}.tar" for i in range(5)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tree(tmp_path / "data", good=5)
    return tmp_path / "data"


def again(data: Path, **options: object) -> Converted:
    """A new process's run: the source is listed anew."""
    return run(ImageFolder(data), data.parent / "out", **{"shard_images": 2, **options})  # type: ignore[arg-type]


def made_by(out: Path, call: Callable[[], object]) -> list[str]:
    """Shards that `call` has written."""
    for name in SHARDS:
        os.utime(out / name, ns=(0, 0))
    call()
    return [name for name in SHARDS if (out / name).stat().st_mtime_ns > 0]


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def test_a_changed_image_makes_its_shard_anew_and_no_other(data: Path) -> None:
    again(data)
    image = data / "a/2.jpg"
    state = image.stat()
    new = bytearray(image.read_bytes())
    new[-10] ^= 1
    image.write_bytes(new)  # as long as before
    os.utime(image, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert made_by(data.parent / "out", lambda: again(data)) == [SHARDS[1]]
    done = again(data)
    assert done.kept == 5
    assert contents(data.parent / "out", done) == expected(ImageFolder(data))


def test_an_image_that_was_left_out_comes_in_when_it_is_repaired(data: Path) -> None:
    whole = (data / "b/1.jpg").read_bytes()
    half(data / "b/1.jpg")
    assert [found.name for found in again(data, on_bad="skip").bad] == ["b/1.jpg"]
    done = again(data, on_bad="skip")  # nothing has changed: resuming keeps such shards too
    assert (done.kept, [found.name for found in done.bad]) == (5, ["b/1.jpg"])
    (data / "b/1.jpg").write_bytes(whole)
    done = again(data, on_bad="skip")
    assert (done.kept, done.bad, done.complete) == (4, [], True)
    assert contents(data.parent / "out", done) == expected(ImageFolder(data))


def test_an_image_that_can_be_read_again_comes_in_though_its_time_is_the_same(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = open

    def failing(path: object, *args: object, **more: object) -> object:
        if str(path).endswith("a/0.jpg"):
            raise OSError(5, "Input/output error")
        return honest(path, *args, **more)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", failing)
        assert again(data, on_bad="skip").bad[0].reason == "unreadable: input/output error"
        assert again(data, on_bad="skip").kept == 5
    done = again(data, on_bad="skip")
    assert (done.kept, done.bad, done.samples) == (4, [], 10)


def test_failing_at_bad_images_does_not_accept_what_an_earlier_run_left_out(data: Path) -> None:
    out = data.parent / "out"
    half(data / "b/1.jpg")
    again(data, on_bad="skip")
    made = {path.name: path.read_bytes() for path in out.glob("train-*")}
    stopped = again(data)
    assert not stopped.complete
    assert [found.name for found in stopped.bad] == ["b/1.jpg"]
    assert {path.name: path.read_bytes() for path in out.glob("train-*")} == made
    half(data / "a/0.jpg")  # in another shard, which has no bad image so far
    assert again(data).complete is False
    assert {name for name in SHARDS if (out / name).exists()} != set()
    assert again(data, overwrite=True).complete is False
    done = again(data, on_bad="skip")
    assert ([found.name for found in done.bad], done.complete) == (["a/0.jpg", "b/1.jpg"], True)


def test_nothing_passes_for_complete_while_a_shard_is_missing(data: Path) -> None:
    again(data)
    half(data / "a/0.jpg")
    assert again(data).complete is False
    out = data.parent / "out"
    assert not (out / "train-manifest.json").exists()
    assert [path.name for path in sorted(out.glob("train-0*"))] == SHARDS[1:]


def test_a_shard_of_other_bytes_is_made_anew(data: Path) -> None:
    again(data)
    shard = data.parent / "out" / SHARDS[3]
    whole, state = shard.read_bytes(), shard.stat()
    shard.write_bytes(whole[:700] + b"XXXX" + whole[704:])
    os.utime(shard, ns=(state.st_atime_ns, state.st_mtime_ns))
    done = again(data)
    assert done.kept == 4
    assert shard.read_bytes() == whole


def test_overwriting_makes_every_shard_anew(data: Path) -> None:
    again(data)
    assert made_by(data.parent / "out", lambda: again(data)) == []
    assert made_by(data.parent / "out", lambda: again(data, overwrite=True)) == SHARDS
    assert again(data, overwrite=True).kept == 0


def test_shards_that_are_cut_elsewhere_since_an_image_grew_are_replaced(data: Path) -> None:
    out = data.parent / "out"
    size = max(path.stat().st_size for path in data.rglob("*.jpg"))
    limits = {"shard_images": None, "shard_bytes": 3 * size}
    before = again(data, **limits)
    (data / "b/3.jpg").write_bytes(jpeg(3))
    (data / "b/4.jpg").write_bytes(jpeg(4))
    done = again(data, **limits)
    assert 0 < done.kept < before.shards < done.shards
    assert contents(out, done) == expected(ImageFolder(data))
    (data / "b/3.jpg").write_bytes((data / "a/0.jpg").read_bytes())
    (data / "b/4.jpg").write_bytes((data / "a/1.jpg").read_bytes())
    done = again(data, **limits)  # and back to fewer shards
    assert contents(out, done) == expected(ImageFolder(data))


def test_a_longer_prefix_is_another_conversion(data: Path) -> None:
    out = data.parent / "out"
    convert(ImageFolder(data), out, ConvertOptions("webdataset", "train-21k", processes=1))
    (out / ".train-21k-000001.tar.partial").write_bytes(b"of a run that is under way")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again(data)
    again(data, overwrite=True)
    assert before.items() <= {path.name: path.read_bytes() for path in out.iterdir()}.items()


def test_what_differs_is_told_as_the_command_line_has_it(data: Path) -> None:
    again(data)
    with pytest.raises(
        ValueError, match=r"\(with another --resize, with another --quality\).*use --overwrite, another"
    ):
        again(data, resize=9, quality=50)
    with pytest.raises(ValueError, match=r"another conversion \(with another --to\)"):
        again(data, form="tfrecord")
    (data / "a/9.jpg").write_bytes(jpeg(9))
    with pytest.raises(ValueError, match=r"another conversion \(of other images or labels\)"):
        again(data)
    replace_json(data.parent / "out/train-manifest.json", [])
    with pytest.raises(ValueError, match=r"train-manifest.json is no manifest of gpuaug convert"):
        again(data)
