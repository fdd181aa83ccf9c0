"""Listing a class-folder tree: no stat of plain files, threads over class folders, names in one block."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.names import NameList, is_utf8, pack

#: What DALI decodes, by the end of the name, in any case.
IMAGE_EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .bmp .ppm .pgm .pbm .pnm .tif .tiff .webp .jp2".split()  # noqa: SIM905
)
#: Images all the same, which DALI does not decode.
UNDECODABLE_EXTENSIONS = frozenset({".gif", ".avif", ".heic", ".heif"})
#: Listing waits for the disk or the network, so there are more threads than cores.
SCAN_THREADS = 16

# Why a file is left unused; read after a number.
HIDDEN = "hidden"
LOOSE = "loose in the root, outside the class folders"
NOT_AN_IMAGE = "without an image extension"
UNDECODABLE = "GIF/AVIF/HEIC (not decodable)"
SPECIAL = "neither file nor folder (pipe, socket or device)"
LINK_LOOP = "linking back to a folder above (loop)"


@dataclass
class FolderScan:
    """What is below the root of an `ImageFolder`.

    Attributes:
        folders: class folders, sorted.
        counts: images of each class folder, int64.
        names: images relative to the root, folder by folder.
        unused: files that are not samples, by reason.
        excluded_nothing: entries of the exclusion list that match no file or folder.
        reported: whether the user was told of what is unused.
    """

    folders: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    names: NameList
    unused: dict[str, int]
    excluded_nothing: tuple[str, ...] = ()
    reported: bool = False


@dataclass
class Found:
    """What is in one class folder (or loose in the root)."""

    count: int = 0
    blob: bytes = b""
    unused: Counter[str] = field(default_factory=Counter)
    dangling: list[str] = field(default_factory=list)
    excluded: set[str] = field(default_factory=set)


@dataclass
class FolderSurvey:
    """All that was seen below a folder, before it is judged.

    Attributes:
        folders: class folders, sorted.
        found: what is in each of them.
        loose: what is in the root itself.
        loose_images: the root's own files that have an image's extension, sorted.
        excluded: exclusions as paths below the root, and as they were written.
    """

    folders: list[str]
    found: list[Found]
    loose: Found
    loose_images: list[str]
    excluded: dict[str, str]

    @property
    def dangling(self) -> list[str]:
        """Links that lead nowhere, sorted."""
        return sorted(link for part in (self.loose, *self.found) for link in part.dangling)

    @property
    def unused(self) -> Counter[str]:
        """Files that are not samples, by reason."""
        return sum((part.unused for part in self.found), self.loose.unused)

    @property
    def excluded_nothing(self) -> tuple[str, ...]:
        """Exclusions, as they were written, that match no file or folder."""
        matched = self.loose.excluded.union(*(part.excluded for part in self.found))
        return tuple(entry for path, entry in self.excluded.items() if path not in matched)

    @property
    def names(self) -> NameList:
        """Images relative to the root, folder by folder."""
        return NameList(b"".join(part.blob for part in self.found))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Images of each class folder."""
        return np.array([part.count for part in self.found], dtype=np.int64)


def survey_folder(
    root: str, exclude: Sequence[str] = (), extensions: frozenset[str] = IMAGE_EXTENSIONS
) -> FolderSurvey:
    """List what is below `root`, in torchvision's order.

    Raises:
        FileNotFoundError: no such root.
        NotADirectoryError: the root is a file.
        ValueError: a name that is not UTF-8.
    """
    if not os.path.exists(root):
        raise FileNotFoundError(f"no such folder: {root} (seen from {os.getcwd()})")
    if not os.path.isdir(root):
        raise NotADirectoryError(
            f"the root of an image folder must be a folder, {root} is a file (a list? use FileList)"
        )
    excluded = {_relative_to(root, entry): entry for entry in exclude}
    loose, folders = Found(), list[str]()
    loose_images = list[str]()
    for entry, is_folder in _visible(root, "", excluded, loose):
        if is_folder:
            folders.append(entry.name)
        else:
            loose_images += [entry.name] * (_extension(entry.name) in extensions)
            loose.unused[LOOSE] += 1
    folders.sort()
    loose_images.sort()
    with ThreadPoolExecutor(SCAN_THREADS) as pool:
        found = list(pool.map(lambda name: _scan_class(root, name, excluded, extensions), folders))
    return FolderSurvey(folders, found, loose, loose_images, excluded)


def scan_folder(root: str, exclude: Sequence[str] = (), extensions: frozenset[str] = IMAGE_EXTENSIONS) -> FolderScan:
    """List the images (files with one of `extensions`) below `root`, in torchvision's order.

    Raises:
        FileNotFoundError: no such root, or a link that leads nowhere.
        NotADirectoryError: the root is a file.
        ValueError: no class folders, no images at all, or a name that is not UTF-8.
    """
    survey = survey_folder(root, exclude, extensions)
    names, unused = survey.names, survey.unused
    _refuse_dangling(root, survey)
    if not survey.folders:
        raise ValueError(_why_no_classes(root, survey.loose, len(survey.loose_images)))
    if not len(names):
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(unused.items())) or "nothing else"
        raise ValueError(f"no images in the {len(survey.folders)} class folder(s) of {root}; found {counts}")
    return FolderScan(tuple(survey.folders), survey.counts, names, dict(unused), survey.excluded_nothing)


def scan_images(root: str, exclude: Sequence[str] = (), extensions: frozenset[str] = IMAGE_EXTENSIONS) -> FolderScan:
    """List the images below `root`, at whatever depth, as those of one class: first the root's own.

    Raises:
        FileNotFoundError: no such root, or a link that leads nowhere.
        NotADirectoryError: the root is a file.
        ValueError: no images at all, or a name that is not UTF-8.
    """
    survey = survey_folder(root, exclude, extensions)
    _refuse_dangling(root, survey)
    names = NameList(_packed(root, survey.loose_images) + survey.names.blob)
    unused = survey.unused
    others = unused.pop(LOOSE, 0) - len(survey.loose_images)
    if others:
        unused[NOT_AN_IMAGE] += others
    if not len(names):
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(unused.items())) or "nothing else"
        raise ValueError(f"no images in {root}; found {counts}")
    return FolderScan(("",), np.array([len(names)], dtype=np.int64), names, dict(unused), survey.excluded_nothing)


def _refuse_dangling(root: str, survey: FolderSurvey) -> None:
    dangling = survey.dangling
    if dangling:
        more = f" (and {len(dangling) - 1} more such links)" if len(dangling) > 1 else ""
        raise FileNotFoundError(f"link leads nowhere: {os.path.join(root, dangling[0])}{more}")


def _scan_class(root: str, name: str, excluded: Iterable[str], extensions: frozenset[str]) -> Found:
    found = Found()
    images: list[tuple[str, list[str]]] = []
    pending = [name]
    while pending:
        folder = pending.pop()
        here: list[str] = []
        for entry, is_folder in _visible(root, folder, excluded, found):
            if is_folder:
                pending.append(f"{folder}/{entry.name}")
            elif (extension := _extension(entry.name)) in extensions:
                here.append(entry.name)
            else:
                found.unused[UNDECODABLE if extension in UNDECODABLE_EXTENSIONS else NOT_AN_IMAGE] += 1
        here.sort()
        images.append((folder, here))
        found.count += len(here)
    images.sort()
    found.blob = _packed(root, [f"{folder}/{file}" for folder, files in images for file in files])
    return found


def _packed(root: str, names: Sequence[str]) -> bytes:
    try:
        return pack(names)
    except UnicodeEncodeError:
        wrong = os.fsencode(next(name for name in names if not is_utf8(name)))
        raise ValueError(f"file names must be UTF-8, got {wrong!r} in {root}; rename or exclude it") from None


def _visible(root: str, folder: str, excluded: Iterable[str], found: Found) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Files and folders (True) of `root/folder` that are data; the others are booked in `found`."""
    with os.scandir(os.path.join(root, folder)) as entries:
        for entry in entries:
            name = entry.name
            if excluded and (relative := _below(folder, name)) in excluded:
                found.excluded.add(relative)
            elif name[0] == ".":
                found.unused[HIDDEN] += 1
            elif entry.is_file(follow_symlinks=False):
                yield entry, False
            elif entry.is_dir(follow_symlinks=False):
                yield entry, True
            elif not os.path.exists(entry.path):
                found.dangling.append(_below(folder, name))
            elif os.path.isdir(entry.path):
                if _leads_back(root, _below(folder, name)):
                    found.unused[LINK_LOOP] += 1
                else:
                    yield entry, True
            elif os.path.isfile(entry.path):
                yield entry, False
            else:
                found.unused[SPECIAL] += 1


def _leads_back(root: str, link: str) -> bool:
    """Whether the folder that `link` leads to is one of those that lead to the link."""
    target = os.stat(os.path.join(root, link))
    above = os.path.dirname(link)
    while not os.path.samestat(target, os.stat(os.path.join(root, above))):
        if not above:
            return False
        above = os.path.dirname(above)
    return True


def _relative_to(root: str, entry: str) -> str:
    """An exclusion as a path below `root`: it may be one, as samples' names are, be absolute, or begin with the root.

    What is there by the first reading is meant by it: a class may be called like the root, or `~`.
    """
    path = os.path.normpath(entry)
    if not os.path.isabs(path) and os.path.lexists(os.path.join(root, path)):
        return path
    path = os.path.normpath(os.path.expanduser(entry))
    if os.path.isabs(path):
        return os.path.relpath(path, os.path.abspath(root))
    start = os.path.join(os.path.normpath(root), "")
    return path.removeprefix(start) if start != "./" else path


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _extension(name: str) -> str:
    """What follows the last dot, with it, in lower case; something that is no extension when there is no dot."""
    return name[name.rfind(".") :].lower()


def _why_no_classes(root: str, loose: Found, loose_images: int) -> str:
    if loose_images:
        images = "1 loose image" if loose_images == 1 else f"{loose_images} loose images"
        return f"class sub-folders expected, {images} found in {root}"
    if not loose.unused:
        return f"class sub-folders expected, {root} is empty{' but for what is excluded' if loose.excluded else ''}"
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(loose.unused.items()))
    return f"class sub-folders expected in {root}, found only files: {counts}"
