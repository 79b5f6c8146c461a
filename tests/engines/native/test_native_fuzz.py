"""The kernels under sanitizers: random sizes, buffers of exactly the sizes they may touch."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engines.native.graphs import Library

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executable, compiled with the flags of the library."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    spec = importlib.util.spec_from_file_location("native", ROOT / "scripts" / "native_library.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    folder = tmp_path_factory.mktemp("fuzz")
    machine = platform.machine()
    files: dict[Path, list[str]] = {HERE / "fuzz.cc": []}
    for path, flags in {**script.sources(machine), **script.sources("reference")}.items():
        if path.name == "isa.cc" or path.stem.partition("_")[0] == "kernels":
            files[path] = flags
    common = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-uninitialized", *SANITIZE]
    common += ["-Wno-maybe-uninitialized", f"-I{script.SOURCE}"]

    def compile_one(path: Path) -> str:
        out = str(folder / f"{path.stem}.o")
        command = ["c++", *common, *files[path], "-c", str(path), "-o", out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, files))
    program = folder / "fuzz"
    link = ["c++", *SANITIZE, *objects, "-o", str(program)]
    done = subprocess.run(link, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    return program


def test_random_products(fuzz: Path, libraries: dict[str, Library]) -> None:
    """Every table agrees with sums in double and touches nothing that is not its own."""
    done = subprocess.run([str(fuzz), "25"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert set(done.stdout.split()) == {"portable", *libraries}
