"""Print the expected times of steps and rounds on GPUs, from operators counted in exported graphs.

    python benchmarks/gpu_expected.py

Small models of two depths are exported for CUDA; what a layer adds to kernels, and what a weight
takes to read, is taken from them and carried to the real sizes. The table is Markdown, for
docs/backends.md.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpu.arithmetic import GPUS, kernels_in, pass_seconds, round_seconds, tokens_per_round
from gpu.synthetic import write_synthetic

from specdec.engines.load import read_package
from specdec.export.simulate.shapes import Shape, shape_of
from specdec.runtime.report.measuring.memory import bytes_per_pass

__all__ = ["Counts", "count", "main"]

_SHALLOW, _DEEP = "1M", "3M"
_TARGETS, _DRAFT = ("1.5B", "7B"), "0.5B"
_DRAFTED, _ACCEPTANCE = 4, 0.8


@dataclass(frozen=True)
class Counts:
    """What one precision costs, from graphs."""

    kernels: int
    """Of a model without layers."""
    kernels_a_layer: float
    bytes_a_weight: float

    def of(self, shape: Shape) -> tuple[float, float]:
        """(bytes read, kernels) of a pass of a model of this shape."""
        return (
            self.bytes_a_weight * matrix_weights(shape),
            self.kernels + self.kernels_a_layer * shape.layers,
        )


def matrix_weights(shape: Shape) -> int:
    """Weights that a pass reads: of all projections and the output head."""
    head_size = shape.hidden // shape.heads
    attention = 2 * shape.hidden * head_size * (shape.heads + shape.kv_heads)
    return shape.layers * (attention + 3 * shape.hidden * shape.feed_forward) + (
        shape.vocab * shape.hidden
    )


def count(precision: str, folder: Path) -> Counts:
    """Export two depths of a model in `folder` and count.

    Args:
        precision: of the weights.
        folder: an existing directory.
    """
    found: list[tuple[Shape, int, int]] = []
    for size in (_SHALLOW, _DEEP):
        path = folder / f"{size}-{precision}"
        write_synthetic("cuda", size, precision, 256, path)
        package = read_package(path, verify_checksums=False)
        read = bytes_per_pass(package.manifest, "target")
        found.append((shape_of(size), kernels_in(package.target_graph), read))
    (shallow, few, _), (deep, many, read) = found
    layer = (many - few) / (deep.layers - shallow.layers)
    return Counts(round(few - layer * shallow.layers), layer, read / matrix_weights(deep))


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="gpu-expected-") as folder:
        target_counts = count("fp16", Path(folder))
        draft_counts = {name: count(name, Path(folder)) for name in ("int8", "int4")}
    for name, counts in {"fp16": target_counts, **draft_counts}.items():
        print(
            f"{name}: {counts.kernels} + {counts.kernels_a_layer:g} a layer kernels, "
            f"{counts.bytes_a_weight:.3f} bytes a weight",
            file=sys.stderr,
        )
    print(
        "| GPU | target FP16 | draft 0.5B | target step, ms | draft step, ms | round, ms | speed |"
    )
    print("|---|---|---|---|---|---|---|")
    for gpu in GPUS:
        for target in _TARGETS:
            for name, counts in draft_counts.items():
                whole = [
                    pass_seconds(gpu, *target_counts.of(shape_of(target)), captured=c)
                    for c in (False, True)
                ]
                steps = [
                    pass_seconds(gpu, *counts.of(shape_of(_DRAFT)), captured=c)
                    for c in (False, True)
                ]
                rounds = [round_seconds(s, w, _DRAFTED) for s, w in zip(steps, whole, strict=True)]
                tokens = tokens_per_round(_ACCEPTANCE, _DRAFTED)
                gains = [tokens * w / r for w, r in zip(whole, rounds, strict=True)]
                columns = [
                    *(
                        " / ".join(f"{1e3 * x:.2f}" for x in pair)
                        for pair in (whole, steps, rounds)
                    ),
                    " / ".join(f"{gain:.2f}" for gain in gains),
                ]
                print(f"| {gpu.name} | {target} | {name} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
