"""Which files a pattern means, and what they are by their first bytes."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence

from lightning_gpuaug.sources.imageheader import sniff
from lightning_gpuaug.sources.names import S3
from lightning_gpuaug.sources.remote import is_remote, refuse_remote, unread_address

#: A path, a pattern (`*`, `?`, `[…]`, `{a,b}`, `{00..12}`), or a sequence of them.
Paths = Sequence[str] | str | os.PathLike[str]

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
#: Names of what `gpuaug convert` and the index put beside shards.
_BESIDE = re.compile(r"-((classes|manifest)\.json|[0-9a-f]{20}\.npz(.*\.tmp|\.lock)?)$")
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "Zstandard"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"))


def validated_paths(value: Paths, owner: str, in_s3: bool = True) -> str | tuple[str, ...]:
    """`value` as a string or a tuple of strings; nothing is looked for.

    Args:
        value: to look at.
        owner: the argument it came by.
        in_s3: whether files may be objects in S3.

    Raises:
        TypeError: it is neither a path nor a sequence of paths.
        ValueError: a path is empty, is a pattern of objects in S3, or is remote in another way.
    """
    if isinstance(value, (str, os.PathLike)):
        paths: tuple[str, ...] = (os.fspath(value),)
    elif isinstance(value, Sequence):
        paths = tuple(os.fspath(path) for path in value)
    else:
        raise TypeError(f"{owner} must be a path or a sequence of paths, got {value!r} ({type(value).__name__})")
    if not paths or not all(paths):
        raise ValueError(f"{owner} must name at least one file, got {value!r}")
    for path in paths:
        if not isinstance(path, str):
            raise TypeError(f"{owner} must hold texts, got {path!r} ({type(path).__name__})")
        if not in_s3:
            refuse_remote(path, owner, "copy or mount it first")
        elif is_remote(path) and glob.has_magic(path):
            raise ValueError(
                f"{owner}: objects in S3 are not searched, got {path!r}: use braces ({{0000..0127}}, {{a,b}})"
            )
        elif not is_remote(path) and (problem := unread_address(path)):
            raise ValueError(f"{owner} {problem}")
    return paths[0] if isinstance(value, (str, os.PathLike)) else paths


def expand(value: str | tuple[str, ...], owner: str) -> tuple[str, ...]:
    """The files that `value` (see `validated_paths`) stands for, in order; what a pattern matches is sorted as text.

    `*`, `?` and `[…]` pass over what this package itself writes beside shards: `PREFIX-classes.json`,
    `PREFIX-manifest.json`, indexes. Objects in S3 are not looked for.

    Raises:
        FileNotFoundError: a path is not there, or a pattern matches nothing.
        ValueError: a file is meant twice (also by a link to it), or an address in S3 is none of an object.
    """
    files: list[str] = []
    for pattern in (value,) if isinstance(value, str) else value:
        for path in _braces(os.path.expanduser(pattern)):
            if is_remote(path):
                _check_address(path, owner)
                files.append(path)
            elif os.path.exists(path):  # also a name with brackets in it
                files.append(path)
            elif glob.has_magic(path):
                found = glob.glob(path, recursive=True)
                matches = sorted(name for name in found if not _BESIDE.search(name))
                if not matches:
                    beside = ", but for what gpuaug has written beside shards" if found else ""
                    raise FileNotFoundError(f"{owner}: no file matches {path!r}{beside}")
                files.extend(matches)
            else:
                raise FileNotFoundError(f"{owner}: no such file: {path}")
    seen: dict[str | tuple[int, ...], str] = {}
    for path in files:
        same = seen.setdefault(path if is_remote(path) else _identity(path), path)
        if same is not path:
            raise ValueError(
                f"{owner} must name each file once, got {path} twice{'' if same == path else f' ({same})'}"
            )
    return tuple(files)


def refuse_folders(files: Sequence[str], owner: str, usual: str) -> None:
    """Raise ValueError if one of `files` is a folder, telling to give a pattern such as `usual`, of what is in it."""
    for path in files:
        if os.path.isdir(path):
            pattern = os.path.join(path, usual)
            raise ValueError(f"{owner} must name files, {path} is a folder; give a pattern such as {pattern}")


def shard_names(files: Sequence[str]) -> tuple[str, ...]:
    """Names of `files` that do not depend on where they are mounted: below the folder that all share."""
    places = [f"/s3:/{path.removeprefix(S3)}" if is_remote(path) else os.path.abspath(path) for path in files]
    common = os.path.commonpath([os.path.dirname(place) for place in places])
    return tuple(os.path.relpath(place, common) for place in places)


def refuse_foreign(path: str, head: bytes) -> None:
    """Raise ValueError if a data file's first bytes are those of something else that is often found in its place."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise ValueError(f"{path}: is compressed with {name}, and records cannot be found in it; decompress it")
    if (kind := sniff(head)) in ("git-lfs", "html"):
        what = "a git-lfs pointer, not the data (git lfs pull)" if kind == "git-lfs" else "an HTML page, not the data"
        raise ValueError(f"{path}: is {what}")


def _check_address(path: str, owner: str) -> None:
    bucket, _, key = path.removeprefix(S3).partition("/")
    if not bucket.strip(".") or not key or key.endswith("/"):
        raise ValueError(f"{owner} in S3 must be s3://bucket/key of one object, got {path!r}")
    if problem := unread_address(path):
        raise ValueError(f"{owner} {problem}")


def _identity(path: str) -> tuple[int, ...]:
    """What two names of one file have in common. The inode alone is not enough: some network drives repeat numbers."""
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _braces(pattern: str, begin: int = 0) -> list[str]:
    """`a{b,c{1..3}}` as the paths that a shell would make of it; a file that is called so stays.

    Braces without a comma or a range in them are part of the name.

    Args:
        pattern: to expand.
        begin: braces before that character are part of the name.
    """
    opening = pattern.find("{", begin)
    if opening < 0 or os.path.exists(pattern):
        return [pattern]
    parts, end = _parts(pattern, opening)
    choices = parts if len(parts) > 1 else _span(parts[0])
    if not choices:
        return _braces(pattern, opening + 1)
    head, rest = pattern[:opening], pattern[end:]
    return [path for choice in choices for path in _braces(head + choice + rest, opening)]


def _parts(pattern: str, opening: int) -> tuple[list[str], int]:
    """What the brace at `opening` holds, cut at the commas that are in no brace inside, and where what follows begins.

    Of a brace that nothing closes: one part, empty.
    """
    depth, commas = 0, [opening]
    for at in range(opening, len(pattern)):
        if pattern[at] == "{":
            depth += 1
        elif pattern[at] == "," and depth == 1:
            commas.append(at)
        elif pattern[at] == "}":
            depth -= 1
            if not depth:
                return [pattern[a + 1 : b] for a, b in zip(commas, [*commas[1:], at], strict=True)], at + 1
    return [""], len(pattern)


def _span(inside: str) -> list[str]:
    """The numbers of a range `first..last`; none if it is no range."""
    if not (span := _RANGE.fullmatch(inside)):
        return []
    first, last = int(span[1]), int(span[2])
    padded = any(len(text) > 1 and text.lstrip("-").startswith("0") for text in span.groups())
    width = max(map(len, span.groups())) if padded else 0
    step = 1 if last >= first else -1
    return [f"{n:0{width}d}" for n in range(first, last + step, step)]
