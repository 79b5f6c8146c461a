"""Make the folder to carry to a machine with a GPU: packages, wheels and the check, in small files.

    python scripts/gpu_kit.py OUT [--tiny] [--extras cuda] [--no-dependencies]

OUT holds parts of at most 60 MB, their checksums, and `join.sh`, which checks and joins them and
runs the check without a network:

    sh join.sh [options of gpu_check.py]        # or: sh join.sh --unpack
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from specdec.engines.release import DISTRIBUTION, VERSION

__all__ = ["PART_BYTES", "write_parts"]

PART_BYTES = 60_000_000
_TOP = Path(__file__).resolve().parent.parent
_NAME = "gpu-kit"
_JOIN = f"""#!/bin/sh
# Check the parts in this folder, join them, and run the GPU check without a network.
set -eu
cd "$(dirname "$0")"
sha256sum --check --quiet SHA256SUMS
cat {_NAME}.tar.* | tar -xf -
[ "${{1:-}}" = "--unpack" ] && exit 0
exec sh {_NAME}/run.sh "$@"
"""
_RUN = """#!/bin/sh
# Install the wheels beside this script into an environment of their own, and run the GPU check.
set -eu
cd "$(dirname "$0")"
if [ ! -f venv/installed ]; then
    "${{PYTHON:-python3}}" -m venv {venv} venv
    venv/bin/python -m pip install --quiet --no-index --find-links wheels {install}
    touch venv/installed
fi
exec venv/bin/python check/gpu_check.py --packages packages --json gpu.json "$@"
"""


def main(arguments: list[str] | None = None) -> int:
    """Make the kit; see the module."""
    options = _parse(arguments)
    if options.out.exists():
        print(f"gpu_kit: {options.out} exists; name another, or remove it", file=sys.stderr)
        return 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-kit-", dir=options.out.parent) as made:
        tree = Path(made)
        check = _TOP / "benchmarks" / "gpu_check.py"
        tiny = ["--tiny"] if options.tiny else []
        _run([sys.executable, str(check), "--make-packages", str(tree / "packages"), *tiny])
        shutil.copytree(check.parent / "gpu", tree / "check" / "gpu", ignore=_no_caches)
        shutil.copy(check, tree / "check")
        _wheels(tree / "wheels", options.extras, options.dependencies)
        (tree / "run.sh").write_text(_run_script(options.extras, options.dependencies))
        write_parts(tree, options.out)
    return 0


def write_parts(tree: Path, out: Path, part_bytes: int = PART_BYTES) -> None:
    """Write a folder as parts with checksums and the script that joins them.

    Args:
        tree: its contents appear in a folder `gpu-kit` when joined.
        out: a directory to make.
        part_bytes: the most bytes of a file.
    """
    out.mkdir()
    with tempfile.TemporaryFile(dir=out) as whole:
        with tarfile.open(fileobj=whole, mode="w") as tar:
            tar.add(tree, _NAME)
        whole.seek(0)
        lines = []
        for index, content in enumerate(_pieces(whole, part_bytes)):
            name = f"{_NAME}.tar.{index:04d}"
            (out / name).write_bytes(content)
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
    (out / "SHA256SUMS").write_text("".join(lines))
    (out / "join.sh").write_text(_JOIN)


def _pieces(whole: BinaryIO, part_bytes: int) -> Iterator[bytes]:
    while content := whole.read(part_bytes):
        yield content


def _wheels(folder: Path, extras: str, dependencies: bool) -> None:
    """This project's wheel and, if asked for, those of everything that it needs with `extras`."""
    pip = [sys.executable, "-m", "pip"]
    _run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(_TOP)])
    if dependencies:
        wanted = f"{DISTRIBUTION}[{extras}]=={VERSION}"
        _run([*pip, "download", "--dest", str(folder), "--find-links", str(folder), wanted])


def _run_script(extras: str, dependencies: bool) -> str:
    """Where dependencies do not travel, the environment sees those of the machine."""
    if dependencies:
        return _RUN.format(venv="", install=f"'{DISTRIBUTION}[{extras}]'")
    return _RUN.format(venv="--system-site-packages", install=f"--no-deps {DISTRIBUTION}")


def _no_caches(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__"}


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--tiny", action="store_true", help="sizes for a slow CPU")
    parser.add_argument("--extras", default="cuda", help="such as cuda,tensorrt-rtx")
    parser.add_argument(
        "--no-dependencies",
        dest="dependencies",
        action="store_false",
        help="leave out the wheels that specdec needs; the machine has them",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
