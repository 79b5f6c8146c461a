"""Graphs of one native operator, and their results in float64 by NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]
Float64 = NDArray[np.float64]
EPSILON = 1e-5


def make_model(
    kind: str, inputs: dict[str, Array | None], fed: set[str], **attributes: object
) -> ModelProto:
    """Return a model of one operator; inputs not `fed` are initializers, None is left out."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(kind, names, ["y"], domain="specdec", **attributes)
    given = {name: value for name, value in inputs.items() if value is not None}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(given[name].dtype), given[name].shape
            )
            for name in given
            if name in fed
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in given.items() if name not in fed],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("specdec", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@dataclass(frozen=True)
class Library:
    """A copy of the library, bound to one instruction set."""

    path: Path

    def session(self, model: ModelProto, threads: int = 2) -> ort.InferenceSession:
        """Return a session with the library registered."""
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(str(self.path))
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, kind: str, inputs: dict[str, Array | None], **attributes: object) -> Array:
        """Run one operator once: `a`, `residual` and `ids` are fed, the rest is in the graph."""
        fed = {"a", "residual", "ids"}
        session = self.session(make_model(kind, inputs, fed, **attributes))
        feeds = {name: value for name, value in inputs.items() if name in fed and value is not None}
        return np.asarray(session.run(None, feeds)[0])


def rms_norm(a: Array, gamma: Array) -> Float64:
    """Return the rows of `a` normed, in float64."""
    wide = a.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + EPSILON) * gamma


def gated(gate: Float64, up: Float64, activation: str) -> Float64:
    """Return activation(gate) * up, in float64."""
    if activation == "silu":
        return gate / (1 + np.exp(-gate)) * up
    if activation == "gelu":
        return gate * 0.5 * (1 + np.vectorize(math.erf)(gate / math.sqrt(2))) * up
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    return 0.5 * gate * (1 + np.tanh(inner)) * up


def quantized_rows(a: Array, block: int) -> Float64:
    """Return rows as the blocks' products see them: 8 bits a block, scale max|x| / 127."""
    blocks = a.reshape(*a.shape[:-1], -1, block).astype(np.float32)
    top = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(top > 0, np.float32(127) / top, np.float32(0))
    q = np.rint(blocks * inverse).astype(np.float64)
    return (q * (top / np.float32(127)).astype(np.float64)).reshape(a.shape)


@dataclass(frozen=True)
class Blocks:
    """Random weights as `MatMulNBits` has them, and what they stand for."""

    b: NDArray[np.uint8]  # [N, K / block, bytes]
    scales: Array  # [N, K / block]
    zero_points: NDArray[np.uint8] | None  # [N, ceil(K / block * bits / 8)]
    weights: Float64  # [N, K]


def random_blocks(
    random: np.random.Generator,
    n: int,
    k: int,
    bits: int,
    block: int,
    zeros: bool = False,
    dtype: type = np.float32,
) -> Blocks:
    """Return random blocks; every byte value is likely."""
    count = k // block
    q = random.integers(0, 1 << bits, (n, count, block), np.uint8)
    scales = ((random.random((n, count)) + 0.1) / (1 << bits) / 8).astype(dtype)
    zero = random.integers(0, 1 << bits, (n, count), np.uint8)
    middle = zero.astype(np.float64) if zeros else np.full((n, count), float(1 << (bits - 1)))
    weights = (q - middle[..., None]) * scales.astype(np.float64)[..., None]
    packed_zero = zero
    if bits == 4:
        q = q[..., ::2] | q[..., 1::2] << 4
        padded = np.pad(zero, ((0, 0), (0, count % 2)))
        packed_zero = padded[:, ::2] | padded[:, 1::2] << 4
    return Blocks(q, scales, packed_zero if zeros else None, weights.reshape(n, k))
