"""The compiled library, once for every instruction set that this processor has."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from specdec.engines.native.library import FILE, inspect_library
from tests.engines.native.graphs import Library

ARM = platform.machine() == "aarch64"
SETS = ("neon",) if ARM else ("avx512", "avx2-vnni", "avx2")


@pytest.fixture(scope="session")
def native_script() -> ModuleType:
    """scripts/native_library.py, which compiles the library."""
    path = Path(__file__).parents[3] / "scripts" / "native_library.py"
    spec = importlib.util.spec_from_file_location("native_library", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Library]:
    """Copies of the library by instruction set: a file chooses once, when it is loaded."""
    if not FILE.is_file():
        pytest.skip("this installation has no compiled native operators")
    folder = tmp_path_factory.mktemp("native")
    found = {}
    for isa in SETS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPECDEC_NATIVE", isa)
            got = inspect_library(Path(shutil.copyfile(FILE, folder / f"{isa}.so")))
        if got.path is not None:
            assert got.isa == isa
            found[isa] = Library(got.path)
    assert found, f"no instruction set of {SETS} on {platform.machine()}"
    return found


@pytest.fixture(params=SETS)
def library(request: pytest.FixtureRequest, libraries: dict[str, Library]) -> Library:
    """The library of one instruction set; skipped where the processor has it not."""
    if request.param not in libraries:
        pytest.skip(f"this processor has no {request.param}")
    return libraries[request.param]
