"""The packed layouts: back to the standard ones, in NumPy and by a graph's standard operators."""

from __future__ import annotations

import numpy as np
import pytest

from specdec.export.native_panels import (
    interleave_panels,
    pack_blocks,
    pack_columns,
    pack_fp16,
    pack_fp16_gated,
    unpack_blocks,
    unpack_columns,
    unpack_fp16,
)
from tests.engines.native.graphs import random_blocks


@pytest.mark.parametrize("n", [1, 31, 32, 33, 577])
def test_fp16_there_and_back(n: int) -> None:
    weights = np.random.default_rng(n).standard_normal((n, 7)).astype(np.float16)
    panels = pack_fp16(weights)
    assert panels.shape == (-(-n // 32), 7, 32)
    assert panels.flags.c_contiguous
    assert not panels.transpose(0, 2, 1).reshape(-1, 7)[n:].any()
    np.testing.assert_array_equal(unpack_fp16(panels, n), weights)


def test_where_a_value_is() -> None:
    """By hand: output 40's third weight is in panel 1, k = 2, column 8."""
    weights = np.arange(64 * 4, dtype=np.float16).reshape(64, 4)
    assert pack_fp16(weights)[1, 2, 8] == weights[40, 2]
    b = np.arange(32 * 2 * 32, dtype=np.uint32).astype(np.uint8).reshape(32, 2, 32)
    assert pack_blocks(b)[1, 1, 3, 5, 2] == b[21, 1, 14]
    scales = np.arange(64, dtype=np.float32)
    assert pack_columns(scales, 32)[1, 1, 5] == scales[21 * 2 + 1]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("n", [1, 16, 17, 100])
def test_blocks_there_and_back(n: int, bits: int) -> None:
    blocks = random_blocks(np.random.default_rng(n), n, 96, bits, 32, zeros=True)
    np.testing.assert_array_equal(unpack_blocks(pack_blocks(blocks.b), n), blocks.b)
    for values in (blocks.scales, blocks.zero_points):
        assert values is not None
        np.testing.assert_array_equal(
            unpack_columns(pack_columns(values, n), n), values.reshape(-1)
        )


def test_gate_and_up_take_turns() -> None:
    gate, up = (np.full((40, 3), value, np.float16) for value in (1, 2))
    panels = pack_fp16_gated(gate, up)
    assert panels.shape == (4, 3, 32)
    assert panels[:, 0, 0].tolist() == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="differ"):
        interleave_panels(pack_fp16(gate), pack_fp16(gate[:31]))
    with pytest.raises(ValueError, match="differ"):
        interleave_panels(gate, gate.astype(np.float32))
