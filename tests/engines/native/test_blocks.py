"""Products over 8-bit and 4-bit blocks and their gather, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from specdec.export.native_panels import interleave_panels, pack_blocks, pack_columns
from tests.engines.native.graphs import (
    EPSILON,
    Array,
    Blocks,
    Library,
    gated,
    make_model,
    quantized_rows,
    random_blocks,
    rms_norm,
)

ROWS = (*range(1, 41), 256)


def packed(blocks: Blocks) -> dict[str, Array | None]:
    """Return B, scales and zero points in the native layout."""
    n = len(blocks.b)
    zeros = blocks.zero_points
    return {
        "b": pack_blocks(blocks.b),
        "scales": pack_columns(blocks.scales, n),
        "zero_points": None if zeros is None else pack_columns(zeros, n),
    }


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("bits", [8, 4])
def test_every_number_of_rows(
    library: Library, bits: int, block: int, dtype: type, zeros: bool
) -> None:
    n, k = 37, 3 * block
    random = np.random.default_rng(block + bits)
    blocks = random_blocks(random, n, k, bits, block, zeros, dtype)
    a = random.standard_normal((max(ROWS), k)).astype(np.float32)
    a[0, :block] = 0  # a block without a scale
    a[2, 5] = 1000
    sizes = {"N": n, "K": k, "bits": bits, "block_size": block}
    model = make_model("MatMulBlocks", {"a": a, **packed(blocks)}, {"a"}, **sizes)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    session = library.session(model)
    want = quantized_rows(a, block) @ blocks.weights.T
    for rows in ROWS:
        got = session.run(None, {"a": a[:rows]})[0]
        np.testing.assert_allclose(got, want[:rows], rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("n", [1, 15, 16, 31, 33, 577])
def test_odd_outputs(library: Library, n: int) -> None:
    random = np.random.default_rng(n)
    for bits in (8, 4):
        blocks = random_blocks(random, n, 64, bits, 64)
        a = random.standard_normal((3, 64)).astype(np.float32)
        inputs: dict[str, Array | None] = {"a": a, **packed(blocks)}
        got = library.run("MatMulBlocks", inputs, N=n, K=64, bits=bits, block_size=64)
        want = quantized_rows(a, 64) @ blocks.weights.T
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("extreme", [0, 255])
@pytest.mark.parametrize("bits", [8, 4])
def test_largest_sums_do_not_saturate(library: Library, bits: int, extreme: int) -> None:
    """Every weight and activation at its end: exact, as products of 16 bits would not be."""
    b = np.full((16, 2, 128 * bits // 8), extreme, np.uint8)
    scales = np.ones((16, 2), np.float32)
    a = np.full((5, 256), 127, np.float32)
    a[1] = -127
    inputs: dict[str, Array | None] = {
        "a": a,
        "b": pack_blocks(b),
        "scales": pack_columns(scales, 16),
    }
    got = library.run("MatMulBlocks", inputs, N=16, K=256, bits=bits, block_size=128)
    weight = (extreme & ((1 << bits) - 1)) - (1 << (bits - 1))
    np.testing.assert_array_equal(got, np.repeat(a[:, :1] * weight * 256, 16, 1))


@pytest.mark.parametrize("rows", [1, 9, 140])
@pytest.mark.parametrize("bits", [8, 4])
def test_norm_gate_bias_and_residual(library: Library, bits: int, rows: int) -> None:
    n, k, block = 45, 256, 64
    random = np.random.default_rng(rows)
    gate, up = (random_blocks(random, n, k, bits, block, zeros=True) for _ in range(2))
    a = random.standard_normal((1, rows, k)).astype(np.float32)
    gamma = random.standard_normal(k).astype(np.float32)
    bias = random.standard_normal(2 * n).astype(np.float32)
    residual = random.standard_normal((1, rows, n)).astype(np.float32)
    both: dict[str, Array | None] = {}
    for name, value in packed(gate).items():
        other = packed(up)[name]
        assert value is not None
        assert other is not None
        both[name] = interleave_panels(value, other)
    inputs = {"a": a, **both, "bias": bias, "residual": residual, "gamma": gamma}
    sizes = {"N": n, "K": k, "bits": bits, "block_size": block}
    got = library.run("MatMulBlocks", inputs, epsilon=EPSILON, activation="silu", **sizes)
    normed = rms_norm(a, gamma)
    want = gated(normed @ gate.weights.T + bias[:n], normed @ up.weights.T + bias[n:], "silu")
    # Against unquantized activations: 8 bits of them are the only difference.
    assert np.abs(got - want - residual).max() < 0.02 * np.abs(want).max()
    rounded = quantized_rows(normed.astype(np.float32), block)
    near = gated(rounded @ gate.weights.T + bias[:n], rounded @ up.weights.T + bias[n:], "silu")
    # A norm's last bit may move a value to the next of 255 steps, rarely.
    off = np.abs(got - near - residual) > 2e-4 * np.abs(want).max()
    assert off.mean() < 0.05


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("bits", [8, 4])
def test_gather(library: Library, bits: int, dtype: type, zeros: bool) -> None:
    n, k, block = 50, 96, 32
    blocks = random_blocks(np.random.default_rng(1), n, k, bits, block, zeros, dtype)
    parts = packed(blocks)
    ids = np.array([[0, 49, 16], [15, 1, 31]])
    inputs = {
        "b": parts["b"],
        "scales": parts["scales"],
        "ids": ids,
        "zero_points": parts["zero_points"],
    }
    got = library.run("GatherBlocks", inputs, N=n, K=k, bits=bits, block_size=block)
    np.testing.assert_array_equal(got, blocks.weights[ids].astype(np.float32))


def test_not_a_number_stays_one(library: Library) -> None:
    blocks = random_blocks(np.random.default_rng(1), 16, 128, 8, 64)
    a = np.ones((3, 128), np.float32)
    a[0, 70], a[2, 3] = np.nan, np.inf
    inputs: dict[str, Array | None] = {"a": a, **packed(blocks)}
    got = library.run("MatMulBlocks", inputs, N=16, K=128, bits=8, block_size=64)
    assert np.isnan(got[[0, 2]]).all()
    assert np.isfinite(got[1]).all()
