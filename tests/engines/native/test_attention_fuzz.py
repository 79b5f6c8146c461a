"""Random passes of attention under sanitizers, for each instruction set; ARM64's under qemu."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "engines" / "native" / "source"
FILES = ("attention_pass.cc", "attention_plan.cc", "isa.cc", "ort.cc")
FLAGS = ["-g", "-O1", "-std=c++17", "-ffp-contract=off", f"-I{SOURCE}"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
AVX2 = ["-mavx2", "-mf16c", "-mfma"]
AVX512 = [*AVX2, *(f"-mavx512{x}" for x in ("f", "bw", "vl", "dq", "vnni"))]
SECONDS = "1"


def build(compiler: str, kernels: dict[str, list[str]], flags: list[str], folder: Path) -> Path:
    """Compile the fuzzer with these files of kernels, each with its own flags."""
    files = {SOURCE / f: [] for f in FILES} | {SOURCE / f: own for f, own in kernels.items()}
    files[Path(__file__).with_name("attention_fuzz.cc")] = []
    objects = [str(folder / f"{f.stem}.o") for f in files]

    def run(*command: str) -> None:
        done = subprocess.run([compiler, *FLAGS, *flags, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = zip(files.items(), objects, strict=True)
        list(pool.map(lambda job: run(*job[0][1], "-c", str(job[0][0]), "-o", job[1]), jobs))
    run(*objects, "-o", str(folder / "fuzz"), "-lpthread")
    return folder / "fuzz"


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.uname().machine != "x86_64" or not shutil.which("g++"):
        pytest.skip("needs g++ on x86-64")
    kernels = {"attention_avx512.cc": AVX512, "attention_avx2.cc": AVX2}
    return build("g++", kernels, SANITIZERS, tmp_path_factory.mktemp("fuzz"))


def check(command: list[str], isa: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"SPECDEC_NATIVE": isa}
    )
    if done.returncode == 2 and "this processor has no" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"passes with {isa}" in done.stdout


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_passes_under_sanitizers(sanitized: Path, isa: str) -> None:
    check([str(sanitized), "1", SECONDS], isa)


def test_passes_of_neon(tmp_path: Path) -> None:
    compiler, machine = "aarch64-linux-gnu-g++", "qemu-aarch64"
    if not shutil.which(compiler) or not shutil.which(machine):
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    flags = ["-march=armv8.2-a+dotprod+fp16", "-static"]
    fuzz = build(compiler, {"attention_neon.cc": []}, flags, tmp_path)
    check([machine, str(fuzz), "1", SECONDS], "neon")
