"""`python -m specdec.runtime.embed build --out DIR`: build the C library of this environment."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec.runtime.embed.builder import build_library
from specdec.runtime.errors import SpecdecError


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m specdec.runtime.embed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="write include/, lib/ and a CMake package")
    builder.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    prefix = options.out.resolve()
    try:
        library = build_library(prefix)
    except SpecdecError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{library}\n")
    headers = ", ".join(sorted(path.name for path in (prefix / "include").iterdir()))
    sys.stderr.write(
        f"wrote include/ ({headers}), lib/{library.name} and lib/cmake/specdec below {prefix}; "
        f"CMake finds it with -DCMAKE_PREFIX_PATH={prefix}\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
