"""Products and look-ups whose weights the native operators can hold.

    MatMul(a, Cast(W))             W fp16 [K, N]
    MatMul(a, Cast(Transpose(W)))  W fp16 [N, K], a head tied to the embedding
    MatMulNBits(a, B, scales[, zero points])
    Cast(Gather(W, ids))           W one of the above

A weight is taken only if all that reads it can be replaced: it is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["Lookup", "Product", "Weight", "find_lookups", "find_products"]

_FP16, _FP32, _UINT8 = ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.UINT8
_BLOCK_SIZES = (32, 64, 128)
_MOST_INPUTS = 4
"""Of `MatMulNBits`: no group indices and no bias of its own."""


@dataclass(frozen=True)
class Weight:
    """The constants of a product [.., K] -> [.., N]."""

    values: tuple[ir.Value, ...]
    """FP16: the matrix. Blocks: bytes, scales and, if there are any, zero points."""
    n: int
    k: int
    rows_first: bool = False
    """FP16: the matrix is [N, K], not [K, N]."""
    bits: int = 16
    block_size: int = 0

    @property
    def is_fp16(self) -> bool:
        """Whether it is one FP16 matrix; otherwise it is quantized in blocks."""
        return self.bits == 16

    @property
    def kind(self) -> tuple[int, ...]:
        """Equal for two weights that one gated product can take."""
        return (self.n, self.k, self.bits, self.block_size, len(self.values))


@dataclass(frozen=True)
class Product:
    """A node and its weight; input 0 of the node are the rows."""

    node: ir.Node
    weight: Weight

    @property
    def output(self) -> ir.Value:
        """The product alone."""
        return self.node.outputs[0]


@dataclass(frozen=True)
class Lookup:
    """`Cast(Gather(table, ids))` over the matrix of a product."""

    gather: ir.Node
    cast: ir.Node
    weight: Weight


def find_products(model: ir.Model) -> dict[ir.Node, Product]:
    """Every product that a native operator computes, in the order of the graph."""
    found = {
        node: Product(node, weight)
        for node in model.graph
        if (weight := _fp16(node) or _blocks(node)) is not None
    }
    shared = _weights_in_two_roles(found)
    return {
        node: product
        for node, product in found.items()
        if not any(
            value.name in shared or _has_other_readers(value, found)
            for value in product.weight.values
        )
    }


def find_lookups(model: ir.Model, products: dict[ir.Node, Product]) -> list[Lookup]:
    """Every look-up in the matrix of a native product."""
    weights = {p.weight.values[0].name: p.weight for p in products.values() if p.weight.is_fp16}
    return [
        Lookup(node, next(_readers(node)), weights[node.inputs[0].name])
        for node in model.graph
        if _is_lookup(node) and node.inputs[0].name in weights
    ]


def _fp16(node: ir.Node) -> Weight | None:
    if node.op_type != "MatMul" or node.domain or node.inputs[1] is None:
        return None
    cast = node.inputs[1].producer()
    if cast is None or cast.op_type != "Cast" or cast.attributes.get_int("to") != _FP32:
        return None
    source = cast.inputs[0]
    turn = source.producer()
    rows_first = turn is not None
    if turn is not None:
        if turn.op_type != "Transpose" or list(turn.attributes.get_ints("perm", ())) != [1, 0]:
            return None
        source = turn.inputs[0]
    if not source.is_initializer() or source.const_value.dtype != _FP16:
        return None
    if len(source.const_value.shape) != 2:
        return None
    first, second = (int(size) for size in source.const_value.shape)
    n, k = (first, second) if rows_first else (second, first)
    return Weight((source,), n, k, rows_first)


def _blocks(node: ir.Node) -> Weight | None:
    if node.op_type != "MatMulNBits":
        return None
    n, k, bits, block = (node.attributes.get_int(name) for name in ("N", "K", "bits", "block_size"))
    inputs = list(node.inputs[1:])
    while inputs and inputs[-1] is None:
        inputs.pop()
    if len(inputs) >= _MOST_INPUTS or bits not in (4, 8) or block not in _BLOCK_SIZES or k % block:
        return None
    values = [value for value in inputs if value is not None and value.is_initializer()]
    types = [value.const_value.dtype for value in values]
    if len(values) != len(inputs) or types not in ([_UINT8, _FP32], [_UINT8, _FP32, _UINT8]):
        return None
    return Weight(tuple(values), n, k, bits=bits, block_size=block)


def _weights_in_two_roles(products: dict[ir.Node, Product]) -> set[str | None]:
    """Names of matrices that one product reads as [N, K] and another as [K, N]."""
    roles: dict[str | None, set[bool]] = {}
    for product in products.values():
        roles.setdefault(product.weight.values[0].name, set()).add(product.weight.rows_first)
    return {name for name, found in roles.items() if len(found) > 1}


def _has_other_readers(value: ir.Value, products: dict[ir.Node, Product]) -> bool:
    """Whether something reads an initializer that no native operator stands for."""
    pending = [use.node for use in value.uses()]
    while pending:
        node = pending.pop()
        if node in products or _is_lookup(node):
            continue
        if node.op_type not in ("Cast", "Transpose") or node.outputs[0].is_graph_output():
            return True
        pending += _readers(node)
    return False


def _is_lookup(node: ir.Node) -> bool:
    """Whether `node` picks rows of a constant that are cast to FP32 and not used otherwise."""
    if node.op_type != "Gather" or node.domain or node.attributes.get_int("axis", 0) != 0:
        return False
    if not node.inputs[0].is_initializer() or node.outputs[0].is_graph_output():
        return False
    readers = list(_readers(node))
    if len(readers) != 1 or readers[0].op_type != "Cast":
        return False
    return bool(readers[0].attributes.get_int("to") == _FP32)


def _readers(node: ir.Node) -> Iterator[ir.Node]:
    return (use.node for use in node.outputs[0].uses())
