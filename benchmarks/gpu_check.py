"""Does the package's GPU path work on this machine, and how fast is it? One command.

    python benchmarks/gpu_check.py [--device cuda:0] [--budget-minutes 8] [--json FILE]
    python benchmarks/gpu_check.py --device cpu --made-for cuda --tiny      # on any machine

Needs no network: models are random, of tiny sizes for parity and of 1.5 B and 7 B weights for
speed (and the demo model, where it is installed). Progress goes to stderr, a short table to
stdout, everything to the JSON file. Exit code 1 when a check failed or parity was not checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gpu_builder
from gpu_plan import BUILT, PARITY, SECTIONS, command
from gpu_process import run_sections
from gpu_sections import Setup
from gpu_table import table

from specdec.engines import Device, SpecdecError, require_provider
from specdec.engines.cuda_driver import CudaDevice
from specdec.runtime.report.machine import describe_machine

__all__ = ["main"]

_NAMES = [section.name for section in SECTIONS]
_KEPT_BACK = 10.0
"""Seconds of the budget for starting and ending."""


def main(arguments: list[str] | None = None) -> int:
    """Run the check; see the module."""
    options = _parse(arguments)
    began = time.monotonic()
    budget = 60.0 * options.budget_minutes
    try:
        require_provider(Device.parse(options.device))
    except SpecdecError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1
    with _folder(options.work) as work:
        device = Device.parse(options.device)
        setup = Setup(str(device), options.made_for or device.kind, options.tiny, work)
        machine = _machine(setup)
        deadline = began + budget - min(_KEPT_BACK, budget / 10.0)
        names = [name for name in _NAMES if name in (options.only or _NAMES)]

        def store(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
            """The document so far, which a run that is cut off leaves behind."""
            document = {
                "format": 1,
                "specdec_version": version("specdec"),
                "device": setup.device,
                "made_for": setup.made_for,
                "tiny": setup.tiny,
                "machine": machine,
                "budget_seconds": budget,
                "seconds": time.monotonic() - began,
                "verdict": verdict(results),
                "sections": results,
            }
            if options.json:
                text = json.dumps(document, indent=1, allow_nan=False)
                options.json.write_text(f"{text}\n", encoding="utf-8")
            return document

        with _builder(setup) if set(names) & set(BUILT) else nullcontext():
            results = run_sections(
                lambda waiting: command(setup, deadline, waiting), names, deadline, store
            )
    document = store(results)
    print(table(document))
    return 0 if document["verdict"] == "passed" else 1


def verdict(results: Sequence[dict[str, Any]]) -> str:
    """ "failed", "incomplete" when a section of the parity part did not run, or "passed"."""
    if any(result["status"] == "failed" for result in results):
        return "failed"
    ran = {result["name"] for result in results if result["status"] != "skipped"}
    return "passed" if ran >= set(PARITY) else "incomplete"


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
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="specdec-gpu-") as made:
        yield Path(made)


@contextmanager
def _builder(setup: Setup) -> Iterator[None]:
    """Build the packages of the later sections meanwhile."""
    settings = [str(setup.work), setup.made_for, "tiny" if setup.tiny else "real"]
    program = [sys.executable, gpu_builder.__file__, *settings]
    with subprocess.Popen(program, stdout=2) as child:
        try:
            yield
        finally:
            child.kill()


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


if __name__ == "__main__":
    sys.exit(main())
