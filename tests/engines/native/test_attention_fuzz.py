"""Random passes of attention under sanitizers, for each instruction set; ARM64's under qemu."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SCRIPT = HERE.parents[2] / "scripts" / "native_library.py"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SECONDS = "1"


def build(compiler: str, machine: str, flags: list[str], folder: Path) -> Path:
    """Compile the fuzzer and the attention of one machine, with the library's own flags."""
    spec = importlib.util.spec_from_file_location("native_library", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    files = {HERE / "attention_fuzz.cc": []} | {
        path: own
        for path, own in script.sources(machine).items()
        if path.stem in ("isa", "ort") or path.stem.startswith("attention_")
    }
    common = [compiler, *script.FLAGS, "-O1", "-g1", f"-I{script.SOURCE}", *flags]

    def run(*command: str) -> None:
        done = subprocess.run([*common, *command], capture_output=True, text=True, check=False)
        if "cannot find" in done.stderr and "san" in done.stderr:
            pytest.skip("the compiler has no sanitizers")
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    objects = [str(folder / f"{path.stem}.o") for path in files]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = zip(files.items(), objects, strict=True)
        list(pool.map(lambda job: run(*job[0][1], "-c", str(job[0][0]), "-o", job[1]), jobs))
    run(*objects, "-o", str(folder / "fuzz"), "-lpthread")
    return folder / "fuzz"


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    return build("c++", platform.machine(), SANITIZERS, tmp_path_factory.mktemp("fuzz"))


def check(command: list[str], isa: str) -> None:
    environment = os.environ | {"SPECDEC_NATIVE": isa}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"passes with {isa}" in done.stdout


@pytest.mark.parametrize("isa", ["neon"] if platform.machine() == "aarch64" else ["avx512", "avx2"])
def test_passes_under_sanitizers(sanitized: Path, isa: str) -> None:
    check([str(sanitized), "1", SECONDS], isa)


def test_passes_of_neon(tmp_path: Path) -> None:
    compiler, machine = "aarch64-linux-gnu-g++", "qemu-aarch64"
    if not shutil.which(compiler) or not shutil.which(machine):
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    fuzz = build(compiler, "aarch64", ["-static"], tmp_path)
    check([machine, str(fuzz), "1", SECONDS], "neon")
