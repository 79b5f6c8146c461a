"""Inputs that the attention operator refuses: one line, and nothing is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engines.native.attention_case import Case
from tests.engines.native.attention_node import feed, model, run
from tests.engines.native.attention_reference import Settings
from tests.engines.native.graphs import Library

SETTINGS = Settings(4, 2, 16, rotary_dim=16)


def ints(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


# Two sequences of 2 and 3 rows over 10 and 20 cached tokens, a cache of 3 slots of 26 tokens.
@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"query": zeros(1, 5, 63)}, r"query has the shape \[1, 5, 63\], it must be \[1, 5, 64\]"),
        ({"query": zeros(2, 5, 64)}, r"it must be \[1, 5, 64\]"),
        ({"query": zeros(5, 64)}, "query has the shape"),
        ({"query": zeros(1, 0, 64)}, "query has no rows"),
        ({"key": zeros(1, 4, 32)}, r"key has the shape \[1, 4, 32\], it must be \[1, 5, 32\]"),
        ({"value": zeros(1, 5, 64)}, "value has the shape"),
        ({"query_starts": ints(0, 5)}, r"query_starts has the shape \[2\], it must be \[3\]"),
        ({"query_starts": ints(0, 2, 6)}, "it must go from 0 to 5"),
        ({"query_starts": ints(-1, 2, 5)}, "it must go from 0 to 5"),
        ({"query_starts": ints(0, 5, 5)}, "query_starts must rise: 5 is followed by 5"),
        ({"query_starts": ints(0, -3, 5)}, "query_starts must rise: 0 is followed by -3"),
        ({"query_starts": ints(0, 2**31 - 1, 5)}, "query_starts must rise: 0 is followed by 2147"),
        (
            {"past_lengths": ints(10, 24)},
            "24 cached tokens and 3 new ones, the cache holds 0 to 26",
        ),
        ({"past_lengths": ints(10, 2**31 - 1)}, "the cache holds 0 to 26"),
        ({"past_lengths": ints(-1, 20)}, "sequence 0 has -1 cached tokens"),
        ({"past_lengths": ints(1)}, "query_starts has the shape"),
        ({"past_lengths": ints()}, "past_lengths must have the shape"),
        ({"past_lengths": ints(1, 1, 1, 1)}, r"1 to 3 \(the cache's slots\)"),
        ({"slots": ints(0, 3)}, r"slots\[1\] is 3, it must be in 0..2"),
        ({"slots": ints(-1, 0)}, r"slots\[0\] is -1"),
        ({"slots": ints(1, 1)}, "slot 1 is used by the sequences 0 and 1"),
        ({"slots": ints(1)}, "slots has the shape"),
        ({"cos_cache": zeros(22, 8)}, "cos_cache has 22 positions, sequence 1 needs 23"),
        ({"cos_cache": zeros(26, 9)}, "with at most 8 columns"),
        ({"cos_cache": zeros(26, 0)}, "do_rotary needs cos_cache"),
        ({"sin_cache": zeros(26, 7)}, "sin_cache has the shape"),
        ({"sinks": zeros(3)}, r"sinks has the shape \[3\], it must be \[4\]"),
        ({"read": ints(1)}, "read has the shape"),
        ({"read": ints(-1, 4)}, r"read is \[-1, 4\]"),
        ({"parents": ints(-1, 0, -1, 0)}, "parents has the shape"),
        ({"parents": ints(-1, 0, -1, 0, 2)}, r"parents\[4\] is 2, it must be in -1..1"),
        ({"parents": ints(-1, 0, -1, -2, 0)}, r"parents\[3\] is -2"),
        ({"parents": ints(0, 0, -1, 0, 1)}, r"parents\[0\] is 0, it must be in -1..-1"),
    ],
)
def test_bad_inputs(library: Library, changed: dict[str, NDArray[Any]], line: str) -> None:
    case = Case(SETTINGS, [(10, 2), (20, 3)])
    inputs = feed(case.sequences) | case.extra | changed
    node = library.session(model(SETTINGS, given=[*case.extra, *changed]))
    keys, values = case.keys.copy(), case.values.copy()
    size = {"cos_cache": zeros(26, 8), "sin_cache": zeros(26, 8)}
    if "cos_cache" in changed:
        inputs["sin_cache"] = np.zeros_like(changed["cos_cache"])
    elif "sin_cache" in changed:
        inputs |= size | changed
    with pytest.raises(Exception, match=line) as caught:
        run(node, inputs, keys, values)
    assert len(str(caught.value).splitlines()) == 1
    assert (keys == case.keys).all()
    assert (values == case.values).all()


@pytest.mark.parametrize(
    ("shape", "other", "line"),
    [
        ((3, 3, 26, 16), (3, 3, 26, 16), r"past_key must have the shape \[slots, 2"),
        ((3, 2, 0, 16), (3, 2, 0, 16), "none of them 0"),
        ((3, 2, 416), (3, 2, 416), "past_key must have the shape"),
        ((3, 2, 26, 16), (3, 2, 27, 16), "past_value has the shape"),
        ((3, 2, 26, 17), (3, 2, 26, 17), "query has the shape"),
    ],
)
def test_bad_caches(
    library: Library, shape: tuple[int, ...], other: tuple[int, ...], line: str
) -> None:
    case = Case(SETTINGS, [(10, 2), (20, 3)])
    node = library.session(model(SETTINGS, given=case.extra))
    inputs = feed(case.sequences) | case.extra
    with pytest.raises(Exception, match=line):
        run(node, inputs, zeros(*shape), zeros(*other))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (Settings(5, 2, 16), "num_heads = 5, kv_num_heads = 2"),
        (Settings(2, 0, 16), "kv_num_heads = 0"),
        (Settings(-2, -1, 16), "num_heads = -2"),
        (Settings(2, 1, 16, window=0), "local_window_size = 0"),
        (Settings(2, 1, 16, scale=float("nan")), "scale = nan"),
        (Settings(2, 1, 16, softcap=-1.0), "softcap = -1"),
        (Settings(2, 1, 16, softcap=float("inf")), "softcap = inf"),
    ],
)
def test_bad_attributes(library: Library, settings: Settings, line: str) -> None:
    with pytest.raises(Exception, match=line):
        library.session(model(settings))


def test_rotary_tables_without_rotary(library: Library) -> None:
    case = Case(Settings(4, 2, 16), [(10, 2)])
    tables = {"cos_cache": zeros(26, 8), "sin_cache": zeros(26, 8)}
    node = library.session(model(case.settings, given=tables))
    with pytest.raises(Exception, match="do_rotary is 0"):
        run(node, feed(case.sequences) | tables, case.keys, case.values)


def test_a_key_without_a_value(library: Library) -> None:
    graph = model(SETTINGS, given=["cos_cache", "sin_cache"])
    graph.graph.node[0].input[2] = ""
    case = Case(SETTINGS, [(10, 2)])
    inputs = feed(case.sequences) | case.extra
    node = library.session(graph)
    with pytest.raises(Exception, match="key and value must both be given"):
        run(node, inputs, case.keys, case.values)
