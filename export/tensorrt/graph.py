"""Rewrite a graph for TensorRT: standard operators, every element type stated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from specdec.export.calibration.scales import ActivationScale
from specdec.export.editing.model import MAX_LENGTH, save_graph
from specdec.export.graphs.attention import IN_PLACE_ADVICE, require_cached_attention
from specdec.export.tensorrt.attention import standardise_attention
from specdec.export.tensorrt.weights import lower_precision
from specdec.export.weights.recipes import Recipe

__all__ = ["write_standard_graph"]


def write_standard_graph(
    plain: Path,
    out: Path,
    recipe: Recipe,
    scales: Mapping[str, ActivationScale | None] | None = None,
) -> list[str]:
    """Rewrite a traced graph; ONNX Runtime runs the result too, which is how it is checked.

    Args:
        plain: a result of `specdec.export.engine_graphs.trace_graph`.
        out: the `.onnx` file to write; its weights go beside it.
        recipe: one whose method is "tensorrt".
        scales: of `specdec.export.calibration.ranges.calibrate`, for a recipe that is calibrated.

    Returns:
        Names of weights that stay float32 because a value is outside FP16's range.

    Raises:
        UnsupportedModelError: the graph has no in-place cache.
    """
    graph = ir.load(plain)
    require_cached_attention(graph, IN_PLACE_ADVICE)
    capacity = int(graph.metadata_props[MAX_LENGTH])
    standardise_attention(graph, capacity, ir.DataType[recipe.kv_dtype.upper()])
    kept = lower_precision(graph, recipe, scales or {})
    save_graph(graph, out)
    return kept
