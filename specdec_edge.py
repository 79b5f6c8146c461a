"""Starts the commands, after a look at whose `specdec` they would import.

PyPI has a package named `specdec` by another author. Where it is installed, its
`specdec/__init__.py` shadows our folders or runs before them; this module lies outside
`specdec`, so it can say so in one line instead of failing in foreign code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib import metadata

__all__ = ["audit", "bench", "export", "foreign_package", "inspect", "run", "serve"]

_COMMANDS = {
    "specdec-export": "export",
    "specdec-run": "run",
    "specdec-audit": "audit",
    "specdec-bench": "bench",
    "specdec-inspect": "inspector",
    "specdec-serve": "serve",
}


def foreign_package() -> str | None:
    """Say in one line which other `specdec` this interpreter would import, or None for ours."""
    found = importlib.util.find_spec("specdec")  # a top-level name: nothing is imported
    if found is None or found.origin is None:  # a namespace package, as ours is, has no origin
        return None
    try:
        owner = f"the distribution specdec {metadata.version('specdec')}, another author's package"
    except metadata.PackageNotFoundError:
        owner = "not of this project"
    return (
        f"{found.origin} is {owner}; it hides the modules of specdec-edge. "
        "Remove it (pip uninstall specdec) and install specdec-edge again"
    )


def _start(command: str) -> int:
    reason = foreign_package()
    if reason is not None:
        sys.stderr.write(f"error: {reason}\n")
        return 1
    module = importlib.import_module(f"specdec.cli.{_COMMANDS[command]}")
    module.main()
    return 0


def export() -> int:
    """`specdec-export`."""
    return _start("specdec-export")


def run() -> int:
    """`specdec-run`."""
    return _start("specdec-run")


def audit() -> int:
    """`specdec-audit`."""
    return _start("specdec-audit")


def bench() -> int:
    """`specdec-bench`."""
    return _start("specdec-bench")


def inspect() -> int:
    """`specdec-inspect`."""
    return _start("specdec-inspect")


def serve() -> int:
    """`specdec-serve`."""
    return _start("specdec-serve")
