"""Native operators beside plain ONNX Runtime: load, memory, and passes by rows, in turns.

    python benchmarks/native_engines.py packages/demo

Every figure is a minimum and a median over rounds in which both engines take turns, so that what
else the machine does falls on both. Private memory is what a fresh process holds after the load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from specdec.engines import LoadedPackage, OrtOptions, load_package
from specdec.engines.engine import Engine

ENGINES = ("native", "onnxruntime")
ROWS = (1, 2, 5, 9, 17)
LOADED = """
import sys, time
from specdec.engines import OrtOptions, load_package
began = time.perf_counter()
package = load_package(sys.argv[1], ort=OrtOptions(engine=sys.argv[2]), verify_checksums=False)
seconds = time.perf_counter() - began
kinds = ("Private_Dirty:", "Rss:")
lines = [line.split() for line in open("/proc/self/smaps_rollup")]
found = {line[0]: int(line[1]) // 1024 for line in lines if line[0] in kinds}
print(seconds, *(found[kind] for kind in kinds))
"""


def loads(package: Path, rounds: int) -> None:
    """Print load seconds and the memory of a process that has loaded the pair."""
    found: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine in ENGINES:
            done = subprocess.run(
                [sys.executable, "-c", LOADED, str(package), engine],
                capture_output=True,
                text=True,
                check=True,
            )
            found[engine].append([float(part) for part in done.stdout.split()])
    for engine, runs in found.items():
        seconds, dirty, resident = (min(column) for column in zip(*runs, strict=True))
        print(
            f"{engine:12} loads in {seconds:.2f} s, {dirty:.0f} MiB dirty, {resident:.0f} resident"
        )


def timed(engine: Engine, token_ids: np.ndarray, past: int) -> float:
    """Milliseconds of one pass that scores every row, after `past` tokens."""
    began = time.perf_counter()
    engine.forward(token_ids, token_ids.shape[1])
    seconds = time.perf_counter() - began
    engine.truncate(past)
    return 1000 * seconds


def passes(loaded: dict[str, LoadedPackage], past: int, rounds: int) -> None:
    """Print a line for each engine of the pair and number of rows."""
    ids = np.random.default_rng(0).integers(100, 1000, (1, past))
    for package in loaded.values():
        package.target.truncate(0)
        for start in range(0, past, 256):
            package.target.forward(ids[:, start : start + 256], 0)
    print(f"milliseconds a pass after {past} tokens, minimum (median); ratio of minima")
    for name in ("target", "draft"):
        for rows in ROWS:
            times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            for _ in range(rounds + 1):
                for engine, package in loaded.items():
                    run = package.target if name == "target" else package.draft
                    assert run is not None
                    times[engine].append(timed(run, ids[:, :rows], past))
            best = {e: (min(t[1:]), statistics.median(t[1:])) for e, t in times.items()}
            figures = "  ".join(f"{e} {low:6.1f} ({mid:6.1f})" for e, (low, mid) in best.items())
            ratio = best["onnxruntime"][0] / best["native"][0]
            print(f"{name:6} M={rows:<3} {figures}  {ratio:.2f}x")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--past", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs")
    loads(options.package, 3)
    loaded = {
        engine: load_package(options.package, ort=OrtOptions(engine=engine), verify_checksums=False)
        for engine in ENGINES
    }
    print(loaded["native"].target.info.engine)
    passes(loaded, options.past, options.rounds)


if __name__ == "__main__":
    main()
