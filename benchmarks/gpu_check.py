"""Check the GPU path of packages on this machine, and measure its speed, with one command.

    python benchmarks/gpu_check.py [--device cuda:0] [--budget-minutes 8] [--json FILE]
    python benchmarks/gpu_check.py --device cpu --made-for cuda --tiny      # on any machine

Needs no network: models are random, of tiny sizes for parity and of 1.5 B and 7 B weights for
speed (and the demo model, where it is installed). Progress goes to stderr, a short table to
stdout, everything to the JSON file. Exit code 1 when a check failed or the parity part (of what
`--only` chose) was not checked, 2 when the options make no sense.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu.builder import building
from gpu.plan import BUILT, PARITY, SECTIONS, command
from gpu.process import run_sections
from gpu.sections import Setup
from gpu.table import table

from specdec.engines import Device, SpecdecError, require_provider
from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.release import VERSION
from specdec.engines.storage.writing import write_file
from specdec.runtime.report.measuring.machine import describe_machine

__all__ = ["main", "verdict"]

_NAMES = [section.name for section in SECTIONS]
_KEPT_BACK = 10.0
"""Seconds of the budget for starting and ending."""


def main(arguments: list[str] | None = None) -> int:
    """Run the check; see the module."""
    options = _parse(arguments)
    began = time.monotonic()
    budget = 60.0 * options.budget_minutes
    senseless = _senseless(options)
    if senseless:
        print(f"gpu_check: {senseless}", file=sys.stderr)
        return 2
    try:
        device = Device.parse(options.device)
        require_provider(device)
    except SpecdecError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1
    names = _chosen(options.only)
    made_for = options.made_for or device.kind
    with _folder(options.work, made_for) as work:
        setup = Setup(str(device), made_for, options.tiny, work)
        machine = _machine(setup)
        deadline = began + budget - min(_KEPT_BACK, budget / 10.0)

        def store(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
            """The document so far, which a run that is cut off leaves behind."""
            document = {
                "format": 1,
                "specdec_version": VERSION,
                "device": setup.device,
                "made_for": setup.made_for,
                "tiny": setup.tiny,
                "machine": machine,
                "budget_seconds": budget,
                "seconds": time.monotonic() - began,
                "verdict": verdict(results, names),
                "sections": results,
            }
            if options.json:
                text = json.dumps(document, indent=1, allow_nan=False)
                write_file(options.json, f"{text}\n")
            return document

        with building(setup) if set(names) & set(BUILT) else nullcontext():
            results = run_sections(
                lambda waiting: command(setup, deadline, waiting), names, deadline, store
            )
    document = store(results)
    print(table(document))
    return 0 if document["verdict"] == "passed" else 1


def verdict(results: Sequence[dict[str, Any]], chosen: Sequence[str] = _NAMES) -> str:
    """ "failed", "incomplete" when a section did not run that must have, or "passed".

    Args:
        results: of the sections so far.
        chosen: names of all that shall run. Those of the parity part must have; where none of it
            is chosen, all of them.
    """
    if any(result["status"] == "failed" for result in results):
        return "failed"
    ran = {result["name"] for result in results if result["status"] != "skipped"}
    return "passed" if ran >= (set(chosen) & set(PARITY) or set(chosen)) else "incomplete"


def _chosen(only: Sequence[str] | None) -> list[str]:
    """Sections to run, in order; those of the parity part load what the export writes."""
    wanted = set(only or _NAMES)
    if wanted & set(PARITY):
        wanted.add("export")
    return [name for name in _NAMES if name in wanted]


def _senseless(options: argparse.Namespace) -> str | None:
    """What is wrong with the options, in a line."""
    if options.device != "cpu" and options.made_for == "cpu":
        return (
            f"--made-for cpu with --device {options.device}: a GPU does not run packages made for "
            "the CPU; leave --made-for out"
        )
    if not 0.0 < options.budget_minutes < float("inf"):
        return f"--budget-minutes is {options.budget_minutes}; allowed is a number above 0"
    if options.json is not None and options.json.is_dir():
        return f"--json {options.json} is a directory; name a file"
    folder = options.json and options.json.absolute().parent
    if folder and not folder.is_dir():
        return f"--json {options.json}: there is no directory {folder}; create it first"
    if options.work is not None and options.work.exists() and not options.work.is_dir():
        return f"--work {options.work} is not a directory; name another"
    return None


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu")
    parser.add_argument(
        "--made-for",
        choices=("cpu", "cuda"),
        help="kind of device the packages are made for; the CPU runs those of a GPU, slowly",
    )
    parser.add_argument("--tiny", action="store_true", help="sizes for a slow CPU")
    parser.add_argument("--only", action="append", choices=_NAMES, help="this section")
    parser.add_argument("--budget-minutes", type=float, default=8.0)
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--work", type=Path, help="keep, and reuse, the packages in this folder")
    return parser.parse_args(arguments)


@contextmanager
def _folder(given: Path | None, made_for: str) -> Iterator[Path]:
    """Where packages go; what is reused was made for the same kind of device by the same code."""
    if given is not None:
        folder = given.resolve() / f"{made_for}-{VERSION}-{_code():08x}"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="specdec-gpu-") as made:
        yield Path(made)


def _code() -> int:
    """A checksum of the code that makes packages."""
    import specdec.export

    paths = [path for folder in specdec.export.__path__ for path in Path(folder).rglob("*.py")]
    found = 0
    for path in sorted([*paths, *Path(__file__).parent.glob("gpu/*.py")]):
        found = zlib.crc32(path.read_bytes(), found)
    return found


def _machine(setup: Setup) -> dict[str, Any]:
    """The machine, and the GPU as its driver and `nvidia-smi` tell it."""
    machine = asdict(describe_machine(setup.device))
    if not setup.on_gpu:
        return machine
    gpu = CudaDevice(Device.parse(setup.device).index)
    free, total = gpu.memory()
    machine |= {"compute_capability": gpu.compute_capability, "gpu_bytes": total, "free": free}
    gpu.release()
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        told = f"a GPU of compute capability {machine['compute_capability']}"
    machine["gpu"] = told
    return machine


def _stop(number: int, _: Any) -> None:
    """End as by an exception, so that children are ended and nothing is left behind."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
