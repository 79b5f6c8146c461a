"""Write graphs of a decoder's products alone, native and with ONNX Runtime's operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from specdec.export.native_panels import (
    interleave_panels,
    pack_blocks,
    pack_columns,
    pack_fp16,
    pack_fp16_gated,
)

# Bytes a weight of each variant; blocks of 64 with an FP32 scale.
BYTES = {
    "ort-fp32": 4.0,
    "fp16": 2.0,
    "ort-int8": 1.0625,
    "int8": 1.0625,
    "ort-int4": 0.5625,
    "int4": 0.5625,
}
BLOCK = 64
EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; the defaults are the demo target's."""

    layers: int = 30
    hidden: int = 576
    inner: int = 1536
    packed_qkv: int = 960
    vocabulary: int = 49152

    @property
    def weights(self) -> int:
        """Return how many weights one pass reads."""
        layer = self.packed_qkv + self.hidden + 3 * self.inner
        return self.hidden * (self.layers * layer + self.vocabulary)


@dataclass
class Graph:
    """Nodes and initializers under construction."""

    precision: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inits: list[onnx.TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add an initializer."""
        self.inits.append(numpy_helper.from_array(value, name))
        return name

    def half(self, n: int, k: int) -> NDArray[np.float16]:
        """Return random weights [n, k] whose products neither grow nor vanish."""
        values = self.random.standard_normal((n, k), np.float32) / np.float32(k**0.5)
        half: NDArray[np.float16] = values.astype(np.float16)
        return half

    def quantized(self, n: int, k: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Return random `MatMulNBits` weights and scales."""
        bits = 8 if self.precision.endswith("8") else 4
        q = self.random.integers(0, 256, (n, k // BLOCK, BLOCK * bits // 8), np.uint8)
        scales = np.full((n, k // BLOCK), 1.0 / (2.0**bits / 3.5) / k**0.5, np.float32)
        return q, scales

    def native(self, x: str, out: str, n: int, k: int, residual: str, gated: bool) -> None:
        """Add a native product: norm before unless it adds a residual."""
        fuse: dict[str, object] = {"activation": "silu"} if gated else {}
        gamma = "" if residual else self.constant(out + ".gamma", np.ones(k, np.float32))
        if gamma:
            fuse["epsilon"] = EPSILON
        inputs = [x]
        if self.precision == "fp16":
            halves = [self.half(n, k) for _ in range(2 if gated else 1)]
            packed = pack_fp16_gated(*halves) if gated else pack_fp16(halves[0])
            inputs.append(self.constant(out + ".weight", packed))
        else:
            fuse |= {"bits": 8 if self.precision == "int8" else 4, "block_size": BLOCK}
            pairs = [self.quantized(n, k) for _ in range(2 if gated else 1)]
            b = [pack_blocks(q) for q, _ in pairs]
            s = [pack_columns(scales, n) for _, scales in pairs]
            inputs.append(self.constant(out + ".weight", interleave_panels(*b) if gated else b[0]))
            inputs.append(self.constant(out + ".scale", interleave_panels(*s) if gated else s[0]))
            inputs.append("")
        inputs += ["", residual, gamma]
        kind = "MatMulFp16" if self.precision == "fp16" else "MatMulBlocks"
        self.nodes.append(helper.make_node(kind, inputs, [out], domain="specdec", N=n, K=k, **fuse))

    def plain(self, x: str, out: str, n: int, k: int) -> None:
        """Add ONNX Runtime's product."""
        if self.precision == "ort-fp32":
            weight = self.constant(out + ".weight", self.half(k, n).astype(np.float32))
            self.nodes.append(helper.make_node("MatMul", [x, weight], [out]))
            return
        q, scales = self.quantized(n, k)
        bits = 8 if self.precision == "ort-int8" else 4
        inputs = [
            x,
            self.constant(out + ".weight", q),
            self.constant(out + ".scale", scales.reshape(-1)),
        ]
        sizes = {"N": n, "K": k, "bits": bits, "block_size": BLOCK, "accuracy_level": 4}
        self.nodes.append(
            helper.make_node("MatMulNBits", inputs, [out], domain="com.microsoft", **sizes)
        )

    def standard(self, x: str, out: str, n: int, k: int, residual: str, gated: bool) -> None:
        """Add ONNX Runtime's product with what the native one has fused."""
        if not residual:
            gamma = self.constant(out + ".gamma", np.ones(k, np.float32))
            self.nodes.append(
                helper.make_node(
                    "SimplifiedLayerNormalization", [x, gamma], [out + ".n"], epsilon=EPSILON
                )
            )
            x = out + ".n"
        if gated:
            self.plain(x, out + ".g", n, k)
            self.plain(x, out + ".u", n, k)
            self.nodes.append(helper.make_node("Sigmoid", [out + ".g"], [out + ".s"]))
            self.nodes.append(helper.make_node("Mul", [out + ".g", out + ".s"], [out + ".a"]))
            self.nodes.append(helper.make_node("Mul", [out + ".a", out + ".u"], [out]))
        elif residual:
            self.plain(x, out + ".p", n, k)
            self.nodes.append(helper.make_node("Add", [out + ".p", residual], [out]))
        else:
            self.plain(x, out, n, k)


def write_graph(folder: Path, precision: str, shape: Shape) -> Path:
    """Write the products' graph of one precision (a key of `BYTES`); return its path."""
    graph = Graph(precision)
    product = graph.standard if precision.startswith("ort") else graph.native
    x, h = "hidden", shape.hidden
    for layer in range(shape.layers):
        name = f"layer{layer}"
        product(x, name + ".qkv", shape.packed_qkv, h, "", False)
        ends = [
            graph.constant(name + end, np.array([at]))
            for end, at in ((".0", 0), (".h", h), (".x", -1))
        ]
        graph.nodes.append(helper.make_node("Slice", [name + ".qkv", *ends], [name + ".q"]))
        product(name + ".q", name + ".o", h, h, x, False)
        product(name + ".o", name + ".gu", shape.inner, h, "", True)
        product(name + ".gu", name + ".down", h, shape.inner, name + ".o", False)
        x = name + ".down"
    graph.nodes.append(helper.make_node("Gather", [x, "logit_rows"], ["picked"], axis=1))
    product("picked", "logits", shape.vocabulary, h, "", False)
    inputs = [
        helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, "rows", h]),
        helper.make_tensor_value_info("logit_rows", TensorProto.INT64, ["picked_rows"]),
    ]
    output = helper.make_tensor_value_info(
        "logits", TensorProto.FLOAT, [1, "picked_rows", shape.vocabulary]
    )
    opsets = [
        helper.make_opsetid(domain, version)
        for domain, version in (("", 17), ("specdec", 1), ("com.microsoft", 1))
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, precision, inputs, [output], graph.inits),
        opset_imports=opsets,
        ir_version=10,
    )
    path = folder / f"{precision}.onnx"
    onnx.save(
        model, path, save_as_external_data=True, location=f"{precision}.data", size_threshold=4096
    )
    return path
