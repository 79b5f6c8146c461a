"""Compile the library of native CPU operators, libspecdec_native.so.

    python scripts/native_library.py [--out FOLDER]

`setup.py` calls it for an install; run by hand it writes beside the package's sources, where a
checkout looks for it. `CXX` names the compiler (default: c++, g++ or clang++; a cross compiler
will do) and `CXXFLAGS` adds flags. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "engines" / "native" / "source"
NAME = "libspecdec_native.so"
FLAGS = [
    *("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-exceptions"),
    *("-fno-rtti", "-Wall", "-Wextra"),
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),  # false alarms in GCC's immintrin.h
]
# No C++ runtime (source/runtime.cc has what is used of it), so an old glibc will do.
LINK = ["-shared", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--as-needed", "-nodefaultlibs"]
LIBRARIES = ["-lm", "-lc", "-lpthread", "-lgcc"]
AVX2 = ["-mavx2", "-mf16c", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"]
# Of files whose name ends in _SUFFIX.cc, by machine; a machine compiles only its own.
SUFFIXES = {
    "x86_64": {
        "avx512": [*AVX512, "-mprefer-vector-width=512"],
        "avx2vnni": [*AVX2, "-mavxvnni"],
        "avx2": AVX2,
    },
    "aarch64": {"neon": ["-march=armv8.2-a+dotprod+fp16"]},
}


class CannotBuildError(Exception):
    """The library cannot be compiled here; the message is one line that says why."""


def compiler() -> list[str]:
    """Return the command of a C++ compiler; raises `CannotBuildError` for none."""
    named = os.environ.get("CXX")
    if named:
        return shlex.split(named)
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise CannotBuildError("no C++ compiler (c++, g++, clang++ or CXX) was found")


def run(command: list[str]) -> str:
    """Run a command and return what it prints; raises `CannotBuildError` with its first error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotBuildError(f"{command[0]} does not start: {error.strerror}") from error
    if done.returncode != 0:
        lines = [
            line
            for line in done.stderr.splitlines()
            if "error" in line.lower() or "undefined" in line
        ]
        raise CannotBuildError(f"{command[0]} failed: {(lines or ['no message'])[0].strip()[:300]}")
    return done.stdout


def machine(command: list[str]) -> str:
    """Return the machine the compiler makes code for; raises `CannotBuildError` for others."""
    triple = run([*command, "-dumpmachine"]).strip()
    if "linux" not in triple:
        raise CannotBuildError(f"the native operators need Linux, the compiler is for {triple}")
    name = triple.partition("-")[0]
    if name not in SUFFIXES:
        raise CannotBuildError(f"there are native operators for {', '.join(SUFFIXES)}, not {name}")
    return name


def sources(kind: str) -> dict[Path, list[str]]:
    """Return the files a machine compiles and the flags of its instruction sets."""
    suffixes = {suffix: own for own in SUFFIXES for suffix in SUFFIXES[own]}
    chosen = {}
    for path in sorted(SOURCE.glob("*.cc")):
        suffix = path.stem.rpartition("_")[2]
        if suffixes.get(suffix, kind) == kind:
            chosen[path] = SUFFIXES[kind].get(suffix, [])
    return chosen


def build(out: Path, extra: list[str] | None = None) -> Path:
    """Compile the library into the folder `out` and return its path.

    `extra`: flags after the usual ones. Raises `CannotBuildError`.
    """
    command = compiler()
    files = sources(machine(command))
    flags = [*FLAGS, *shlex.split(os.environ.get("CXXFLAGS", "")), *(extra or [])]
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [Path(scratch) / f"{path.stem}.o" for path in files]
        list(
            pool.map(
                lambda job: run(
                    [*command, *flags, *job[0][1], "-c", str(job[0][0]), "-o", str(job[1])]
                ),
                zip(files.items(), objects, strict=True),
            )
        )
        linked = Path(scratch) / NAME
        run(
            [
                *command,
                *(extra or []),
                *map(str, objects),
                *LINK,
                f"-Wl,--version-script={SOURCE}/exports.map",
                "-o",
                str(linked),
                *LIBRARIES,
            ]
        )
        # Put in place at once: a process may have the old one mapped.
        partial = out / f"{NAME}.partial"
        shutil.copyfile(linked, partial)
        partial.chmod(0o755)
        partial.replace(out / NAME)
    return out / NAME


def main() -> int:
    """Compile as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=SOURCE.parent, help="folder to write to")
    out: Path = parser.parse_args().out
    try:
        print(build(out))
    except CannotBuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
