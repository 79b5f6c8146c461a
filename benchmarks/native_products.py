"""Time the native CPU products of one model pass, by rows, beside ONNX Runtime's own.

    python benchmarks/native_products.py [--rows 1,2,9,256] [--isa avx2] [--only fp16,int8]

The graph is the products of a decoder alone (default: the demo target's shapes), each with the
norm, gate and residual around it, over random weights in a mapped file. The variants take turns;
printed are the median and the least time of a pass, the bytes of weights a second that the least
is, and each native variant's ratio to ONNX Runtime's of the same precision.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from native.product_graphs import BYTES, Shape, write_graph

from specdec.engines.native.library import native_library

PEER = {"fp16": "ort-fp32", "int8": "ort-int8", "int4": "ort-int4"}


def machine() -> str:
    """Return the processor's name and how many cores this process may use."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    name = names[0].partition(":")[2].strip() if names else "unknown processor"
    return f"{name}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"


def session(path: Path, library: Path, threads: int) -> ort.InferenceSession:
    """Return a session of one graph."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(library))
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="1,2,3,5,9,17,33,256")
    parser.add_argument("--only", default=",".join(BYTES), help="variants: " + ", ".join(BYTES))
    parser.add_argument("--isa", default="", help="instruction set (default: the best there is)")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    if args.isa:
        os.environ["SPECDEC_NATIVE"] = args.isa
    found = native_library()
    if found.path is None:
        parser.error(f"no native library: {found.reason}")
    shape = Shape(layers=args.layers)
    rows = [int(item) for item in args.rows.split(",")]
    random = np.random.default_rng(0)
    folder = Path(tempfile.mkdtemp(prefix="products-"))
    try:
        sessions = {}
        for name in args.only.split(","):
            path = write_graph(folder, name, shape)
            sessions[name] = session(path, found.path, args.threads)
        print(f"{machine()}; {found.isa}, {args.threads} threads, onnx {onnx.__version__}")
        for m in rows:
            hidden = random.standard_normal((1, m, shape.hidden)).astype(np.float32)
            picked = np.array([m - 1]) if m > 64 else np.arange(m)
            feeds = {"hidden": hidden, "logit_rows": picked}
            times: dict[str, list[float]] = {name: [] for name in sessions}
            for repeat in range(args.repeats + 1):
                for name, one in sessions.items():
                    started = time.perf_counter()
                    one.run(None, feeds)
                    if repeat:
                        times[name].append(time.perf_counter() - started)
            for name, seconds in times.items():
                least = min(seconds)
                speed = shape.weights * BYTES[name] / least / 1e9
                peer = times.get(PEER.get(name, ""))
                ratio = f"  {min(peer) / least:5.2f}x {PEER[name]}" if peer else ""
                print(
                    f"rows {m:4d}  {name:9s} {statistics.median(seconds) * 1e3:8.2f} ms"
                    f"  least {least * 1e3:8.2f} ms  {speed:6.1f} GB/s{ratio}"
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
