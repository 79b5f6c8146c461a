"""The demo pair, exported once per test session by a process of its own.

Its own process, so that the peak memory of an export can be told from everything else a test
session holds, and torch's memory is gone when the tests that only run the package start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DemoExport", "export_demo"]

# VmHWM is the peak of this process image alone; ru_maxrss would inherit the parent's.
_PROGRAM = """
import json, sys, optimum.exporters.onnx.convert, onnxruntime, specdec.export.pipeline
from pathlib import Path
from specdec.export import ExportOptions, export_package

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

imported = status("VmRSS")
export_package(ExportOptions(target="demo", draft="self", out=Path(sys.argv[1])))
print(json.dumps({"imported_bytes": imported, "peak_bytes": status("VmHWM")}))
"""


@dataclass(frozen=True)
class DemoExport:
    """A finished export of SmolLM2-135M-Instruct with itself in INT8 as the draft."""

    path: Path
    imported_bytes: int
    """Resident memory once the export's libraries were imported."""
    peak_bytes: int
    """Peak resident memory of the whole export."""


def export_demo(path: Path) -> DemoExport:
    """Export the demo pair, FP16 target and INT8 self-draft, to `path`; about a minute."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the export of the demo pair failed: {done.stderr[-2000:]}")
    return DemoExport(path, **json.loads(done.stdout.splitlines()[-1]))
