"""Which values of a decoder's graph are rows of the pass, and how wide they are.

A residual may be added inside a product only if it has the product's shape. Traced graphs do not
state shapes, so they are followed from the look-up of the tokens: element-wise nodes keep them,
products and attention set the width, `logit_rows` picks rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from specdec.export.native.products import Product

__all__ = ["RowWidths", "Rows"]

_KEEP = {
    *("Cast", "Identity", "Sigmoid", "Tanh", "Erf", "Sqrt", "Neg", "Relu", "Gelu", "Reciprocal"),
    *("LayerNormalization", "SimplifiedLayerNormalization", "Softmax"),
}
"""Operators whose output has the shape of their first input."""
_BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max"}
_IDS = ("input_ids", "position_ids")


@dataclass(frozen=True)
class Rows:
    """A value float32 [1, M, `width`], or [1, N, `width`] if `scored`."""

    width: int
    scored: bool = False


@dataclass
class RowWidths:
    """Answers for one graph; each value is looked at once."""

    products: dict[ir.Node, Product]
    _known: dict[ir.Value, Rows | None] = field(default_factory=dict)

    def of(self, value: ir.Value | None) -> Rows | None:
        """The rows that `value` is; None where that is not certain."""
        if value is None:
            return None
        pending = [value]
        while pending:  # no recursion: a deep model's residual stream is one long chain
            one = pending[-1]
            if one in self._known:
                pending.pop()
                continue
            node = one.producer()
            inputs = [] if node is None else [x for x in node.inputs if x is not None]
            missing = [x for x in inputs if x not in self._known]
            if missing:
                pending += missing
            else:
                self._known[one] = None if node is None else self._made_by(node, one)
                pending.pop()
        return self._known[value]

    def moved(self, old: ir.Value, new: ir.Value) -> None:
        """Say that `new` is what `old` was."""
        self._known[new] = self.of(old)

    def _made_by(self, node: ir.Node, value: ir.Value) -> Rows | None:
        first = self._known.get(node.inputs[0]) if node.inputs and node.inputs[0] else None
        if node in self.products:
            return first and Rows(self.products[node].weight.n, first.scored)
        if node.op_type == "GroupQueryAttention":
            return self._attended(node, value)
        if node.op_type == "Gather":
            return self._gathered(node, first)
        if node.op_type == "ReduceMean":
            return first and Rows(1, first.scored)
        if node.op_type in _BROADCAST:
            return self._broadcast(node)
        return first if node.op_type in _KEEP else None

    def _attended(self, node: ir.Node, value: ir.Value) -> Rows | None:
        past = node.inputs[3]
        size = past.shape[3] if past is not None and past.shape is not None else None
        if value is not node.outputs[0] or not isinstance(size, int):
            return None
        return Rows(node.attributes.get_int("num_heads") * size)

    def _gathered(self, node: ir.Node, first: Rows | None) -> Rows | None:
        table, ids = node.inputs
        axis = node.attributes.get_int("axis", 0)
        if table is None or ids is None:
            return None
        if axis == 1 and ids.name == "logit_rows":
            return first and Rows(first.width, scored=True)
        if axis != 0 or not table.is_initializer() or len(table.const_value.shape) != 2:
            return None
        root = ids
        while (maker := root.producer()) is not None and maker.op_type in (*_BROADCAST, "Cast"):
            changing = [x for x in maker.inputs if x is not None and not x.is_initializer()]
            if len(changing) != 1:
                return None
            root = changing[0]
        return Rows(int(table.const_value.shape[1])) if root.name in _IDS else None

    def _broadcast(self, node: ir.Node) -> Rows | None:
        found: list[tuple[int, bool | None]] = []
        for value in node.inputs:
            if value is not None and value.is_initializer():
                shape = [int(size) for size in value.const_value.shape]
                if len(shape) > 1:
                    return None
                found.append((shape[0] if shape else 1, None))
            else:
                rows = self._known.get(value) if value is not None else None
                if rows is None:
                    return None
                found.append((rows.width, rows.scored))
        widths = {width for width, _ in found} - {1}
        picks = {scored for _, scored in found} - {None}
        if len(widths) > 1 or len(picks) != 1:
            return None
        return Rows(max(widths, default=1), scored=bool(picks.pop()))
