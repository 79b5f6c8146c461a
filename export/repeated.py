"""Store the weights of a model whose layers are all alike once.

A simulated model repeats one layer. Its graph names every layer's weights, and an engine loads
each of them into memory of its own, as it would those of a real model; only the file holds one
layer: the tensors of all others point to the bytes of the first.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

__all__ = ["REPEATED_LAYERS", "save_repeated"]

REPEATED_LAYERS = "specdec.repeated_layers"
"""Metadata of a traced graph whose layers all have the weights of the first."""
_LAYER = re.compile(r"(?<=\blayers\.)\d+(?=\.)")
_SMALL = 1024
"""Bytes below which a weight may be stored in the graph itself."""


def save_repeated(model: ir.Model, path: Path) -> None:
    """Write `path` and its weights as `specdec.export.weights.save_graph` does.

    Args:
        model: a graph with `REPEATED_LAYERS`; its repeated weights are gone afterwards.
        path: the `.onnx` file to write.
    """
    weights = model.graph.initializers
    first = {}
    for name, value in weights.items():
        same = _LAYER.sub("0", name)
        if same != name and same in weights and value.const_value.nbytes >= _SMALL:
            first[name] = same
    for name in first:
        weights[name].const_value = ir.tensor(np.zeros(0, np.float32), name=name)
    ir.save(model, path, external_data=f"{path.name}.data", alignment=4096)
    proto = onnx.load(path, load_external_data=False)
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name, same in first.items():
        stored[name].CopyFrom(stored[same])
        stored[name].name = name
    path.write_bytes(proto.SerializeToString())
