"""Time engine files against each other, and two sessions of a pair under each spinning mode.

Every file (or mode) takes its turn in each repeat, so a drifting machine does not decide; the
first pass of a turn warms the caches and is not counted.

    python benchmarks/engines.py curve PACKAGE/target/model.onnx PACKAGE/draft/model.onnx
    python benchmarks/engines.py spinning PACKAGE [--num-draft-tokens 4]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 17)
CAPACITY = 1024
MODES: dict[str, Mapping[str, str]] = {
    "spin": {"session.intra_op.allow_spinning": "1"},
    "never spin": {"session.intra_op.allow_spinning": "0"},
    "stop after each run": {"session.force_spinning_stop": "1"},
}


class Graph:
    """An in-place graph with buffers of its own or another's."""

    def __init__(self, path: Path, config: Mapping[str, str], shared: Graph | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        for key, value in config.items():
            options.add_session_config_entry(key, value)
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.cache: dict[str, Any] = shared.cache if shared else self._allocate()

    def run(self, rows: int, past: int) -> float:
        """Seconds of one pass of `rows` tokens after `past` cached ones, all rows scored."""
        binding = self.session.io_binding()
        inputs = {
            "input_ids": np.arange(100, 100 + rows)[None],
            "position_ids": np.arange(past, past + rows)[None],
            "seqlens_k": np.array([past + rows - 1], np.int32),
            "total_sequence_length": np.array([past + rows], np.int32),
            "logit_rows": np.arange(rows),
        }
        for node in self.session.get_inputs():
            if node.name in inputs:
                binding.bind_cpu_input(node.name, inputs[node.name])
        for name, value in self.cache.items():
            binding.bind_ortvalue_input(f"past_key_values.{name}", value)
            binding.bind_ortvalue_output(f"present.{name}", value)
        binding.bind_output("logits", "cpu")
        started = perf_counter()
        self.session.run_with_iobinding(binding)
        return perf_counter() - started

    def _allocate(self) -> dict[str, Any]:
        return {
            node.name.removeprefix("past_key_values."): onnxruntime.OrtValue.ortvalue_from_numpy(
                np.zeros((1, node.shape[1], CAPACITY, node.shape[3]), np.float32)
            )
            for node in self.session.get_inputs()
            if node.name.startswith("past_key_values.")
        }


def curve(paths: list[Path], context: int, repeats: int) -> None:
    """Print T(M) in milliseconds for each file."""
    graphs = {str(path): Graph(path, MODES["stop after each run"]) for path in paths}
    print("rows " + " ".join(f"{rows:>7d}" for rows in WIDTHS))
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for rows in WIDTHS:
            for name, graph in graphs.items():
                graph.run(rows, context)
                seconds.setdefault((name, rows), []).append(graph.run(rows, context))
    for name in graphs:
        medians = [statistics.median(seconds[name, rows]) * 1e3 for rows in WIDTHS]
        print("ms   " + " ".join(f"{value:7.2f}" for value in medians) + f"  {name}")


def spinning(package: Path, context: int, repeats: int, num_draft_tokens: int) -> None:
    """Print the cost of a round (K draft steps, one verify pass) under each mode."""
    for mode, config in MODES.items():
        target = Graph(package / "target/model.onnx", config)
        draft = Graph(package / "draft/model.onnx", config, target)
        drafting, verifying, plain = [], [], []
        for _ in range(repeats + 2):
            drafting.append(sum(draft.run(1, context + i) for i in range(num_draft_tokens)))
            verifying.append(target.run(num_draft_tokens + 1, context))
        for _ in range(repeats + 2):
            plain.append(target.run(1, context))
        d, v, p = (statistics.median(x[2:]) * 1e3 for x in (drafting, verifying, plain))
        best = (num_draft_tokens + 1) * p / (d + v)
        print(
            f"{mode:20s} draft {num_draft_tokens} steps {d:6.1f} ms, verify {v:6.1f} ms, plain "
            f"step {p:5.1f} ms: at most {best:.2f}x"
        )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["curve", "spinning"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--num-draft-tokens", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.what == "curve":
        curve(arguments.paths, arguments.context, arguments.repeats)
    else:
        for package in arguments.paths:
            spinning(package, arguments.context, arguments.repeats, arguments.num_draft_tokens)


if __name__ == "__main__":
    main()
