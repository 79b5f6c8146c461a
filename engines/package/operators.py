"""Which operators a package's graphs may hold: those that exports write, and those allowed by name.

A graph is a program. The operators below, those of every architecture that is exported and their
like, do an amount of work that follows from the shapes. `Loop` and `Scan` repeat a part of the
graph as often as a value says, `If` hides one, and an operator of an unknown domain is whatever a
library registered makes of it. So a graph is scanned before a session sees it, subgraphs and
functions included.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from specdec.engines.errors import PackageError
from specdec.engines.package.external_data import graph_operators

__all__ = ["OPERATORS", "check_operators"]

_STANDARD = """
Abs Add And ArgMax ArgMin Attention Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv
Cos CumSum DequantizeLinear Div DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike
Flatten Floor Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid
HardSwish Identity IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
MatMul MatMulInteger Max Mean Min Mish Mod Mul Neg NonZero Not OneHot Or Pad Pow PRelu
QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd
ReduceSum ReduceSumSquare Relu Reshape RMSNormalization RotaryEmbedding Round ScatterElements
ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum
Swish Tanh TensorScatter Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
_CONTRIB = """
BiasGelu DynamicQuantizeMatMul FastGelu FusedMatMul GatherBlockQuantized Gelu
GroupQueryAttention MatMulIntegerToFloat MatMulNBits MoE MultiHeadAttention QMoE QuickGelu
RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization
SkipSimplifiedLayerNormalization
"""
_IN_STANDARD_DOMAIN = {"SimplifiedLayerNormalization"}
"""ONNX Runtime's own RMS norm, which it and GenAI's model builder write without a domain."""
OPERATORS = (
    frozenset(_STANDARD.split())
    | {f"com.microsoft.{name}" for name in _CONTRIB.split()}
    | _IN_STANDARD_DOMAIN
)
"""Names with their domain before a dot; those of ONNX's own domain stand alone."""
_OWN_DOMAIN = "specdec."
"""Of graphs for the native engine, which knows each of its operators or refuses the graph."""


def check_operators(graph: Path, allowed: Collection[str] = ()) -> None:
    """Check every operator of a graph.

    Args:
        graph: the `.onnx` file.
        allowed: further operators, written as in `OPERATORS`.

    Raises:
        PackageError: it holds others, or is not an ONNX graph.
    """
    found = {f"{domain}.{name}" if domain else name for domain, name in graph_operators(graph)}
    unknown = sorted(
        name for name in found - OPERATORS - set(allowed) if not name.startswith(_OWN_DOMAIN)
    )
    if unknown:
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise PackageError(
            f"{graph} holds the operators {shown}, which no export of this release writes; if you "
            "trust the package, allow them by name (OrtOptions.allow_operators, --allow-operator)"
        )
