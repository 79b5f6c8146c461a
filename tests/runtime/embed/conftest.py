"""The C library and every C and C++ program, built once per session with CMake."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STRICT = "-Wall -Wextra -Werror -pedantic"
# Where scripts/native_headers.sh unpacks what the system does not have.
ORT_HEADERS = ROOT / "build" / "native-headers" / "usr" / "include" / "onnxruntime"

Run = Callable[..., str]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefix with the library, its headers and its CMake package."""
    for tool in ("c++", "cc", "cmake"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pytest.importorskip("cffi", reason="writes the C code of the library")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("this Python has no shared library to embed")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("the headers of this Python are not installed")
    prefix = tmp_path_factory.mktemp("embed") / "prefix"
    command = [sys.executable, "-m", "specdec.runtime.embed", "build", "--out", str(prefix)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{prefix / 'lib' / 'libspecdec.so'}\n"
    wrote = "wrote include/ (specdec.h, specdec.hpp, specdec_types.hpp), lib/libspecdec.so and"
    assert done.stderr.startswith(wrote)
    assert done.stderr.endswith(f"-DCMAKE_PREFIX_PATH={prefix}\n")
    return prefix


@pytest.fixture(scope="session")
def programs(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of tests/runtime/embed/native."""
    sources = ROOT / "tests/runtime/embed/native"
    return build(sources, tmp_path_factory.mktemp("programs"), installed)


@pytest.fixture(scope="session")
def examples(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of examples/cpp; some may be missing with what they need."""
    options = [f"-DONNXRUNTIME_LIBRARY={library}" for library in wheel_libraries()]
    if ORT_HEADERS.is_dir():
        options.append(f"-DONNXRUNTIME_INCLUDE_DIR={ORT_HEADERS}")
    folder = tmp_path_factory.mktemp("examples")
    return build(ROOT / "examples/cpp", folder, installed, *options)


@pytest.fixture
def run(programs: Path) -> Run:
    """Run a test program and return its stdout; it must succeed and be quiet on stderr."""

    def run_program(name: str, *arguments: object, timeout: float = 120) -> str:
        return call(programs / name, *arguments, timeout=timeout)

    return run_program


@pytest.fixture(scope="session")
def alphabet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that recites the alphabet: every answer is known."""
    pytest.importorskip("onnx", reason="builds its graphs with the onnx package")
    from tests.cli.alphabet_package import write_alphabet_package

    return write_alphabet_package(tmp_path_factory.mktemp("alphabet") / "package")


def call(program: Path, *arguments: object, timeout: float = 120) -> str:
    """Stdout of a program that succeeds and says nothing on stderr."""
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def build(source: Path, folder: Path, prefix: Path, *options: str) -> Path:
    """Configure and build a CMake project against `prefix`."""
    flags = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={STRICT}", *options]
    if (source / "plain_c.c").exists():
        flags.append(f"-DCMAKE_C_FLAGS={STRICT}")
    commands = (
        ["cmake", "-S", str(source), "-B", str(folder), *flags],
        ["cmake", "--build", str(folder), "--parallel", "2"],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def wheel_libraries() -> list[Path]:
    """`libonnxruntime.so.*` of the installed ONNX Runtime wheel, if it ships one."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("capi/libonnxruntime.so.1.*"))[:1]
