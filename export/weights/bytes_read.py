"""Count the bytes of weights that one pass of an engine reads, which bound its speed."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from specdec.engines.package.manifest import EngineEntry

__all__ = ["weights_read"]


def weights_read(graph: Path, entry: EngineEntry) -> int:
    """Bytes of the weights a pass streams, in the precision they are computed in.

    A table of which a pass only picks rows (the embedding, unless the head shares it) is left
    out; FP16 weights that compute in FP32 are widened when the engine is loaded and count twice.
    """
    model = ir.load(graph)
    total = 0
    for value in model.graph.initializers.values():
        uses = value.uses()
        picked = uses and all(use.node.op_type == "Gather" and use.idx == 0 for use in uses)
        if picked or value.const_value is None:
            continue
        widened = entry.compute == "fp32" and value.const_value.dtype == ir.DataType.FLOAT16
        total += value.const_value.nbytes * (2 if widened else 1)
    return total
