"""What a pass and a round should take on a GPU, by arithmetic: to be compared with what they take.

A pass reads its weights once, starts its kernels one after the other, and copies its inputs and its
choice of tokens:

    seconds = bytes / bandwidth + kernels x seconds of a start + seconds of the copies

Bandwidth is the memory's by its data sheet, of which a good kernel reaches `REACHED`. The seconds
of a start are assumptions, of the right order and no more: a launch by the host, or the gap between
two kernels of a captured CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdec.engines.package.external_data import count_operators

__all__ = [
    "GPUS",
    "Gpu",
    "kernels_in",
    "kernels_of",
    "pass_seconds",
    "round_seconds",
    "tokens_per_round",
]

REACHED = 0.8
"""Share of the data sheet's bandwidth."""
_KERNELS = {"GroupQueryAttention": 3, "TopK": 2}
"""Of operators that start several: rotation and append, attention, the sum over its parts."""
_NORM_FUSED = 6
"""Of the seven operators of an RMS norm, as exported, ONNX Runtime makes one; each has a
`ReduceMean`, and nothing else has."""
_FREE = {"Constant", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"}
"""Operators that start none."""


@dataclass(frozen=True)
class Gpu:
    """A GPU and its host, as the arithmetic sees them."""

    name: str
    bandwidth: float
    """Bytes a second that a kernel can read."""
    launch: float
    """Seconds for the host to start a kernel."""
    replay: float
    """Seconds between two kernels of a captured CUDA graph."""
    copies: float
    """Seconds of a pass's copies between host and device."""


GPUS = (
    Gpu("Jetson AGX Orin", REACHED * 204.8e9, 12e-6, 2.5e-6, 60e-6),
    Gpu("RTX 4090", REACHED * 1008e9, 5e-6, 1.5e-6, 30e-6),
    Gpu("H200", REACHED * 4800e9, 5e-6, 1.2e-6, 30e-6),
)


def of_this_gpu(copy_bytes_per_second: float) -> Gpu:
    """A GPU whose copy was timed (bytes read and written, a second), with an RTX 4090's host."""
    known = GPUS[1]
    return Gpu("this", copy_bytes_per_second, known.launch, known.replay, known.copies)


def kernels_of(operators: Mapping[tuple[str, str], int]) -> int:
    """Kernels that one pass of a graph starts, by the operators of the exported graph."""
    started = sum(
        count * _KERNELS.get(name, 1) for (_, name), count in operators.items() if name not in _FREE
    )
    return started - _NORM_FUSED * operators.get(("", "ReduceMean"), 0)


def kernels_in(graph: Path) -> int:
    """Kernels that one pass of a graph starts."""
    return kernels_of(count_operators(graph))


def pass_seconds(gpu: Gpu, weights_read: float, kernels: float, *, captured: bool) -> float:
    """Seconds of a pass of few rows.

    Args:
        gpu: where.
        weights_read: bytes.
        kernels: how many it starts.
        captured: replayed as a CUDA graph, not launched one by one.
    """
    start = gpu.replay if captured else gpu.launch
    return weights_read / gpu.bandwidth + kernels * start + gpu.copies


def round_seconds(draft_step: float, target_pass: float, drafted: int) -> float:
    """Seconds of a round: `drafted` steps of the draft, and a verification."""
    return drafted * draft_step + target_pass


def tokens_per_round(acceptance: float, drafted: int) -> float:
    """Expected tokens of a round whose drafted tokens are right with chance `acceptance` < 1."""
    return (1.0 - acceptance ** (drafted + 1)) / (1.0 - acceptance)
