"""The products' kernels with random sizes: under sanitizers here, ARM64's under qemu."""

from __future__ import annotations

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from tests.engines.native.graphs import Library

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]


def build(script: ModuleType, compiler: str, machine: str, flags: list[str], folder: Path) -> Path:
    """Compile the executable with the flags of the library and `flags`; return its path."""
    files = {HERE / "fuzz.cc": []} | {
        path: own
        for path, own in script.sources(machine).items()
        if path.stem == "isa" or path.stem.startswith("kernels_")
    }
    common = [compiler, *script.FLAGS, "-O1", f"-I{script.SOURCE}", *flags]

    def run(*command: str) -> None:
        done = subprocess.run([*common, *command], capture_output=True, text=True, check=False)
        if "cannot find" in done.stderr and "san" in done.stderr:
            pytest.skip("the compiler has no sanitizers")
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    objects = [str(folder / f"{path.stem}.o") for path in files]
    with ThreadPoolExecutor(2) as pool:
        jobs = zip(files.items(), objects, strict=True)
        list(pool.map(lambda job: run(*job[0][1], "-c", str(job[0][0]), "-o", job[1]), jobs))
    run(*objects, "-o", str(folder / "fuzz"))
    return folder / "fuzz"


def test_random_products_under_sanitizers(
    native_script: ModuleType, libraries: dict[str, Library], tmp_path: Path
) -> None:
    """Every table agrees with sums in double and touches nothing that is not its own."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    fuzz = build(native_script, "c++", platform.machine(), SANITIZE, tmp_path)
    done = subprocess.run([str(fuzz), "25"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.split() == list(libraries)


def test_random_products_of_neon(native_script: ModuleType, tmp_path: Path) -> None:
    compiler, machine = "aarch64-linux-gnu-g++", "qemu-aarch64"
    if not shutil.which(compiler) or not shutil.which(machine):
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    fuzz = build(native_script, compiler, "aarch64", ["-static", "-O2"], tmp_path)
    done = subprocess.run([machine, str(fuzz), "40"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout == "neon\n"
