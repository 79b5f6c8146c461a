"""Finding the library: what it says of itself, and why it is not used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specdec.engines.native.library import FILE, inspect_library
from tests.engines.native.conftest import ARM
from tests.engines.native.graphs import Library

SAY = """
import sys
from pathlib import Path
from specdec.engines.native.library import inspect_library
found = inspect_library(Path(sys.argv[1]))
print(found.path is not None, found.isa, found.reason, sep="|")
"""


def say(switch: str, file: Path = FILE) -> str:
    """Ask in a new process, as a file chooses once in each."""
    environment = {**os.environ, "SPECDEC_NATIVE": switch}
    command = [sys.executable, "-c", SAY, str(file)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_every_set_by_its_name(libraries: dict[str, Library]) -> None:
    for isa in libraries:
        assert say(isa) == f"True|{isa}|"
    assert say("") == f"True|{next(iter(libraries))}|"


def test_switched_off(libraries: dict[str, Library]) -> None:
    assert say("off") == "False||switched off by SPECDEC_NATIVE=off"


def test_unknown_and_foreign_sets(libraries: dict[str, Library]) -> None:
    names = "neon" if ARM else "avx512, avx2-vnni, avx2"
    foreign = "avx2" if ARM else "neon"
    for wrong in (foreign, "AVX512", "x" * 100):
        line = f"SPECDEC_NATIVE={wrong[:40]} is not one of off, {names}"
        assert say(wrong) == f"False||{line}"


def test_absent_and_broken_files(tmp_path: Path, libraries: dict[str, Library]) -> None:
    absent = inspect_library(tmp_path / "libspecdec_native.so")
    assert absent.path is None
    assert absent.reason == "this installation has no compiled native operators"
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    found = inspect_library(broken)
    assert found.path is None
    assert found.reason.startswith("broken.so does not load: ")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_another_version_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("int specdec_native_version(void) { return 0; }")
    old = tmp_path / "old.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(old)], check=True)
    found = inspect_library(old)
    assert found.path is None
    assert found.reason == "old.so has version 0, this package needs 1: reinstall"


def test_registering_says_why_not(libraries: dict[str, Library]) -> None:
    """A session that registers the file all the same gets the line, not a crash."""
    code = (
        "import onnxruntime as o, sys\n"
        "try: o.SessionOptions().register_custom_ops_library(sys.argv[1])\n"
        "except Exception as error: print(error)"
    )
    environment = {**os.environ, "SPECDEC_NATIVE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(FILE)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "switched off by SPECDEC_NATIVE=off" in done.stdout
