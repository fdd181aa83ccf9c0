"""What a conversion has finished, on disk, so that it can be continued after any end."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.shard_files import ShardDone


class Journal:
    """One line for what is converted, then one for each finished shard; appended, and synced to disk.

    A line that was cut off by a crash is as if it had not been written: its shard is made again.

    Args:
        path: the file; it is made if it is not there.

    Raises:
        RuntimeError: another process is using it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115  (kept open: it holds the lock)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise RuntimeError(f"another gpuaug convert is writing to {path.parent}") from None
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        whole = sum(len(line) + 1 for line in lines[:-1])
        self._file.truncate(whole)
        self._lines = [json.loads(line) for line in lines[:-1]]

    @property
    def identity(self) -> dict[str, Any] | None:
        """What the conversion is of; None for a new journal."""
        return self._lines[0] if self._lines else None

    @property
    def shards(self) -> dict[str, ShardDone]:
        """Finished shards by name."""
        return {line["name"]: shard_from_json(line) for line in self._lines[1:]}

    def begin(self, identity: dict[str, Any]) -> None:
        """Start anew."""
        self._file.truncate(0)
        self._lines = []
        self._append(identity)

    def add(self, shard: ShardDone) -> None:
        """Note a finished shard."""
        self._append(asdict(shard))

    def close(self) -> None:
        """Let go of the lock; a journal that says nothing leaves no file."""
        if not self._lines and not self._file.closed:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def remove(self) -> None:
        """Delete the file: the conversion is complete and the manifest says so."""
        self._lines = []
        self.close()

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        os.fsync(self._file.fileno())
        self._lines.append(line)


def shard_from_json(values: dict[str, Any]) -> ShardDone:
    """What `asdict` made of a finished shard, as it was."""
    return ShardDone(**{**values, "bad": [Finding(**found) for found in values["bad"]]})


def replace_json(path: Path, content: object) -> None:
    """Write JSON to `path`, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
