"""Replace the nodes of a CPU engine's graph by native operators, as far as they match.

    product                          MatMulFp16, MatMulBlocks
    RMS norm, then products alone    the norm is computed inside each of them
    act(gate(x)) * up(x)             one product over alternating panels of gate and up
    product + bias, + residual       added inside the product
    look-up in a product's matrix    GatherFp16
    GroupQueryAttention              Attention

Whatever does not match (experts, layer norms, norms of queries and keys, FP32 weights) stays a
standard operator.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from specdec.engines.native.library import DOMAIN, VERSION
from specdec.export.editing.dtypes import state_types
from specdec.export.editing.model import add_initializer, take_place
from specdec.export.native.attention import replace_attention
from specdec.export.native.panels import pack
from specdec.export.native.patterns import (
    Norm,
    activation_of,
    added_bias,
    norm_of,
    only_reader,
    reads_alone,
)
from specdec.export.native.products import (
    Lookup,
    Product,
    Weight,
    find_lookups,
    find_products,
)
from specdec.export.native.rewritten import Rewritten
from specdec.export.native.rows import RowWidths
from specdec.export.weights.half import cancel_casts

__all__ = ["rewrite"]


def rewrite(model: ir.Model) -> Rewritten:
    """Make the graph of `model` native, in place.

    `specdec.export.native.attention.why_not` says beforehand whether it can be.
    """
    state_types(model)
    cancel_casts(model)
    common.RemoveUnusedNodesPass()(model)
    done = Rewritten()
    done.all_products = sum(_multiplies(node) for node in model.graph)
    products = find_products(model)
    _Rewriter(model, products, done).run(find_lookups(model, products))
    done.attentions = replace_attention(model)
    common.RemoveUnusedNodesPass()(model)
    model.graph.opset_imports[DOMAIN] = VERSION
    return done


def _multiplies(node: ir.Node) -> bool:
    if node.op_type in ("MatMul", "MatMulInteger"):
        value = node.inputs[1]
        maker = None if value is None else value.producer()
        return value is not None and (
            value.is_initializer() or (maker is not None and maker.op_type == "Cast")
        )
    return node.op_type in ("MatMulNBits", "Gemm")


class _Rewriter:
    """Replaces the products of one graph."""

    def __init__(self, model: ir.Model, products: dict[ir.Node, Product], done: Rewritten) -> None:
        self._model, self._products, self._done = model, products, done
        self._rows = RowWidths(products)
        for node in model.graph:
            self._rows.of(node.outputs[0])
        self._moved: dict[ir.Value, ir.Value] = {}
        self._packed: dict[tuple[str | None, ...], list[ir.Value]] = {}
        self._norms = {
            output: norm
            for node in model.graph
            if node.op_type == "Mul"
            for output in node.outputs
            if (norm := norm_of(output)) is not None and self._feeds_products_alone(output)
        }

    def run(self, lookups: list[Lookup]) -> None:
        """Replace everything that matches."""
        left = dict(self._products)
        for node in list(self._model.graph):
            if node.op_type == "Mul" and not node.domain:
                for gate in self._gated(node, left):
                    del left[gate.node]
        for product in left.values():
            self._replace_product(product)
        for lookup in lookups:
            self._replace_lookup(lookup)

    def _feeds_products_alone(self, output: ir.Value) -> bool:
        """Whether products, or the choice of rows before them, are all that read a norm."""
        if output.is_graph_output():
            return False
        for use in output.uses():
            if use.node.op_type == "Gather" and use.node.inputs[1].name == "logit_rows":
                picked = use.node.outputs[0]
                if picked.is_graph_output():
                    return False
                if not all(other.node in self._products for other in picked.uses()):
                    return False
            elif use.node not in self._products:
                return False
        return bool(output.uses())

    def _gated(self, node: ir.Node, left: dict[ir.Node, Product]) -> list[Product]:
        """Replace `node` if it is `act(gate(x)) * up(x)`; the two products if it was."""
        for first, second in ((0, 1), (1, 0)):
            up = self._with_bias(node.inputs[second], left)
            if up is None or not reads_alone(node, node.inputs[second]):
                continue
            acted = activation_of(node.inputs[first])
            if acted is None or not reads_alone(node, node.inputs[first]):
                continue
            gate = self._with_bias(acted[1], left)
            if gate is None or gate[0].node is up[0].node:
                continue
            pair = (gate[0], up[0])
            if pair[0].weight.kind != pair[1].weight.kind or not self._pairs(*pair):
                continue
            bias = self._gated_bias(gate[1], up[1], pair[0].weight.n)
            self._emit(pair, node.outputs[0], bias=bias, activation=acted[0])
            self._done.gates += 1
            return list(pair)
        return []

    def _pairs(self, gate: Product, up: Product) -> bool:
        """Whether two products read the same rows, and nothing else reads their weights."""
        if gate.node.inputs[0] is not up.node.inputs[0]:
            return False
        if gate.weight.rows_first != up.weight.rows_first:
            return False
        values = [*gate.weight.values, *up.weight.values]
        return all(self._readers_of_weight(value) == 1 for value in values)

    def _readers_of_weight(self, value: ir.Value) -> int:
        return sum(
            any(own.name == value.name for own in product.weight.values)
            for product in self._products.values()
        )

    def _with_bias(
        self, value: ir.Value | None, left: dict[ir.Node, Product]
    ) -> tuple[Product, ir.Value | None] | None:
        """The product, and its bias if it has one, that makes `value`."""
        node = None if value is None else value.producer()
        if node is None:
            return None
        if node in left:
            return left[node], None
        for source in node.inputs if node.op_type == "Add" else ():
            product = None if source is None else left.get(source.producer())
            found = None if product is None else added_bias(product.output, product.weight.n)
            if product is not None and found is not None and found[1] is value:
                return product, found[0]
        return None

    def _gated_bias(self, gate: ir.Value | None, up: ir.Value | None, n: int) -> ir.Value | None:
        """[gate's bias, up's bias], zeros for one that is missing."""
        if gate is None and up is None:
            return None
        parts = [
            np.zeros(n, np.float32) if one is None else one.const_value.numpy()
            for one in (gate, up)
        ]
        named = gate if gate is not None else up
        assert named is not None
        return add_initializer(self._model, f"{named.name}.gated", np.concatenate(parts))

    def _replace_product(self, product: Product) -> None:
        output, n = product.output, product.weight.n
        bias = residual = None
        biased = added_bias(output, n)
        if biased is not None:
            bias, output = biased
        node = only_reader(output)
        if node is not None and node.op_type == "Add" and not node.domain:
            other = node.inputs[1] if node.inputs[0] is output else node.inputs[0]
            rows, own = self._rows.of(other), self._rows.of(output)
            if other is not output and rows is not None and rows == own and rows.width == n:
                residual, output = other, node.outputs[0]
                self._done.residuals += 1
        self._emit((product,), output, bias=bias, residual=residual)

    def _emit(
        self,
        products: tuple[Product, ...],
        output: ir.Value,
        *,
        bias: ir.Value | None = None,
        residual: ir.Value | None = None,
        activation: str = "",
    ) -> None:
        """Put one native product in the place of the node that makes `output`."""
        weight = products[0].weight
        source, norm = self._normed(products[0].node.inputs[0])
        source = source if source is None else self._moved.get(source, source)
        attributes: dict[str, int | float | str] = {"N": weight.n, "K": weight.k}
        if not weight.is_fp16:
            attributes |= {"bits": weight.bits, "block_size": weight.block_size}
        if norm is not None:
            attributes["epsilon"] = norm.epsilon
            self._done.norms += 1
        if activation:
            attributes["activation"] = activation
        constants: list[ir.Value | None] = [*self._panels([p.weight for p in products])]
        constants += [None] * (0 if weight.is_fp16 else 3 - len(constants))
        gamma = None if norm is None else norm.gamma
        node = ir.node(
            "MatMulFp16" if weight.is_fp16 else "MatMulBlocks",
            [source, *constants, bias, residual, gamma],
            attributes,
            domain=DOMAIN,
        )
        self._done.products += len(products)
        self._take_place(output, node)

    def _normed(self, source: ir.Value | None) -> tuple[ir.Value | None, Norm | None]:
        """What to multiply, and the norm that comes first."""
        if source is None:
            return None, None
        norm = self._norms.get(source)
        if norm is not None:
            return norm.source, norm
        picking = source.producer()
        if picking is None or picking.op_type != "Gather":
            return source, None
        norm = self._norms.get(picking.inputs[0]) if picking.inputs[0] is not None else None
        if norm is None or picking.inputs[1].name != "logit_rows":
            return source, None
        source = self._moved.get(norm.source, norm.source)
        picked = ir.node("Gather", [source, picking.inputs[1]], dict(picking.attributes))
        picked.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        self._model.graph.insert_before(picking, picked)
        return picked.outputs[0], norm

    def _panels(self, weights: list[Weight]) -> list[ir.Value]:
        """Initializers of packed weights, packed once."""
        key = tuple(value.name for weight in weights for value in weight.values)
        if key not in self._packed:
            values = []
            for panels in pack(weights):
                value = ir.Value(
                    name=panels.name,
                    shape=panels.tensor.shape,
                    type=ir.TensorType(panels.tensor.dtype),
                    const_value=panels.tensor,
                )
                self._model.graph.register_initializer(value)
                self._done.panels.append(panels)
                values.append(value)
            self._packed[key] = values
        return self._packed[key]

    def _replace_lookup(self, lookup: Lookup) -> None:
        (panels,) = self._panels([lookup.weight])
        node = ir.node(
            "GatherFp16",
            [panels, lookup.gather.inputs[1]],
            {"N": lookup.weight.n, "K": lookup.weight.k},
            domain=DOMAIN,
        )
        self._take_place(lookup.cast.outputs[0], node)

    def _take_place(self, old: ir.Value, node: ir.Node) -> None:
        """Let `node` make the value `old`, under its name."""
        new = take_place(self._model, old, node)
        self._moved[old] = new
        self._rows.moved(old, new)
