"""Cores and quotas, on made-up control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.doctor.host import cgroup_quota, cores, shared_memory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def quota(tmp_path: Path) -> float | None:
    return cgroup_quota(tmp_path / "cgroup", tmp_path / "own")


@pytest.mark.parametrize(("text", "limit"), [("max 100000\n", None), ("400000 100000\n", 4.0), ("50000 100000\n", 0.5)])
def test_version_2(text: str, limit: float | None, tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/\n")
    write(tmp_path / "cgroup" / "cpu.max", text)
    assert quota(tmp_path) == limit


def test_version_2_the_tightest_parent_counts(tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/slurm/job_1/step_0\n")
    write(tmp_path / "cgroup" / "slurm" / "cpu.max", "max 100000\n")
    write(tmp_path / "cgroup" / "slurm" / "job_1" / "cpu.max", "200000 100000\n")
    write(tmp_path / "cgroup" / "slurm" / "job_1" / "step_0" / "cpu.max", "300000 100000\n")
    assert quota(tmp_path) == 2.0


def test_version_1(tmp_path: Path) -> None:
    write(tmp_path / "own", "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n")
    group = tmp_path / "cgroup" / "cpu" / "docker" / "a"
    write(group / "cpu.cfs_quota_us", "-1\n")
    write(group / "cpu.cfs_period_us", "100000\n")
    assert quota(tmp_path) is None
    write(group / "cpu.cfs_quota_us", "150000\n")
    assert quota(tmp_path) == 1.5


def test_no_control_groups_and_unreadable_ones(tmp_path: Path) -> None:
    assert quota(tmp_path) is None
    write(tmp_path / "own", "0::/\n")
    write(tmp_path / "cgroup" / "cpu.max", "garbage\n")
    assert quota(tmp_path) is None


def test_a_quota_below_what_auto_takes_is_a_problem() -> None:
    found = cores(affinity=64, machine=64, quota=4.0, gpus=0)
    assert found.level == "problem"
    assert "data.num_threads=4" in found.advice
    assert "quota 4" in found.found
    assert cores(64, 64, quota=16.0, gpus=1).level == "ok"  # auto takes 16 at most
    assert cores(2, 64, quota=2.0, gpus=0).level == "ok"
    assert "data.num_threads=1" in cores(8, 8, quota=0.5, gpus=0).advice


def test_few_cores_for_the_gpus_are_a_note() -> None:
    found = cores(affinity=8, machine=64, quota=None, gpus=4)
    assert found.level == "note"
    assert "8 of 64 cores for 4 GPU(s)" in found.found
    assert "limit this process" in found.advice
    assert cores(16, 16, None, gpus=4).level == "ok"
    assert cores(1, 1, None, gpus=0).level == "ok"


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: (64 * 2**20, 0, 64 * 2**20))
    small = shared_memory(tmp_path)
    assert small.level == "note"
    assert "64 MiB" in small.found
    assert "--shm-size" in small.advice
    monkeypatch.setattr("shutil.disk_usage", lambda path: (8 * 2**30, 0, 2**30))
    assert shared_memory(tmp_path).level == "ok"
    monkeypatch.undo()
    assert shared_memory(tmp_path / "none").level == "note"
