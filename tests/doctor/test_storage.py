"""Reading files, and what the figures mean."""

from __future__ import annotations

from pathlib import Path

from lightning_gpuaug.doctor.storage import ReadRate, check_storage, file_system, image_files, read_rate


def tree(root: Path) -> None:
    for name in ("a/1.jpg", "a/2.JPEG", "b/c/3.png", "b/notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 1000)


def test_images_are_found_below_the_folder(tmp_path: Path) -> None:
    tree(tmp_path)
    found = {str(Path(path).relative_to(tmp_path)) for path in image_files(tmp_path)}
    assert found == {"a/1.jpg", "a/2.JPEG", "b/c/3.png"}
    assert len(image_files(tmp_path, most=2)) == 2
    assert image_files(tmp_path / "none") == []


def test_each_file_is_read_once(tmp_path: Path) -> None:
    tree(tmp_path)
    rate = read_rate([*image_files(tmp_path), str(tmp_path / "gone.jpg")], seconds=5.0)
    assert (rate.files, rate.bytes) == (3, 3000)
    assert rate.files_per_s > 0
    assert read_rate(image_files(tmp_path), seconds=-1.0).files == 0  # time is over


def test_slower_than_decoding_is_a_problem(tmp_path: Path) -> None:
    rate = ReadRate(files=1000, bytes=100 * 2**20, seconds=1.0)
    slow = check_storage(tmp_path, rate, "ext4", decoded_per_s=5000)
    assert slow.level == "problem"
    assert "1,000 files/s, 100 MiB/s, 102 KiB a file" in slow.found
    assert check_storage(tmp_path, rate, "ext4", decoded_per_s=1000).level == "ok"
    assert check_storage(tmp_path, rate, "ext4", decoded_per_s=None).level == "ok"
    assert check_storage(tmp_path, rate, "nfs4", decoded_per_s=None).level == "note"
    assert check_storage(tmp_path, rate, "fuse.s3fs", decoded_per_s=None).level == "note"
    assert check_storage(tmp_path, ReadRate(0, 0, 1.0), "ext4", None).level == "problem"


def test_the_longest_mount_point_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\ns {tmp_path}/data lustre rw 0 0\n")
    assert file_system(tmp_path / "data" / "train", mounts) == "lustre"
    assert file_system(tmp_path / "database", mounts) == "nfs4"
    assert file_system(Path("/usr"), mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "none") == ""
