"""The demo model's graphs for CUDA: sizes by their bits, and the text of a real prompt."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from specdec.export.cuda.operators import unplaced
from specdec.export.editing.dtypes import state_types
from tests.support.graphs import Traced, logits

TEXT = np.array([[1, 504, 3575, 282, 4649, 314, 7042, 30, 378, 3575, 282, 4521, 314]])
"""ids of "The capital of France is Paris. The capital of Germany is"."""


@pytest.mark.parametrize(
    ("precision", "megabytes", "agreement"),
    [("fp16", 269, 1.0), ("int8", 168, 0.9), ("int4", 114, 0.3)],
)
def test_a_real_model(precision: str, megabytes: int, agreement: float, demo_graph: Traced) -> None:
    path, _ = demo_graph.write_cuda(precision)
    model = ir.load(path)
    state_types(model)
    assert list(unplaced(model)) == []
    kinds = Counter(node.op_type for node in model.graph)
    assert kinds["GroupQueryAttention"] == 30
    assert kinds["Cast"] == 4 * 30 + 3
    assert path.with_name(f"{path.name}.data").stat().st_size / 1e6 == pytest.approx(
        megabytes, rel=0.02
    )
    expected = logits(demo_graph.original(), TEXT, TEXT.size)
    found = logits(demo_graph.cuda(precision), TEXT, TEXT.size)
    same = (found.argmax(axis=1) == expected.argmax(axis=1)).mean()
    assert same >= agreement
    if precision == "fp16":
        assert 0 < np.abs(found - expected).max() < 0.1
    for made in demo_graph.plain.parent.glob("cuda-*"):
        made.unlink()
