"""The attention operator against ONNX Runtime's GroupQueryAttention, one sequence."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.engines.native.attention_case import Case
from tests.engines.native.attention_node import Floats, one_node, run
from tests.engines.native.attention_reference import Settings
from tests.engines.native.graphs import Library


def group_query_attention(case: Case, library: Library) -> tuple[Floats, Floats, Floats]:
    """Output [M, H * D] and the caches of the case's only sequence, by ONNX Runtime."""
    s, sequence = case.settings, case.sequences[0]
    past, rows = sequence.past, len(sequence.query)
    names = [
        "query",
        "key",
        "value",
        "past_key",
        "past_value",
        "seqlens_k",
        "total_sequence_length",
    ]
    names += [n if n in case.extra else "" for n in ("cos_cache", "sin_cache")]
    names += ["", "", "sinks" if "sinks" in case.extra else ""]
    outputs = dict.fromkeys(("output", "present_key", "present_value"), TensorProto.FLOAT)
    node = helper.make_node(
        "GroupQueryAttention",
        names,
        list(outputs),
        domain="com.microsoft",
        num_heads=s.heads,
        kv_num_heads=s.kv_heads,
        scale=s.scale,
        softcap=s.softcap,
        local_window_size=s.window,
        do_rotary=int(s.rotary_dim > 0),
        rotary_interleaved=int(s.interleaved),
    )
    kinds = dict.fromkeys(("seqlens_k", "total_sequence_length"), TensorProto.INT32)
    inputs = {n: kinds.get(n, TensorProto.FLOAT) for n in names if n}
    feeds = {
        "query": sequence.query[None],
        "seqlens_k": np.array([past + rows - 1], np.int32),
        "total_sequence_length": np.array([past + rows], np.int32),
    } | case.extra
    assert sequence.key is not None
    assert sequence.value is not None
    feeds |= {"key": sequence.key[None], "value": sequence.value[None]}
    at = slice(sequence.slot, sequence.slot + 1)
    keys, values = case.keys[at].copy(), case.values[at].copy()
    output = run(library.session(one_node(node, inputs, outputs)), feeds, keys, values)
    return output, keys, values


def check(case: Case, library: Library) -> None:
    output, keys, values = case.play(library)
    theirs, their_keys, their_values = group_query_attention(case, library)
    slot, end = case.sequences[0].slot, sum(case.parts[0])
    assert np.abs(output - theirs).max() <= 1e-5 * np.abs(theirs).max()
    assert np.abs(keys[slot, :, :end] - their_keys[0, :, :end]).max() <= 1e-6
    assert (values[slot, :, :end] == their_values[0, :, :end]).all()


@pytest.mark.parametrize("head_size", [8, 16, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_shapes(library: Library, head_size: int, group: int) -> None:
    settings = Settings(2 * group, 2, head_size, rotary_dim=head_size // 16 * 16)
    check(Case(settings, [(150, 5)]), library)


@pytest.mark.parametrize("part", [(0, 1), (0, 90), (1, 1), (129, 1), (300, 17)])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(library: Library, part: tuple[int, int], interleaved: bool) -> None:
    settings = Settings(9, 3, 64, rotary_dim=64, interleaved=interleaved)
    check(Case(settings, [part]), library)


@pytest.mark.parametrize("window", [1, 3, 64, 100, 1000])
@pytest.mark.parametrize("part", [(0, 90), (129, 1), (300, 17)])
def test_windows(library: Library, window: int, part: tuple[int, int]) -> None:
    check(Case(Settings(6, 2, 32, window=window), [part]), library)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 2.0, 50.0])
def test_softcap_and_sinks(library: Library, softcap: float, sinks: bool) -> None:
    settings = Settings(8, 2, 64, scale=0.3, softcap=softcap, window=90)
    check(Case(settings, [(200, 6)], sinks=sinks), library)
