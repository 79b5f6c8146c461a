"""The arithmetic of expected times, and its count of kernels against ONNX Runtime's own graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu.arithmetic import (
    GPUS,
    Gpu,
    kernels_of,
    of_this_gpu,
    pass_seconds,
    round_seconds,
    tokens_per_round,
)
from gpu.synthetic import write_synthetic

from specdec.engines.package.external_data import count_operators

ROUND = Gpu("round numbers", 1e9, 10e-6, 1e-6, 50e-6)


def test_a_pass_is_bytes_starts_and_copies() -> None:
    assert pass_seconds(ROUND, 2e6, 100, captured=False) == pytest.approx(2e-3 + 1e-3 + 50e-6)
    assert pass_seconds(ROUND, 2e6, 100, captured=True) == pytest.approx(2e-3 + 1e-4 + 50e-6)
    assert of_this_gpu(5e11).bandwidth == 5e11
    assert [gpu.name for gpu in GPUS] == ["Jetson AGX Orin", "RTX 4090", "H200"]


def test_a_round() -> None:
    assert round_seconds(1.0, 5.0, 4) == 9.0
    assert tokens_per_round(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert tokens_per_round(0.0, 7) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_kernels_are_those_of_the_graph_that_runs(tmp_path: Path, precision: str) -> None:
    """But for casts, of which the CPU needs more, and for what one operator starts."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    import onnxruntime

    write_synthetic("cuda", "1M", precision, 256, tmp_path / "made")
    graph, optimized = tmp_path / "made" / "target" / "model.onnx", tmp_path / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimized)
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    written, run = count_operators(graph), count_operators(optimized)
    casts, attention = ("", "Cast"), ("com.microsoft", "GroupQueryAttention")
    assert written[attention] == run[attention] == 2
    without = sum(run.values()) - run[casts]
    assert kernels_of(written) == without + written[casts] + 2 * written[attention]
