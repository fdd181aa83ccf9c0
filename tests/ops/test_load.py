"""Finding and loading the native libraries, and plain torch in their place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops._load import CPU_LIBRARY, CUDA_LIBRARY, NATIVE, NativeLibraries, load_native, require_ops

REPOSITORY = Path(__file__).resolve().parents[2]
needs_native = pytest.mark.skipif(NATIVE.cpu is None, reason="the native CPU library is not built")


def run_python(code: str, native_dir: Path, **environment: str) -> dict[str, object]:
    """Run code in a fresh interpreter that takes its libraries from native_dir; its last line of output is JSON."""
    environment = {k: v for k, v in os.environ.items() if k != "GPUAUG_REQUIRE_NATIVE"} | environment
    environment |= {"GPUAUG_NATIVE_DIR": str(native_dir), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_loaded_is_what_is_reported():
    info = ops.build_info()
    assert info["torch"] == torch.__version__
    for device, path, missing in (
        ("cpu", info["cpu_library"], info["cpu_missing"]),
        ("cuda", info["cuda_library"], info["cuda_missing"]),
    ):
        assert (ops.backend(device) == f"native-{device}") == (path is not None)
        assert (path is None) == (missing is not None)
        assert path is None or Path(path).is_file()
    assert ops.backend("meta") == "torch"


@needs_native
def test_build_info_of_the_libraries():
    info = ops.build_info()
    assert info["torch_target"] == "2.11"
    assert info["compiler"]
    assert info["torch_headers"]
    if NATIVE.cuda:
        assert int(info["cuda"].split(".")[0]) >= 12
        assert info["cuda_archs"].startswith(tuple("123456789"))


@needs_native
def test_required_and_there(monkeypatch):
    """CI sets GPUAUG_REQUIRE_NATIVE=1: the libraries that are there satisfy it."""
    monkeypatch.setenv("GPUAUG_REQUIRE_NATIVE", "1")
    x = torch.zeros(1, 2, 2, 3, dtype=torch.uint8)
    assert ops.normalize(x).sum() == 0


def test_required_and_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUAUG_NATIVE_DIR", str(tmp_path))
    monkeypatch.setenv("GPUAUG_REQUIRE_NATIVE", "1")
    with pytest.raises(RuntimeError, match=rf"GPUAUG_REQUIRE_NATIVE=1, but .*{CPU_LIBRARY} not found"):
        load_native()


def test_a_corrupt_library_is_an_error(monkeypatch, tmp_path):
    (tmp_path / CPU_LIBRARY).write_bytes(b"not a library")
    monkeypatch.setenv("GPUAUG_NATIVE_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match=rf"{tmp_path / CPU_LIBRARY} is there but does not load") as error:
        load_native()
    assert len(str(error.value).splitlines()) == 1


@needs_native
def test_a_library_of_another_torch_is_an_error_that_names_the_symbol(monkeypatch, tmp_path):
    binary = NATIVE.cpu.read_bytes()
    assert b"\0torch_parallel_for\0" in binary
    (tmp_path / CPU_LIBRARY).write_bytes(binary.replace(b"\0torch_parallel_for\0", b"\0torch_parallel_fox\0"))
    monkeypatch.setenv("GPUAUG_NATIVE_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"does not load with torch .*: undefined symbol: torch_parallel_fox"):
        load_native()


def test_a_cuda_library_alone_is_an_error(monkeypatch, tmp_path):
    (tmp_path / CUDA_LIBRARY).write_bytes(b"")
    monkeypatch.setenv("GPUAUG_NATIVE_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match=rf"{CUDA_LIBRARY} is there without {CPU_LIBRARY}"):
        load_native()


def test_without_libraries_plain_torch_serves_and_warns_once(tmp_path):
    got = run_python(
        """
import json, warnings, torch
with warnings.catch_warnings(record=True) as at_import:
    warnings.simplefilter("always")
    from lightning_gpuaug import ops
x = torch.arange(2 * 2 * 3 * 3, dtype=torch.uint8).view(2, 2, 3, 3)
flip = torch.tensor([True, False])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    first = ops.normalize(x, flip=flip)
    again = ops.normalize(x, flip=flip)
    compiled = torch.compile(lambda x: ops.normalize(x, flip=flip), backend="aot_eager", fullgraph=True)(x)
    opcheck = torch.library.opcheck(
        torch.ops.lightning_gpuaug.normalize.default, (x, (0., 0., 0.), (1., 1., 1.), flip)
    )
print(json.dumps({
    "backends": [ops.backend("cpu"), ops.backend("cuda")],
    "info": ops.build_info(),
    "ours": [str(w.message) for w in [*at_import, *caught] if "lightning_gpuaug" in str(w.message)],
    "value": first[0, 0, 0].tolist(),
    "same": torch.equal(first, again) and torch.equal(first, compiled),
    "opcheck": sorted(set(opcheck.values())),
    "schema": str(torch.ops.lightning_gpuaug.normalize.default._schema),
}))
""",
        tmp_path,
    )
    assert got["backends"] == ["torch", "torch"]
    (warning,) = got["ours"]
    assert f"plain torch (correct, slower) serves cpu: {tmp_path / CPU_LIBRARY} not found" in warning
    assert got["info"]["cpu_library"] is None
    assert CPU_LIBRARY in got["info"]["cpu_missing"]
    assert got["value"] == pytest.approx([6 / 255, 3 / 255, 0])
    assert got["same"]
    assert got["opcheck"] == ["SUCCESS"]
    if NATIVE.cpu:  # the schema is written twice: in csrc/library.cpp and, for this case, in Python
        assert got["schema"] == str(torch.ops.lightning_gpuaug.normalize.default._schema)


@needs_native
def test_the_cpu_library_alone(tmp_path):
    """What a CPU-only torch loads; with a CUDA torch, CUDA tensors fall back to plain torch."""
    shutil.copy(NATIVE.cpu, tmp_path)
    got = run_python(
        """
import json, torch
from lightning_gpuaug import ops
from lightning_gpuaug.ops import _register
value = ops.normalize(torch.full((1, 1, 1, 3), 255, dtype=torch.uint8)).sum().item()
try:
    _register.note_fallback(torch.device("cuda"))
    error = None
except RuntimeError as e:
    error = str(e)
print(json.dumps({"backends": [ops.backend("cpu"), ops.backend("cuda")], "info": ops.build_info(), "value": value,
                  "error": error}))
""",
        tmp_path,
        GPUAUG_REQUIRE_NATIVE="1",
    )
    assert got["backends"] == ["native-cpu", "torch"]
    assert got["value"] == 3.0
    assert got["info"]["cuda"] is None
    assert got["info"]["cuda_missing"]
    assert got["error"] == (f"GPUAUG_REQUIRE_NATIVE=1, but no native op serves cuda: {got['info']['cuda_missing']}")


@needs_native
@pytest.mark.skipif(NATIVE.cuda is None, reason="the native CUDA library is not built")
def test_a_torch_without_cuda_leaves_the_cuda_library_alone(monkeypatch, tmp_path):
    (tmp_path / CPU_LIBRARY).symlink_to(NATIVE.cpu)
    (tmp_path / CUDA_LIBRARY).write_bytes(b"never opened")
    monkeypatch.setenv("GPUAUG_NATIVE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", None)
    native = load_native()
    assert native.cuda is None
    assert native.cuda_missing == f"torch {torch.__version__} is built without CUDA"


def test_a_library_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    loaded = NativeLibraries(tmp_path / CPU_LIBRARY, None, "", "not built")
    require_ops(loaded, ["normalize", "image_sizes"])
    with pytest.raises(RuntimeError, match=r"cpu\.so was built from another version .*: it has no sharpen; rebuild it"):
        require_ops(loaded, ["normalize", "sharpen"])
    require_ops(NativeLibraries(None, None, "not built", "not built"), ["sharpen"])  # plain torch serves it
