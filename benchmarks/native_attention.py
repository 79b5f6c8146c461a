"""Attention over the cache: the native operator and ONNX Runtime's, in GB/s of keys and values.

    python benchmarks/native_attention.py [--heads 9] [--kv-heads 3] [--head-size 64] [--layers 30]
        [--past 256 1000 4096] [--rows 1 5 9] [--read FIRST LAST] [--repeats 15] [--threads 2]

Graphs of nothing but attention nodes, a cache each, take turns: com.microsoft::GroupQueryAttention,
the native operator with caches in float32 and in FP16. A pass of M rows has to read the keys and
values of P cached tokens once; that many bytes over the median time are set against what the same
number of threads reads from memory, measured in the same turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from specdec.engines.native.library import native_library

__all__ = ["Shape", "chain", "main", "passes"]

BASELINE, FLOAT, HALF = "GroupQueryAttention", "native float32", "native FP16"
INTEGERS = ("query_starts", "past_lengths", "slots", "seqlens_k", "total_sequence_length", "read")


@dataclass(frozen=True)
class Shape:
    """Sizes of one attention node and how many of them follow each other."""

    heads: int
    kv_heads: int
    head_size: int
    layers: int
    capacity: int

    def cache_bytes(self, tokens: int, width: int) -> int:
        """Keys and values of so many tokens in all layers."""
        return 2 * self.layers * tokens * self.kv_heads * self.head_size * width


def chain(shape: Shape, kind: str, *, read: bool = False) -> onnx.ModelProto:
    """Nodes that take the output of the one before as their query, each with its own cache."""
    native = kind != BASELINE
    inputs = ["query", "key", "value"]
    shared = (
        ["query_starts", "past_lengths", "slots"]
        if native
        else ["seqlens_k", "total_sequence_length"]
    )
    shared += ["cos_cache", "sin_cache"]
    tail = [*shared, "", "read"] if read else shared
    nodes, caches, outputs, query = [], [], [], "query"
    for i in range(shape.layers):
        past, present = [f"past_{i}.{x}" for x in "kv"], [f"present_{i}.{x}" for x in "kv"]
        caches += past
        outputs += present
        nodes.append(
            helper.make_node(
                "Attention" if native else "GroupQueryAttention",
                [query, "key", "value", *past, *tail],
                [f"output_{i}", *present],
                domain="specdec" if native else "com.microsoft",
                num_heads=shape.heads,
                kv_num_heads=shape.kv_heads,
                do_rotary=1,
            )
        )
        query = f"output_{i}"
    cache = TensorProto.FLOAT16 if kind == HALF else TensorProto.FLOAT

    def describe(name: str) -> onnx.ValueInfoProto:
        if name in INTEGERS:
            return helper.make_tensor_value_info(name, TensorProto.INT32, None)
        is_cache = name.startswith(("past_", "present_"))
        return helper.make_tensor_value_info(name, cache if is_cache else TensorProto.FLOAT, None)

    names = [*inputs, *caches, *(n for n in tail if n)]
    results = [describe(n) for n in [query, *outputs]]
    graph = helper.make_graph(nodes, "chain", [describe(n) for n in names], results)
    domains = {"": 21, "specdec": 1, "com.microsoft": 1}
    opsets = [helper.make_opsetid(d, v) for d, v in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def passes(
    shape: Shape, kind: str, library: str, threads: int, read: tuple[int, int] | None = None
) -> Callable[[int, int], float]:
    """Returns a function (rows, cached tokens) -> seconds of a pass; caches are bound in place."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(library)
    model = chain(shape, kind, read=read is not None)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    dtype = np.float16 if kind == HALF else np.float32
    size = (1, shape.kv_heads, shape.capacity, shape.head_size)
    caches = [rng.standard_normal(size, np.float32).astype(dtype) for _ in range(2 * shape.layers)]
    angles = rng.standard_normal((shape.capacity, shape.head_size // 2), np.float32)
    bindings: dict[tuple[int, int], ort.IOBinding] = {}

    def bind(rows: int, past: int) -> ort.IOBinding:
        binding = session.io_binding()
        feeds: dict[str, NDArray[np.generic]] = {
            "cos_cache": np.cos(angles),
            "sin_cache": np.sin(angles),
        }
        for name, heads in (
            ("query", shape.heads),
            ("key", shape.kv_heads),
            ("value", shape.kv_heads),
        ):
            feeds[name] = rng.standard_normal((1, rows, heads * shape.head_size), np.float32)
        described = {"query_starts": [0, rows], "past_lengths": [past], "slots": [0]}
        if kind == BASELINE:
            described = {"seqlens_k": [past + rows - 1], "total_sequence_length": [past + rows]}
        elif read is not None:
            described["read"] = list(read)
        feeds |= {name: np.array(values, np.int32) for name, values in described.items()}
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for i, array in enumerate(caches):
            place = f"{i // 2}.{'kv'[i % 2]}", array.ctypes.data
            binding.bind_input(f"past_{place[0]}", "cpu", 0, array.dtype, array.shape, place[1])
            binding.bind_output(f"present_{place[0]}", "cpu", 0, array.dtype, array.shape, place[1])
        binding.bind_output(f"output_{shape.layers - 1}", "cpu")
        return binding

    def seconds(rows: int, past: int) -> float:
        if (rows, past) not in bindings:
            bindings[rows, past] = bind(rows, past)
            session.run_with_iobinding(bindings[rows, past])
        start = time.perf_counter()
        session.run_with_iobinding(bindings[rows, past])
        return time.perf_counter() - start

    return seconds


def reader(threads: int) -> Callable[[], float]:
    """Returns a function that reads 256 MiB with so many threads, in GB/s."""
    parts = np.array_split(np.ones(64 << 20, np.float32), threads)
    pool = ThreadPoolExecutor(threads)

    def read() -> float:
        start = time.perf_counter()
        list(pool.map(np.max, parts))
        return sum(p.nbytes for p in parts) / (time.perf_counter() - start) / 1e9

    return read


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--past", type=int, nargs="+", default=[256, 1000, 4096])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 5, 9])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--read", type=int, nargs=2, help="first and last tokens of the past that are read"
    )
    args = parser.parse_args()
    shape = Shape(
        args.heads, args.kv_heads, args.head_size, args.layers, max(args.past) + max(args.rows)
    )
    library = native_library()
    if library.path is None:
        raise SystemExit(f"error: no native operators: {library.reason}")
    kinds = {BASELINE: 4, FLOAT: 4, HALF: 2}
    read = tuple(args.read) if args.read else None
    path = str(library.path)
    timers = {
        kind: passes(shape, kind, path, args.threads, None if kind == BASELINE else read)
        for kind in kinds
    }
    bandwidth = reader(args.threads)
    print("rows cached  kind                   ms (least)    GB/s  x reading  speed-up")
    for past in args.past:
        for rows in args.rows:
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            speeds = []
            for _ in range(args.repeats):
                speeds.append(bandwidth())
                for kind, timer in timers.items():
                    times[kind].append(timer(rows, past))
            for kind, width in kinds.items():
                tokens = past if read is None or kind == BASELINE else min(past, sum(read))
                size, took = shape.cache_bytes(tokens + rows, width), median(times[kind])
                floor, least = size / median(speeds) / 1e9, min(times[kind])
                faster = median(times[BASELINE]) / took
                print(
                    f"{rows:>4} {past:>6}  {kind:<20} {took * 1e3:>6.2f} ({least * 1e3:.2f})"
                    f" {size / took / 1e9:>7.1f} {took / floor:>10.2f} {faster:>9.2f}",
                    flush=True,
                )
            print(f"{'':>13}reading: {median(speeds):.1f} GB/s")


if __name__ == "__main__":
    main()
