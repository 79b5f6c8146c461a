"""What lies around a product and can be computed with it: a norm, a gate, a bias.

A norm is matched by its nodes, an activation by its values: whatever chain of element-wise nodes
computes silu or gelu (either form) counts, however a model spells it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["Norm", "activation_of", "added_bias", "norm_of", "only_reader"]

_erf = np.vectorize(math.erf, otypes=[np.float64])
_SAMPLES = np.linspace(-6.0, 6.0, 121)
_TOLERANCE = 1e-5
_MOST_NODES = 16
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Neg": np.negative,
    "Tanh": np.tanh,
    "Erf": _erf,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Identity": lambda x: x,
}
_ACTIVATIONS = {
    "silu": _SAMPLES / (1 + np.exp(-_SAMPLES)),
    "gelu": 0.5 * _SAMPLES * (1 + _erf(_SAMPLES / math.sqrt(2))),
    "gelu_tanh": 0.5
    * _SAMPLES
    * (1 + np.tanh(math.sqrt(2 / math.pi) * (_SAMPLES + 0.044715 * _SAMPLES**3))),
}


@dataclass(frozen=True)
class Norm:
    """`source * rsqrt(mean(source^2) + epsilon) * gamma`."""

    source: ir.Value
    gamma: ir.Value
    epsilon: float


def only_reader(value: ir.Value) -> ir.Node | None:
    """The node that alone reads `value`, once."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def reads_alone(node: ir.Node, value: ir.Value) -> bool:
    """Whether `node` is the only reader of `value`, which it reads once."""
    return bool(only_reader(value) is node)


def added_bias(output: ir.Value, n: int) -> tuple[ir.Value, ir.Value] | None:
    """(bias float32 [N], sum) where a constant is all that is added to `output`."""
    node = only_reader(output)
    if node is None or node.op_type != "Add" or node.domain:
        return None
    other = node.inputs[1] if node.inputs[0] is output else node.inputs[0]
    constant = _constant(other)
    if constant is None or constant.dtype != np.float32 or constant.shape != (n,):
        return None
    return other, node.outputs[0]


def activation_of(value: ir.Value) -> tuple[str, ir.Value] | None:
    """(name, x) where `value` is silu, gelu or gelu_tanh of x and x is read for that alone."""
    nodes: dict[ir.Node, None] = {}
    leaves: set[ir.Value] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        node = one.producer()
        if node is None or not _is_elementwise(node):
            leaves.add(one)
            continue
        if node not in nodes:
            nodes[node] = None
            pending += [x for x in node.inputs if x is not None and _constant(x) is None]
        if len(nodes) > _MOST_NODES:
            return None
    if len(leaves) != 1 or not nodes:
        return None
    (source,) = leaves
    if any(use.node not in nodes for use in source.uses()):
        return None
    inner = [node.outputs[0] for node in nodes if node.outputs[0] is not value]
    if any(use.node not in nodes for output in inner for use in output.uses()):
        return None
    with np.errstate(all="ignore"):
        found = _evaluated(value, source, {})
    for name, wanted in _ACTIVATIONS.items():
        if np.shape(found) == wanted.shape and np.abs(found - wanted).max() < _TOLERANCE:
            return name, source
    return None


def norm_of(value: ir.Value) -> Norm | None:
    """The RMS norm that makes `value`, however its factors are ordered."""
    node = _made_by(value, "Mul")
    if node is None:
        return None
    for gamma, rest in _orders(node):
        constant = _constant(gamma)
        if constant is None or constant.ndim != 1 or constant.dtype != np.float32:
            continue
        scaled = _scaled(rest)
        if scaled is not None:
            return Norm(scaled[0], gamma, scaled[1])
    return None


def _scaled(value: ir.Value) -> tuple[ir.Value, float] | None:
    """(x, epsilon) where `value` is `x / sqrt(mean(x^2) + epsilon)`."""
    divided = _made_by(value, "Div")
    if divided is not None:
        epsilon = _root_of_mean(divided.inputs[1], divided.inputs[0])
        return None if epsilon is None else (divided.inputs[0], epsilon)
    product = _made_by(value, "Mul")
    if product is None:
        return None
    for x, inverse in _orders(product):
        root = _inverted(inverse)
        epsilon = None if root is None else _root_of_mean(root, x)
        if epsilon is not None:
            return x, epsilon
    return None


def _inverted(value: ir.Value) -> ir.Value | None:
    reciprocal = _made_by(value, "Reciprocal")
    if reciprocal is not None:
        return reciprocal.inputs[0]
    quotient = _made_by(value, "Div")
    return quotient.inputs[1] if quotient is not None and _is(quotient.inputs[0], 1.0) else None


def _root_of_mean(value: ir.Value | None, x: ir.Value | None) -> float | None:
    """Epsilon where `value` is `sqrt(mean(x^2) + epsilon)`."""
    root = _made_by(value, "Sqrt")
    total = _made_by(root.inputs[0], "Add") if root is not None else None
    for mean, epsilon in _orders(total) if total is not None else ():
        constant = _constant(epsilon)
        if constant is None or constant.size != 1:
            continue
        reduced = _made_by(mean, "ReduceMean")
        if reduced is None or not _is_over_last_axis(reduced):
            continue
        if _is_square(reduced.inputs[0], x):
            return float(constant.reshape(()))
    return None


def _is_over_last_axis(node: ir.Node) -> bool:
    axes = node.attributes.get_ints("axes", None)
    if axes is None and len(node.inputs) > 1:
        constant = _constant(node.inputs[1])
        axes = None if constant is None else constant.reshape(-1).tolist()
    return axes is not None and list(axes) == [-1] and node.attributes.get_int("keepdims", 1) == 1


def _is_square(value: ir.Value | None, x: ir.Value | None) -> bool:
    power = _made_by(value, "Pow")
    if power is not None:
        return power.inputs[0] is x and _is(power.inputs[1], 2.0)
    product = _made_by(value, "Mul")
    return product is not None and product.inputs[0] is x and product.inputs[1] is x


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op_type and not node.domain else None


def _orders(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    first, second = node.inputs
    return [] if first is None or second is None else [(first, second), (second, first)]


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or not value.is_initializer() or value.const_value is None:
        return None
    return np.asarray(value.const_value.numpy())


def _is(value: ir.Value | None, number: float) -> bool:
    constant = _constant(value)
    return constant is not None and constant.size == 1 and float(constant.reshape(())) == number


def _is_elementwise(node: ir.Node) -> bool:
    """Whether `node` is one of `_FUNCTIONS` and its constants are single numbers."""
    if node.op_type not in _FUNCTIONS or node.domain or len(node.outputs) != 1:
        return False
    constants = [value for value in node.inputs if value is not None and value.is_initializer()]
    sizes = [int(np.prod(value.const_value.shape.numpy())) for value in constants]
    return all(size == 1 for size in sizes)


def _evaluated(value: ir.Value, source: ir.Value, known: dict[ir.Value, Any]) -> Any:
    """`value` in float64 where `source` is `_SAMPLES`."""
    if value is source:
        return _SAMPLES
    if value not in known:
        node = value.producer()
        if node is None:
            known[value] = value.const_value.numpy().astype(np.float64).reshape(())
        else:
            inputs = [_evaluated(x, source, known) for x in node.inputs if x is not None]
            known[value] = _FUNCTIONS[node.op_type](*inputs)
    return known[value]
