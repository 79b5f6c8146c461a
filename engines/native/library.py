"""Find the compiled library of native CPU operators and say whether this machine can run it.

The library belongs to the installed package and is never taken from a model package. Nothing here
loads ONNX Runtime; a session registers the library with
`SessionOptions.register_custom_ops_library(str(library.path))`.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

VERSION = 1  # of the operators and layouts; kVersion in source/register.cc
DOMAIN = "specdec"
FILE = Path(__file__).with_name("libspecdec_native.so")


@dataclass(frozen=True)
class NativeLibrary:
    """What became of looking for the library.

    `path`: the file to register, None where packages must run without it. `isa`: the instruction
    set it runs with ("avx512", "avx2-vnni", "avx2", "neon"), "" without. `reason`: one line that
    says why it is absent, "" where it is there.
    """

    path: Path | None
    isa: str
    reason: str


def inspect_library(file: Path) -> NativeLibrary:
    """Load a library's file and ask it; never raises.

    The library reads SPECDEC_NATIVE (off, or an instruction set's name) once, when it is loaded
    into this process; it refuses a name it does not know and a set the processor lacks.
    """
    if not file.is_file():
        return NativeLibrary(None, "", "this installation has no compiled native operators")
    try:
        library = ctypes.CDLL(str(file))
        version = int(library.specdec_native_version())
        if version != VERSION:
            reason = f"{file.name} has version {version}, this package needs {VERSION}: reinstall"
            return NativeLibrary(None, "", reason)
        library.specdec_native_isa.restype = ctypes.c_char_p
        library.specdec_native_reason.restype = ctypes.c_char_p
        isa = library.specdec_native_isa().decode()
        reason = library.specdec_native_reason().decode()
    except (OSError, AttributeError) as error:
        return NativeLibrary(None, "", f"{file.name} does not load: {error}")
    return NativeLibrary(file if isa else None, isa, reason)


@functools.cache
def native_library() -> NativeLibrary:
    """Return the installed package's library, looked for once a process."""
    return inspect_library(FILE)
