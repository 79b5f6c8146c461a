"""What the operators refuse, when a session is made or at a run, each in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specdec.export.native_panels import pack_blocks, pack_columns, pack_fp16
from tests.engines.native.graphs import Array, Library, make_model, random_blocks

A = np.zeros((2, 64), np.float32)
FP16: dict[str, Array | None] = {
    "a": A,
    "b": pack_fp16(np.zeros((33, 64), np.float16)),
    "bias": None,
    "residual": None,
    "gamma": None,
}
_BLOCKS = random_blocks(np.random.default_rng(0), 33, 64, 8, 32)
BLOCKS: dict[str, Array | None] = {
    "a": A,
    "b": pack_blocks(_BLOCKS.b),
    "scales": pack_columns(_BLOCKS.scales, 33),
    "zero_points": None,
    "bias": None,
    "residual": None,
    "gamma": None,
}
SIZES = {
    "MatMulFp16": {"N": 33, "K": 64},
    "MatMulBlocks": {"N": 33, "K": 64, "bits": 8, "block_size": 32},
}

Case = tuple[str, dict[str, Array | None], dict[str, Any], str]

CASES: list[Case] = [
    ("MatMulFp16", {}, {"N": 31}, r"B has the shape \[2, 64, 32\], it must be \[1, 64, 32\]"),
    ("MatMulFp16", {}, {"K": 63}, r"B has the shape \[2, 64, 32\], it must be \[2, 63, 32\]"),
    ("MatMulFp16", {}, {"N": 0}, r"N = 0, K = 64: both must be 1 to 2\^30"),
    ("MatMulFp16", {}, {"K": -64}, r"N = 33, K = -64: both must be 1 to 2\^30"),
    ("MatMulFp16", {}, {"N": 1 << 62}, r"both must be 1 to 2\^30"),
    ("MatMulFp16", {}, {"N": 1 << 30, "K": 1 << 30}, r"N \* K at most 2\^36"),
    ("MatMulFp16", {}, {"N": None}, "attribute N .an integer. is missing"),
    ("MatMulFp16", {}, {"activation": "relu"}, 'activation is "relu", it must be'),
    ("MatMulFp16", {}, {"activation": "s" * 99}, "activation is 100 bytes long, at most 16"),
    ("MatMulFp16", {}, {"activation": "silu"}, r"it must be \[4, 64, 32\]"),
    (
        "MatMulFp16",
        {"bias": np.zeros(32, np.float32)},
        {},
        r"bias has the shape \[32\], it must be \[33\]",
    ),
    ("MatMulFp16", {"bias": np.zeros((1, 33), np.float32)}, {}, r"bias has the shape \[1, 33\]"),
    (
        "MatMulFp16",
        {"gamma": np.zeros(65, np.float32)},
        {"epsilon": 0.1},
        r"gamma has the shape \[65\]",
    ),
    ("MatMulFp16", {"gamma": np.zeros(64, np.float32)}, {}, "epsilon must be given"),
    ("MatMulFp16", {"gamma": np.zeros(64, np.float32)}, {"epsilon": -0.5}, "epsilon must be given"),
    (
        "MatMulFp16",
        {"a": np.zeros((2, 63), np.float32)},
        {},
        "last dimension of A is 63, it must be K = 64",
    ),
    (
        "MatMulFp16",
        {"a": np.zeros((), np.float32)},
        {},
        "last dimension of A is 1, it must be K = 64",
    ),
    ("MatMulFp16", {"residual": np.zeros((2, 32), np.float32)}, {}, "residual's shape is not"),
    ("MatMulFp16", {"residual": np.zeros((1, 2, 33), np.float32)}, {}, "residual's shape is not"),
    ("MatMulFp16", {"residual": np.zeros((), np.float32)}, {}, "residual's shape is not"),
    ("MatMulBlocks", {}, {"bits": 5}, "bits is 5, it must be 8 or 4"),
    ("MatMulBlocks", {}, {"block_size": 16}, "block_size is 16, it must be 32, 64 or 128"),
    ("MatMulBlocks", {}, {"block_size": 0}, "block_size is 0, it must be 32, 64 or 128"),
    ("MatMulBlocks", {}, {"block_size": 128}, "K = 64 is not a multiple of block_size = 128"),
    (
        "MatMulBlocks",
        {},
        {"bits": 4},
        r"B has the shape \[3, 2, 8, 16, 4\], it must be \[3, 2, 4, 16, 4\]",
    ),
    ("MatMulBlocks", {"scales": np.zeros((3, 1, 16), np.float32)}, {}, "scales has the shape"),
    (
        "MatMulBlocks",
        {"scales": np.zeros((3, 2, 16), np.float64)},
        {},
        "scales must be FP32 or FP16",
    ),
    ("MatMulBlocks", {"scales": None}, {}, "scales|input"),
    (
        "MatMulBlocks",
        {"zero_points": np.zeros((3, 1, 16), np.uint8)},
        {},
        "zero_points has the shape",
    ),
    ("MatMulBlocks", {"a": np.zeros((2, 32), np.float32)}, {}, "last dimension of A is 32"),
]


@pytest.mark.parametrize(("kind", "inputs", "attributes", "message"), CASES)
def test_refused(
    libraries: dict[str, Library],
    kind: str,
    inputs: dict[str, Array | None],
    attributes: dict[str, Any],
    message: str,
) -> None:
    library = next(iter(libraries.values()))
    base = FP16 if kind == "MatMulFp16" else BLOCKS
    given = {
        name: value for name, value in {**SIZES[kind], **attributes}.items() if value is not None
    }
    with pytest.raises(Exception, match=message) as caught:
        library.run(kind, {**base, **inputs}, **given)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("wrong", [-1, 33, 1 << 62])
def test_ids_out_of_range(libraries: dict[str, Library], wrong: int) -> None:
    library = next(iter(libraries.values()))
    ids = np.array([0, wrong])
    with pytest.raises(Exception, match=rf"id {wrong} is not in 0\.\.32"):
        library.run("GatherFp16", {"b": FP16["b"], "ids": ids}, N=33, K=64)
    inputs = {"b": BLOCKS["b"], "scales": BLOCKS["scales"], "ids": ids}
    with pytest.raises(Exception, match=rf"id {wrong} is not in 0\.\.32"):
        library.run("GatherBlocks", inputs, **SIZES["MatMulBlocks"])


@pytest.mark.parametrize("name", ["b", "bias", "gamma"])
def test_weights_must_be_in_the_graph(libraries: dict[str, Library], name: str) -> None:
    """A weight that could change between runs was never checked."""
    library = next(iter(libraries.values()))
    inputs = {**FP16, "bias": np.zeros(33, np.float32), "gamma": np.zeros(64, np.float32)}
    model = make_model("MatMulFp16", inputs, {"a", name}, N=33, K=64, epsilon=0.1)
    label = "B" if name == "b" else name
    with pytest.raises(Exception, match=f"{label} must be an initializer of the graph"):
        library.session(model)
