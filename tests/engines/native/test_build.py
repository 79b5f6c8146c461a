"""Compiling the library: what is chosen for a machine, and the one line where it cannot be done."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from specdec.engines.native.library import FILE

OLDEST_GLIBC = (2, 24)  # the tag scripts/native_wheels.sh gets


def fake_compiler(folder: Path, says: str) -> str:
    """Return a compiler that only names its machine."""
    path = folder / "c++"
    path.write_text(f"#!/bin/sh\n[ $1 = -dumpmachine ] && echo {says} && exit\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def test_no_compiler(
    native_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native_script.CannotBuildError, match=r"^no C\+\+ compiler .* was found$"):
        native_script.build(tmp_path)
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(native_script.CannotBuildError, match="does not start: No such file"):
        native_script.build(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("triple", "line"),
    [
        ("riscv64-linux-gnu", "there are native operators for x86_64, aarch64, not riscv64"),
        ("x86_64-apple-darwin22", "the native operators need Linux, the compiler is for x86_64-"),
        ("x86_64-linux-gnu", r"c\+\+ failed: no message"),
    ],
)
def test_compilers_that_will_not_do(
    native_script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    triple: str,
    line: str,
) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, triple))
    with pytest.raises(native_script.CannotBuildError, match=line) as caught:
        native_script.build(tmp_path / "out")
    assert len(str(caught.value).splitlines()) == 1


def test_each_machine_compiles_its_own_sets(native_script: ModuleType) -> None:
    names = {m: {path.name for path in native_script.sources(m)} for m in native_script.SUFFIXES}
    assert "kernels_neon.cc" in names["aarch64"] - names["x86_64"]
    assert {"kernels_avx512.cc", "kernels_avx2.cc"} <= names["x86_64"] - names["aarch64"]
    assert {"register.cc", "isa.cc"} <= names["x86_64"] & names["aarch64"]
    baseline = native_script.sources("x86_64")[native_script.SOURCE / "operators_product.cc"]
    assert not baseline, "code that runs before the choice must run on every processor"


def test_an_old_system_will_do(native_script: ModuleType) -> None:
    """No newer function of glibc, no C++ runtime, and nothing shown but the entries."""
    if not FILE.is_file() or shutil.which("objdump") is None:
        pytest.skip("no compiled library, or no objdump")

    def dump(flag: str) -> str:
        return subprocess.run(
            ["objdump", flag, str(FILE)], capture_output=True, text=True, check=True
        ).stdout

    symbols = dump("-T")
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert max(versions) <= OLDEST_GLIBC
    needed = set(re.findall(r"NEEDED\s+(\S+)", dump("-p")))
    assert {name.partition(".")[0] for name in needed} <= {
        "libc",
        "libm",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
        "libpthread",
    }
    shown = {line.split()[-1] for line in symbols.splitlines() if " g " in line}
    assert shown == {
        "RegisterCustomOps",
        "specdec_native_isa",
        "specdec_native_reason",
        "specdec_native_version",
    }
