"""Count the bytes of weights that one pass of an engine reads, which bound its speed."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from specdec.engines.native.library import DOMAIN, native_library
from specdec.engines.package.manifest import EngineEntry

__all__ = ["weights_read"]

_LOOKUPS = {"Gather": 0, "GatherFp16": 0, "GatherBlocks": 0}
"""Operators that pick rows of the input of that index."""


def weights_read(directory: Path, entry: EngineEntry) -> int:
    """Bytes of the weights a pass streams, in the precision they are computed in.

    A table of which a pass only picks rows (the embedding, unless the head shares it) is left
    out. FP16 weights that standard operators compute with in FP32 are widened when the engine is
    loaded and count twice; native operators read them as they are.

    Args:
        directory: of the package.
        entry: an engine in it; its native graph counts if this installation can run that.
    """
    native = entry.native if native_library().path is not None else None
    model = ir.load(directory / (entry.graph if native is None else native.graph))
    total = 0
    for value in model.graph.initializers.values():
        uses = value.uses()
        picked = uses and all(_LOOKUPS.get(use.node.op_type) == use.idx for use in uses)
        if picked or value.const_value is None:
            continue
        as_stored = all(use.node.domain == DOMAIN for use in uses)
        is_fp16 = value.const_value.dtype == ir.DataType.FLOAT16
        widened = entry.compute == "fp32" and is_fp16 and not as_stored
        total += value.const_value.nbytes * (2 if widened else 1)
    return total
