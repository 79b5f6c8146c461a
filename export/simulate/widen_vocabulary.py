"""Widen the vocabulary of an engine by repeating the rows of its embedding and output head.

Where the weights are random (`simulate.package`), a table of 150,000 tokens need not be made,
transposed and quantized: the engine is written with a small vocabulary and its tables are tiled.
Each repetition is scaled down, or equal rows would give equal logits and greedy text would depend
on ties.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

__all__ = ["widen_vocabulary"]

_ALIGNMENT = 4096


def widen_vocabulary(path: Path, narrow: int, wide: int) -> None:
    """Rewrite an engine for `wide` tokens.

    Args:
        path: the `.onnx` file; its weights lie beside it in `<name>.data`, which grows.
        narrow: its present vocabulary, a number that is no other dimension of the model.
        wide: the vocabulary it shall have.
    """
    if narrow == wide:
        return
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    weights = path.with_name(f"{path.name}.data")
    for tensor in graph.initializer:
        if narrow in tensor.dims:
            _widen(tensor, weights, narrow, wide)
    for node in graph.node:
        for attribute in node.attribute:  # N of MatMulNBits
            if attribute.type == onnx.AttributeProto.INT and attribute.i == narrow:
                attribute.i = wide
    for value in (*graph.value_info, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_value == narrow:
                dimension.dim_value = wide
    onnx.save(model, path)


def _widen(tensor: onnx.TensorProto, weights: Path, narrow: int, wide: int) -> None:
    """Tile one table along its vocabulary axis, at the end of the weight file."""
    loaded = onnx.TensorProto()
    loaded.CopyFrom(tensor)
    onnx.external_data_helper.load_external_data_for_tensor(loaded, str(weights.parent))
    axis = list(tensor.dims).index(narrow)
    array = onnx.numpy_helper.to_array(loaded)
    tiled = np.take(array, np.arange(wide) % narrow, axis=axis)
    if np.issubdtype(tiled.dtype, np.floating):  # of a quantized table, its scales alone
        shape = [wide if i == axis else 1 for i in range(tiled.ndim)]
        tiled *= np.linspace(1.0, 0.5, wide, dtype=tiled.dtype).reshape(shape)
    tiled = np.ascontiguousarray(tiled)
    with weights.open("r+b") as stream:
        offset = -(-stream.seek(0, 2) // _ALIGNMENT) * _ALIGNMENT
        stream.seek(offset)
        tiled.tofile(stream)
    tensor.dims[axis] = wide
    place = {"offset": str(offset), "length": str(tiled.nbytes)}
    for entry in tensor.external_data:
        entry.value = place.get(entry.key, entry.value)
