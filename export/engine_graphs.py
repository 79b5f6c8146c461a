"""Trace a torch model to a graph, and write engine graphs of a recipe from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from specdec.engines.errors import one_line
from specdec.engines.package.manifest import EngineEntry
from specdec.export.calibration.scales import ActivationScale
from specdec.export.cuda.graph import write_cuda_graph
from specdec.export.editing.model import MAX_LENGTH, save_graph
from specdec.export.errors import UnsupportedModelError
from specdec.export.genai.model import GenaiModel
from specdec.export.graphs.in_place import kv_geometry
from specdec.export.graphs.layouts import export_config
from specdec.export.graphs.packing import pack_projections
from specdec.export.graphs.simplify import simplify
from specdec.export.graphs.tracing import trace
from specdec.export.tensorrt.graph import write_standard_graph
from specdec.export.weights.quantize import quantize
from specdec.export.weights.recipes import Recipe
from specdec.export.weights.store import store_fp16

__all__ = ["describe_engine", "logits_width", "trace_graph", "with_recipe", "write_engine"]

_PREFILL_CHUNK = {"in_place": 256, "concatenated": 64}


def trace_graph(model: Any, layout: str, max_length: int, directory: Path) -> Path:
    """Export `model` with Optimum and make the graph small.

    Args:
        model: a transformers causal language model, float32.
        layout: "in_place" or "concatenated", see `specdec.export.graphs.layouts`.
        max_length: capacity of the cache in tokens.
        directory: an existing scratch directory.

    Returns:
        A float32 `.onnx` file in `directory`, its weights beside it.

    Raises:
        UnsupportedModelError: Optimum or torch cannot trace the model.
    """
    if isinstance(model, GenaiModel):
        return model.write(max_length, directory)
    try:
        graph = trace(model, export_config(model, layout, max_length), directory)
    except UnsupportedModelError:
        raise
    except Exception as error:  # tracing raises whatever the model's own code raises
        raise UnsupportedModelError(
            f"the export of architecture {model.config.model_type!r} failed: {one_line(error)}; "
            "see docs/architectures.md for what is known to work"
        ) from error
    simplify(graph)
    pack_projections(graph)
    graph.metadata_props[MAX_LENGTH] = str(max_length)
    plain = directory / "plain.onnx"
    save_graph(graph, plain)
    return plain


def write_engine(
    plain: Path,
    out: Path,
    recipe: Recipe,
    scales: Mapping[str, ActivationScale | None] | None = None,
) -> list[str]:
    """Write one engine from the float32 graph.

    Args:
        plain: a result of `trace_graph`.
        out: the `.onnx` file to write; its weights go beside it.
        recipe: precision of the weights.
        scales: of `specdec.export.calibration.ranges.calibrate`, for a recipe that is calibrated.

    Returns:
        Names of weights that had to stay float32.
    """
    if recipe.method == "tensorrt":
        return write_standard_graph(plain, out, recipe, scales)
    if recipe.compute == "fp16":
        return write_cuda_graph(plain, out, recipe)
    if recipe.method != "none":
        quantize(plain, out, recipe)
        return []
    graph = ir.load(plain)
    kept = store_fp16(graph) if recipe.storage == "fp16" else []
    save_graph(graph, out)
    return kept


def logits_width(model: Any) -> int:
    """Columns of a model's logits."""
    if isinstance(model, GenaiModel):
        return model.logits_width
    return int(model.get_output_embeddings().weight.shape[0])


def describe_engine(
    graph: str,
    model: Any,
    layout: str,
    recipe: Recipe,
    *,
    vocab_size: int,
    max_length: int,
    shares_target_cache: bool,
) -> EngineEntry:
    """The manifest entry of an engine.

    Args:
        graph: path of the graph inside the package.
        model: the torch model it was made from.
        layout: as for `trace_graph`.
        recipe: as for `write_engine`.
        vocab_size: ids that are real tokens.
        max_length: capacity of the cache.
        shares_target_cache: whether it may use the target's cache.
    """
    if isinstance(model, GenaiModel):
        return model.describe(
            graph,
            vocab_size=vocab_size,
            max_length=max_length,
            shares_target_cache=shares_target_cache,
        )
    config = model.config.get_text_config()
    kv_heads, head_size = kv_geometry(config)
    return EngineEntry(
        graph=graph,
        backend="onnxruntime",
        layout=layout,
        storage=recipe.storage,
        compute=recipe.compute,
        recipe=recipe.name,
        vocab_size=vocab_size,
        logits_width=logits_width(model),
        max_length=max_length,
        num_layers=int(config.num_hidden_layers),
        num_attention_heads=int(config.num_attention_heads),
        num_kv_heads=kv_heads,
        head_size=head_size,
        kv_dtype=recipe.kv_dtype,
        prefill_chunk=min(_PREFILL_CHUNK[layout], max_length),
        shares_target_cache=shares_target_cache,
    )


def with_recipe(entry: EngineEntry, recipe: Recipe) -> EngineEntry:
    """The entry of the same model's engine with another recipe."""
    return replace(
        entry,
        storage=recipe.storage,
        compute=recipe.compute,
        recipe=recipe.name,
        kv_dtype=recipe.kv_dtype,
    )
