"""Missing libraries of ONNX Runtime's providers are named, with real libraries that lack one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from specdec.engines.errors import DeviceError
from specdec.engines.onnxruntime.libraries import load_provider
from tests.engines.packages import assert_one_line

COMPILER = shutil.which("cc")
TOP = Path(__file__).resolve().parents[3]
needs_compiler = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="makes ELF libraries with a C compiler"
)


def library(folder: Path, name: str, *arguments: str) -> Path:
    """An empty shared library, linked as asked."""
    assert COMPILER is not None
    source = folder / "empty.c"
    source.write_text("int specdec_empty(void) { return 0; }\n")
    out = folder / name
    line = [COMPILER, "-shared", "-fPIC", str(source), "-o", str(out), *arguments]
    subprocess.run(line, check=True)
    return out


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "missing"),
    [("tensorrt", "libspecdec_nvinfer.so.10"), ("cuda", "libspecdec_cudnn.so.9")],
)
def test_the_missing_library_is_named(tmp_path: Path, kind: str, missing: str) -> None:
    library(tmp_path, "libonnxruntime_providers_shared.so")
    needed = library(tmp_path, missing, f"-Wl,-soname,{missing}")
    linked = ("-Wl,--no-as-needed", str(needed))
    library(tmp_path, f"libonnxruntime_providers_{kind}.so", *linked)
    needed.unlink()
    with pytest.raises(DeviceError, match=f"cannot use it: {missing}: cannot open") as caught:
        load_provider(tmp_path, kind, "cannot use it", "install it")
    assert assert_one_line(caught.value).endswith("; install it")


@needs_compiler
def test_complete_libraries_pass(tmp_path: Path) -> None:
    for name in ("shared", "tensorrt"):
        library(tmp_path, f"libonnxruntime_providers_{name}.so")
    load_provider(tmp_path, "tensorrt", "", "")


def test_a_build_without_the_provider_is_left_to_onnx_runtime(tmp_path: Path) -> None:
    load_provider(tmp_path, "tensorrt", "", "")


def test_the_provider_gets_the_tensorrt_it_is_linked_to() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "tensorrt>=10.15,<11" in extras["onnxruntime-tensorrt"]
    assert extras["tensorrt"] == ["tensorrt>=10.15"], "the backend itself takes 10.x and 11.x"


def test_heads_use_no_kernel_that_needs_cudnn() -> None:
    """On CUDA ReduceMax needs it; ArgMax, TopK and ReduceSum of the last axis do without."""
    heads = sorted((TOP / "engines" / "onnxruntime" / "heads").glob("*.onnx"))
    used = {node.op_type for head in heads for node in onnx.load(head).graph.node}
    assert used == {
        *("Constant", "Identity", "Slice", "ArgMax", "GatherElements", "Squeeze", "Equal"),
        *("Cast", "ReduceSum", "TopK", "Gather", "Sub", "Mul", "Exp"),
    }
