"""Trace a model without copying its weights.

The exporter would serialize every parameter into the graph, fold their transposes into copies,
and read the file back: several times the model in memory. Here the graph is traced with its
parameters as inputs, and then given initializers that are views of the torch tensors;
transposes and concatenations of them are evaluated one at a time while the file is written.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from specdec.export.editing.model import TRANSPOSED
from specdec.export.errors import UnsupportedModelError
from specdec.export.graphs.attention import OPSET
from specdec.export.graphs.experts import every_expert

__all__ = ["trace"]


def trace(model: Any, config: Any, scratch: Path) -> ir.Model:
    """Export `model` with an Optimum config; its weights stay the torch model's.

    Args:
        model: a transformers causal language model, float32; it must outlive the result.
        config: the Optimum `OnnxConfig`.
        scratch: an existing directory for the exporter's file.

    Raises:
        UnsupportedModelError: the graph lacks weights, because the model's code runs only the
            parts that the traced tokens need.
    """
    from optimum.exporters.onnx.convert import export_pytorch

    path = scratch / "traced.onnx"
    with _quiet(), _parameters_as_inputs(), _no_final_inference(), every_expert(model):
        export_pytorch(model, config, OPSET, path, do_constant_folding=False)
    graph = ir.load(path)
    path.unlink()
    _attach_weights(graph, model)
    _fold_transposes(graph)
    return graph


def _attach_weights(graph: ir.Model, model: Any) -> None:
    """Turn the inputs that are parameters or buffers into initializers."""
    state = dict(_named_tensors(model))
    _check_complete(graph, model)
    kept = []
    for value in list(graph.graph.inputs):
        tensor = state.get(value.name)
        if tensor is None:
            kept.append(value)
            continue
        value.const_value = ir.tensor(tensor.detach().contiguous().numpy(), name=value.name)
    weights = [value for value in graph.graph.inputs if value.const_value is not None]
    graph.graph.inputs[:] = kept
    for value in weights:
        graph.graph.register_initializer(value)


def _check_complete(graph: ir.Model, model: Any) -> None:
    read = {value.name for value in graph.graph.inputs if value.uses()}
    lost = [name for name, _ in model.named_parameters() if name not in read]
    if lost:
        raise UnsupportedModelError(
            f"tracing architecture {model.config.model_type!r} lost {len(lost)} of its weights "
            f"({lost[0]} is the first): its code runs only the parts that a text needs"
        )


def _named_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _fold_transposes(graph: ir.Model) -> None:
    """Replace each transposed matrix weight by one initializer, computed when it is saved."""
    for node in list(graph.graph):
        if node.op_type != "Transpose" or not node.inputs[0].is_initializer():
            continue
        weight = node.inputs[0].const_value
        if len(weight.shape) != 2:
            continue
        name = f"{node.inputs[0].name}{TRANSPOSED}"
        value = graph.graph.initializers.get(name)
        if value is None:
            shape = ir.Shape(tuple(weight.shape)[::-1])
            lazy = ir.LazyTensor(
                functools.partial(_transposed, weight), dtype=weight.dtype, shape=shape, name=name
            )
            value = ir.Value(
                name=name, shape=shape, type=ir.TensorType(weight.dtype), const_value=lazy
            )
            graph.graph.register_initializer(value)
        ir.convenience.replace_all_uses_with(node.outputs[0], value)
        graph.graph.remove(node, safe=True)


def _transposed(weight: Any) -> ir.Tensor:
    return ir.tensor(np.ascontiguousarray(weight.numpy().T))


@contextmanager
def _parameters_as_inputs() -> Iterator[None]:
    original = torch.onnx.export
    torch.onnx.export = functools.partial(
        original, export_params=False, keep_initializers_as_inputs=True
    )
    try:
        yield
    finally:
        torch.onnx.export = original


@contextmanager
def _no_final_inference() -> Iterator[None]:
    """Leave out the exporter's last pass, which copies every weight to infer types.

    It takes two and a half times the model in memory and adds nothing to the file.
    """
    name = "_jit_pass_onnx_graph_shape_type_inference"
    original = getattr(torch._C, name)
    setattr(torch._C, name, lambda *_: None)
    try:
        yield
    finally:
        setattr(torch._C, name, original)


@contextmanager
def _quiet() -> Iterator[None]:
    """The tracer warns of every constant it sees; our checks run the graph instead."""
    import logging

    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
