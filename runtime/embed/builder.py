"""Build `libspecdec.so`, its headers and its CMake package.

    DIR/include/specdec.h, specdec.hpp, specdec_types.hpp
    DIR/lib/libspecdec.so
    DIR/lib/cmake/specdec/specdecConfig.cmake, specdecConfigVersion.cmake

cffi writes the C code that carries calls into Python; the compilers are called directly, so
setuptools is not needed. The library remembers this interpreter and starts that environment.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specdec.engines.release import VERSION
from specdec.engines.storage.writing import write_file
from specdec.runtime.embed.errors import BuildError
from specdec.runtime.errors import MissingDependencyError

__all__ = ["build_library"]

NATIVE = Path(__file__).parent / "native"
_HEADERS = ("specdec.h", "specdec.hpp", "specdec_types.hpp")
_SOURCES = ("callbacks.cpp", "start.cpp", "api.cpp")
_MODULE = "_specdec_embed"
_STARTUP = f"""
from {_MODULE} import ffi, lib
from specdec.runtime.embed.c_api import attach, report

@ffi.def_extern(error=0)
def specdec_py_start():
    try:
        attach(ffi, lib)
    except BaseException as error:
        return report(lib, error)
    return lib.SPECDEC_ATTACHED
"""


def build_library(out: Path) -> Path:
    """Write headers, library and CMake package below `out`; returns the library's path.

    `CC`, `CXX`, `CFLAGS`, `CXXFLAGS` and `LDFLAGS` are honoured.

    Raises:
        MissingDependencyError: cffi is not installed.
        BuildError: this Python has no shared library or headers, or a compiler failed.
    """
    library_flags = _python_flags()
    include, lib = out / "include", out / "lib"
    cmake = lib / "cmake" / "specdec"
    for folder in (include, lib, cmake):
        folder.mkdir(parents=True, exist_ok=True)
    library = lib / "libspecdec.so"
    with tempfile.TemporaryDirectory() as scratch:
        finished = _compile(Path(scratch), library_flags)
        write_file(library, finished.read_bytes())
    library.chmod(0o755)
    for header in _HEADERS:
        write_file(include / header, (NATIVE / header).read_bytes())
    for template in ("specdecConfig.cmake", "specdecConfigVersion.cmake"):
        text = (NATIVE / template).read_text(encoding="utf-8")
        write_file(cmake / template, text.replace("@VERSION@", VERSION))
    return library


def declarations(header: Path, part: str) -> str:
    """The lines of a header between `[part]` and `[end of part]`."""
    text = header.read_text(encoding="utf-8")
    found = re.search(rf"/\* \[{part}\] \*/\n(.*?)/\* \[end of {part}\] \*/", text, re.DOTALL)
    assert found is not None, f"{header.name} has no part {part}"
    return found[1]


def _emit(path: Path) -> None:
    """Write cffi's C code."""
    try:
        from cffi import FFI
    except ImportError as error:
        raise MissingDependencyError(
            "building libspecdec.so needs cffi; run: pip install cffi"
        ) from error
    ffi = FFI()
    internal = NATIVE / "internal.h"
    ffi.embedding_api("")
    ffi.cdef(declarations(NATIVE / "specdec.h", "types"))
    ffi.cdef('extern "Python+C" {' + declarations(internal, "python") + "}")
    ffi.cdef(declarations(internal, "native"))
    ffi.set_source(_MODULE, '#include "internal.h"')
    ffi.embedding_init_code(_STARTUP)
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it writes
        ffi.emit_c_code(str(path))


def _compile(scratch: Path, library_flags: Sequence[str]) -> Path:
    carrier = scratch / "carrier.c"
    _emit(carrier)
    include = f"-I{sysconfig.get_path('include')}"
    common = ["-O2", "-fPIC", "-fvisibility=hidden", include, f"-I{NATIVE}"]
    objects = [scratch / "carrier.o"]
    _run([*_tool("CC", "cc"), *_words("CFLAGS"), *common, "-c", carrier, "-o", objects[0]])
    compiler = [*_tool("CXX", "c++"), "-std=c++17", *_words("CXXFLAGS")]
    executable = f'-DSPECDEC_PYTHON_EXECUTABLE="{sys.executable}"'
    for source in _SOURCES:
        objects.append((scratch / source).with_suffix(".o"))
        _run([*compiler, *common, executable, "-c", NATIVE / source, "-o", objects[-1]])
    library = scratch / "libspecdec.so"
    # nodelete: an interpreter cannot be unloaded, so dlclose must leave the library in place.
    link = ["-shared", "-Wl,-soname,libspecdec.so", "-Wl,-z,nodelete", "-Wl,--no-undefined"]
    _run([*compiler, *_words("LDFLAGS"), *link, *objects, *library_flags, "-o", library])
    return library


def _python_flags() -> list[str]:
    """Linker flags for this interpreter's shared library."""
    where, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    if not sys.platform.startswith("linux"):
        raise BuildError(f"the platform is {sys.platform}; libspecdec.so is built on Linux only")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise BuildError(
            f"{sys.executable} was built without a shared library, which embedding needs; use "
            "the system's Python with its development package, or one built with --enable-shared"
        )
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise BuildError(
            f"the headers of {sys.executable} are not installed; install its development "
            f"package, such as python{sys.version_info[0]}.{sys.version_info[1]}-dev"
        )
    return [f"-L{where}", f"-Wl,-rpath,{where}", f"-lpython{name}", "-ldl", "-lpthread"]


def _tool(variable: str, default: str) -> list[str]:
    return _words(variable) or [default]


def _words(variable: str) -> list[str]:
    return shlex.split(os.environ.get(variable, ""))


def _run(command: Sequence[str | Path]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(
            f"the compiler {command[0]} is not there; install one or name it in CC and CXX"
        ) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        reason = lines[0] if lines else done.stderr.strip()[-300:]
        raise BuildError(f"{command[0]} failed: {reason}")
