"""Products over FP16 panels and their gather, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from specdec.export.native_panels import pack_fp16, pack_fp16_gated
from tests.engines.native.graphs import EPSILON, Array, Library, gated, make_model, rms_norm

ROWS = (*range(1, 41), 133, 256)


def random_half(random: np.random.Generator, n: int, k: int) -> Array:
    return (random.standard_normal((n, k)) / k**0.5).astype(np.float16)


def exact(a: Array, weights: Array) -> Array:
    return a.astype(np.float64) @ weights.astype(np.float64).T


@pytest.mark.parametrize(("n", "k"), [(1, 1), (31, 7), (32, 64), (33, 193), (577, 576)])
def test_every_number_of_rows(library: Library, n: int, k: int) -> None:
    random = np.random.default_rng(n)
    weights = random_half(random, n, k)
    a = random.standard_normal((max(ROWS), k)).astype(np.float32)
    inputs: dict[str, Array | None] = {"a": a, "b": pack_fp16(weights)}
    model = make_model("MatMulFp16", inputs, {"a"}, N=n, K=k)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    session = library.session(model)
    want = exact(a, weights)
    for rows in ROWS:
        got = session.run(None, {"a": a[:rows]})[0]
        np.testing.assert_allclose(got, want[:rows], rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("rows", [1, 5, 140])
def test_norm_and_gate(library: Library, activation: str, rows: int) -> None:
    n, k = 77, 130
    random = np.random.default_rng(rows)
    gate, up = random_half(random, n, k), random_half(random, n, k)
    a = (random.standard_normal((2, rows, k)) * 3).astype(np.float32)
    gamma = random.standard_normal(k).astype(np.float32)
    bias = random.standard_normal(2 * n).astype(np.float32)
    residual = random.standard_normal((2, rows, n)).astype(np.float32)
    inputs: dict[str, Array | None] = {
        "a": a,
        "b": pack_fp16_gated(gate, up),
        "bias": bias,
        "residual": residual,
        "gamma": gamma,
    }
    got = library.run("MatMulFp16", inputs, N=n, K=k, epsilon=EPSILON, activation=activation)
    normed = rms_norm(a, gamma)
    want = gated(exact(normed, gate) + bias[:n], exact(normed, up) + bias[n:], activation)
    np.testing.assert_allclose(got, want + residual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_activation_far_from_zero(library: Library, activation: str) -> None:
    """One weight of 1: the gate is the input itself, from -100 to 100."""
    a = np.linspace(-100, 100, 4001, dtype=np.float32)[:, None]
    one = np.ones((1, 1), np.float16)
    inputs: dict[str, Array | None] = {
        "a": a,
        "b": pack_fp16_gated(one, np.zeros_like(one)),
        "bias": np.array([0, 1], np.float32),
    }
    got = library.run("MatMulFp16", inputs, N=1, K=1, activation=activation)
    want = gated(a.astype(np.float64), np.ones_like(a, np.float64), activation)
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-7)


def test_every_half_is_widened_exactly(library: Library) -> None:
    """All finite FP16 values, denormal ones too, by product and by gather."""
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = bits[np.isfinite(bits)].reshape(-1, 2)  # [31744, 2]
    n = len(values)
    panels = pack_fp16(values)
    product = library.run("MatMulFp16", {"a": np.eye(2, dtype=np.float32), "b": panels}, N=n, K=2)
    np.testing.assert_array_equal(product, values.T.astype(np.float32))
    ids = np.arange(n).reshape(2, -1)
    rows = library.run("GatherFp16", {"b": panels, "ids": ids}, N=n, K=2)
    np.testing.assert_array_equal(rows, values.astype(np.float32).reshape(2, -1, 2))


def test_not_a_number_stays_one(library: Library) -> None:
    a = np.zeros((3, 40), np.float32)
    a[1, 39] = np.nan
    got = library.run("MatMulFp16", {"a": a, "b": np.ones((1, 40, 32), np.float16)}, N=20, K=40)
    assert np.isnan(got[1]).all()
    assert (got[[0, 2]] == 0).all()


def test_rows_do_not_depend_on_each_other(library: Library) -> None:
    """No rows at all, and a row's result beside few others is near its result beside many."""
    random = np.random.default_rng(5)
    weights = pack_fp16(random_half(random, 50, 200))
    empty = np.zeros((0, 200), np.float32)
    assert library.run("MatMulFp16", {"a": empty, "b": weights}, N=50, K=200).shape == (0, 50)
    a = random.standard_normal((40, 200)).astype(np.float32)
    many = library.run("MatMulFp16", {"a": a, "b": weights}, N=50, K=200)
    alone = library.run("MatMulFp16", {"a": a[7:8], "b": weights}, N=50, K=200)
    np.testing.assert_allclose(alone[0], many[7], rtol=0, atol=2e-6)
