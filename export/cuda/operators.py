"""Check that ONNX Runtime's CUDA provider has a kernel for every operator of a graph.

A node without one runs on the CPU: its values cross the bus in every pass, and the pass cannot be
captured as a CUDA graph. The list is of ONNX Runtime's own table of registered kernels
(docs/OperatorKernels.md there): operators that exist for FP16 and FP32, or, of those that
compute shapes and positions, for INT64.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from specdec.export.editing.model import CONTRIB
from specdec.export.errors import UnsupportedModelError

__all__ = ["check_placement", "unplaced"]

_STANDARD = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Neg", "Abs", "Sign", "Min", "Max", "Clip"),
        *("Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Erf", "Tanh", "Sigmoid"),
        *("Relu", "Gelu", "Softmax", "Ceil", "Floor", "Round", "Cast", "Identity", "Where"),
        *("And", "Or", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("MatMul", "Gemm", "LayerNormalization", "CumSum", "ArgMax", "TopK"),
        *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"),
        *("Shape", "Size", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Tile", "Transpose", "Trilu", "Concat", "Split", "Slice", "Range"),
        *("ConstantOfShape", "OneHot", "NonZero", "Gather", "GatherElements"),
        *("GatherND", "ScatterElements", "ScatterND"),
    )
)
_CONTRIB = frozenset(("FusedMatMul", "GroupQueryAttention", "MatMulNBits"))
_HALF_ONLY = frozenset(("GroupQueryAttention",))


def check_placement(model: ir.Model) -> None:
    """Refuse a graph of which a part would run on the CPU.

    Raises:
        UnsupportedModelError: names the operators without a CUDA kernel.
    """
    lacking = sorted(set(unplaced(model)))
    if lacking:
        raise UnsupportedModelError(
            f"the model needs {', '.join(lacking)}, which ONNX Runtime's CUDA provider lacks; "
            "use --device cpu"
        )


def unplaced(model: ir.Model) -> Iterator[str]:
    """Operators of `model`, whose types are stated, that have no CUDA kernel for their types."""
    for node in model.graph:
        known = {"": _STANDARD, CONTRIB: _CONTRIB}.get(node.domain, frozenset())
        if node.op_type not in known:
            yield node.op_type
        elif node.op_type in _HALF_ONLY and node.inputs[0].dtype != ir.DataType.FLOAT16:
            yield f"{node.op_type} of {node.inputs[0].dtype}"
