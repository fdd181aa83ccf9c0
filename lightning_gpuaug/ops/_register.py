"""Complete the ops for torch: the plain-torch kernels where no native one serves, and the fakes for torch.compile."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops import _random_crops, _register_augment, _register_records, _uniforms, reference
from lightning_gpuaug.ops._checks import check_normalize_tensors
from lightning_gpuaug.ops._load import NATIVE, native_required, require_ops

NAMESPACE = "lightning_gpuaug"
# The schemas of csrc/library.cpp, for when that library is not there. A test keeps the two equal.
SCHEMAS = {
    "normalize": "normalize(Tensor x, float[] mean, float[] std, Tensor? flip=None, ScalarType dtype=float, "
    "bool channels_last=True) -> Tensor",
    "resize_packed": "resize_packed(Tensor data, Tensor offsets, Tensor sizes, int height, int width, float[] mean, "
    "float[] std, Tensor? flip=None, ScalarType dtype=float, bool channels_last=True, int interpolation=1, "
    "bool antialias=True) -> Tensor",
    "image_sizes": "image_sizes(Tensor paths, bool exif_orientation=False, int threads=1) -> Tensor",
    **_register_augment.SCHEMAS,
    **_register_records.SCHEMAS,
    **_uniforms.SCHEMAS,
    **_random_crops.SCHEMAS,
}

_warning_lock = threading.Lock()
_warned = False


def note_fallback(device: torch.device) -> None:
    """Warn once a process that plain torch serves the ops, or raise where `GPUAUG_REQUIRE_NATIVE=1` forbids it."""
    global _warned
    missing = NATIVE.cpu_missing or NATIVE.cuda_missing or "there are kernels for cpu and cuda only"
    if native_required():
        raise RuntimeError(f"GPUAUG_REQUIRE_NATIVE=1, but no native op serves {device}: {missing}")
    with _warning_lock:
        if _warned:
            return
        _warned = True
    warnings.warn(
        f"lightning_gpuaug.ops: plain torch (correct, slower) serves {device}: {missing}. "
        "`pip install --no-build-isolation .` builds the native ops.",
        stacklevel=5,
    )


def _normalize_fallback(
    x: torch.Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    note_fallback(x.device)
    return reference.normalize(x, mean, std, flip, dtype, channels_last)


def _normalize_fake(
    x: torch.Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    check_normalize_tensors(x, flip, dtype)
    return reference.new_images(x, dtype, channels_last)


def _resize_packed_fallback(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    height: int,
    width: int,
    mean: Sequence[float],
    std: Sequence[float],
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    interpolation: int = 1,
    antialias: bool = True,
) -> torch.Tensor:
    note_fallback(data.device)
    pixels = reference.resize_packed(data, offsets, sizes, height, width, interpolation, antialias)
    return reference.normalize(pixels, mean, std, flip, dtype, channels_last)


def _resize_packed_fake(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    height: int,
    width: int,
    mean: Sequence[float],
    std: Sequence[float],
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    interpolation: int = 1,
    antialias: bool = True,
) -> torch.Tensor:
    return reference.new_images(data.new_empty((offsets.shape[0], height, width, 3)), dtype, channels_last)


def _image_sizes_fallback(paths: torch.Tensor, exif_orientation: bool = False, threads: int = 1) -> torch.Tensor:
    return paths.new_zeros((paths.shape[0], 2), dtype=torch.int32)  # unknown, all of them


def _image_sizes_fake(paths: torch.Tensor, exif_orientation: bool = False, threads: int = 1) -> torch.Tensor:
    return paths.new_empty((paths.shape[0], 2), dtype=torch.int32)


def _register() -> torch.library.Library:
    require_ops(NATIVE, SCHEMAS)
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    if NATIVE.cpu is None:
        for schema in SCHEMAS.values():
            library.define(schema)  # type: ignore[no-untyped-call]
    # Serves every device without a kernel of its own: the native kernels are registered for CPU and CUDA themselves.
    library.impl("normalize", _normalize_fallback, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::normalize", _normalize_fake, lib=library)
    library.impl("resize_packed", _resize_packed_fallback, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::resize_packed", _resize_packed_fake, lib=library)
    library.impl("image_sizes", _image_sizes_fallback, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::image_sizes", _image_sizes_fake, lib=library)
    _register_augment.register(library, note_fallback)
    _register_records.register(library)
    _uniforms.register(library)
    _random_crops.register(library)
    return library


LIBRARY = _register()  # kept: the registrations end with this object
