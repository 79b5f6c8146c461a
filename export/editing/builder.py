"""Insert nodes and constants into a graph, one call each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from specdec.export.editing.model import add_initializer

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """Adds nodes to `model` in order, each before the node `before`."""

    def __init__(self, model: ir.Model, before: ir.Node) -> None:
        self._model = model
        self._before = before

    def op(self, name: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Add a node with one output and return that."""
        return self.ops(name, 1, *inputs, **attributes)[0]

    def ops(
        self, name: str, num_outputs: int, *inputs: ir.Value | None, **attributes: Any
    ) -> list[ir.Value]:
        """Add a node and return its outputs."""
        node = ir.node(name, inputs, attributes, num_outputs=num_outputs)
        self._model.graph.insert_before(self._before, node)
        return list(node.outputs)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` as `dtype`."""
        result = self.op("Cast", value, to=dtype)
        result.type = ir.TensorType(dtype)
        return result

    def constant(self, numbers: Iterable[int] | np.ndarray) -> ir.Value:
        """An int64 constant; equal constants are one initializer."""
        array = np.asarray(list(numbers) if isinstance(numbers, range) else numbers, np.int64)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        return self._once(array, f"int.{array.shape}.{digest}")

    def scalar(self, number: float) -> ir.Value:
        """A float32 constant without axes."""
        return self._once(np.asarray(number, np.float32), f"float.{number!r}")

    def _once(self, array: np.ndarray, name: str) -> ir.Value:
        known = self._model.graph.initializers.get(name)
        return known if known is not None else add_initializer(self._model, name, array)
