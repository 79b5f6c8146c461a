"""The attention operator against float64, and against itself with other rows beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engines.native.attention_case import Case
from tests.engines.native.attention_node import feed, model
from tests.engines.native.attention_reference import Settings
from tests.engines.native.graphs import Library

RAGGED = [(200, 1), (0, 5), (61, 3), (127, 2), (330, 1)]


def check(case: Case, library: Library) -> None:
    """Output within float32's rounding, new keys and values cached, nothing else touched."""
    output, keys, values = case.play(library)
    wanted, wanted_keys, wanted_values = case.expected()
    spread = np.abs(wanted).max()
    assert np.abs(output - wanted).max() <= (2e-3 if case.half else 5e-6) * spread
    for got, want, before in (
        (keys, wanted_keys, case.keys),
        (values, wanted_values, case.values),
    ):
        written = np.zeros(got.shape[:3], bool)
        for sequence in case.sequences:
            end = sequence.past + len(sequence.query)
            written[sequence.slot, :, sequence.past : end] = True
        assert (got[~written] == before[~written]).all()
        assert np.abs(got[written] - want[written]).max() <= (4e-3 if case.half else 1e-6)


@pytest.mark.parametrize("head_size", [1, 7, 8, 16, 20, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_every_head_size_and_group(library: Library, head_size: int, group: int) -> None:
    settings = Settings(2 * group, 2, head_size, rotary_dim=head_size // 4 * 2)
    check(Case(settings, [(150, 4), (64, 1)], seed=head_size), library)


@pytest.mark.parametrize(
    ("rotary_dim", "interleaved"), [(64, False), (64, True), (32, False), (24, True), (2, False)]
)
def test_rotary(library: Library, rotary_dim: int, interleaved: bool) -> None:
    settings = Settings(9, 3, 64, rotary_dim=rotary_dim, interleaved=interleaved)
    check(Case(settings, RAGGED), library)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 200, 1000])
def test_windows(library: Library, window: int, half: bool) -> None:
    settings = Settings(6, 2, 32, window=window, rotary_dim=32)
    check(Case(settings, [*RAGGED, (100, 70)], half=half), library)


@pytest.mark.parametrize("softcap", [0.0, 0.5, 30.0])
@pytest.mark.parametrize("scale", [0.0, 0.25, -0.1])
def test_sinks_softcap_and_scale(library: Library, softcap: float, scale: float) -> None:
    settings = Settings(8, 2, 16, scale=scale, softcap=softcap)
    check(Case(settings, RAGGED, sinks=True), library)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "read", [(4, 100), (0, 60), (70, 0), (1, 1), (200, 200), (5, 1000), (0, 2**31 - 1)]
)
def test_read_is_the_mask_it_stands_for(
    library: Library, read: tuple[int, int], half: bool
) -> None:
    settings = Settings(6, 2, 24, rotary_dim=16)
    check(Case(settings, [*RAGGED, (301, 40)], half=half, read=read), library)


def test_read_within_a_window(library: Library) -> None:
    settings = Settings(6, 2, 24, window=150, rotary_dim=16)
    check(Case(settings, [*RAGGED, (301, 40)], read=(200, 20)), library)


def test_many_rows(library: Library) -> None:
    settings = Settings(9, 3, 64, rotary_dim=64)
    check(Case(settings, [(300, 200), (0, 130), (5, 1)]), library)


@pytest.mark.parametrize("packed", [False, True])
def test_packed_queries_keys_and_values(library: Library, packed: bool) -> None:
    check(Case(Settings(9, 3, 40, rotary_dim=40), RAGGED, packed=packed), library)


@pytest.mark.parametrize("window", [-1, 3])
def test_trees(library: Library, window: int) -> None:
    settings = Settings(6, 2, 32, window=window, rotary_dim=32)
    rng = np.random.default_rng(1)
    trees = [[-1, 0, 0, 1, -1, 4, 2, 6], [-1], [int(rng.integers(-1, i)) for i in range(80)]]
    check(Case(settings, [(100, 8), (70, 1), (33, 80)], trees=trees), library)


@pytest.mark.parametrize("half", [False, True])
def test_a_chain_is_a_tree_without_branches(library: Library, half: bool) -> None:
    settings, parts = Settings(6, 2, 32, rotary_dim=32), [(100, 9), (3, 70)]
    trees = [list(range(-1, rows - 1)) for _, rows in parts]
    plain = Case(settings, parts, half=half).play(library)
    tree = Case(settings, parts, half=half, trees=trees).play(library)
    assert all((a == b).all() for a, b in zip(plain, tree, strict=True))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("head_size", [64, 80])
def test_a_sequence_has_the_same_bits_whatever_runs_beside_it(
    library: Library, half: bool, head_size: int
) -> None:
    settings = Settings(6, 2, head_size, window=250, rotary_dim=32)
    case = Case(settings, [*RAGGED, (400, 60)], half=half, sinks=True)
    together, keys, values = case.play(library)
    start = 0
    for i, sequence in enumerate(case.sequences):
        end = start + len(sequence.query)
        for threads in (1, 2):
            alone, own_keys, own_values = case.play(library, only=[i], threads=threads)
            assert (alone == together[start:end]).all()
            assert (own_keys[sequence.slot] == keys[sequence.slot]).all()
            assert (own_values[sequence.slot] == values[sequence.slot]).all()
        start = end


def test_rows_have_the_same_bits_one_by_one(library: Library) -> None:
    """A verification pass computes what plain steps compute; truncated rows are overwritten."""
    settings = Settings(9, 3, 64, rotary_dim=64)
    case = Case(settings, [(250, 140)])
    together, keys, _ = case.play(library)
    whole = case.sequences[0]
    assert whole.key is not None
    assert whole.value is not None
    steps = Case(settings, [(250, 140)])
    for i in (0, 1, 2, 1, 2, 3, 4):  # a step back is a truncation
        steps.sequences = [
            type(whole)(
                250 + i, whole.slot, *(x[i : i + 1] for x in (whole.query, whole.key, whole.value))
            )
        ]
        output, steps.keys, steps.values = steps.play(library)
        assert (output[0] == together[i]).all()
    assert (steps.keys[whole.slot, :, :255] == keys[whole.slot, :, :255]).all()


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_what_is_not_a_number_is_not_hidden(library: Library, sinks: bool, softcap: float) -> None:
    case = Case(Settings(4, 2, 16, softcap=softcap), [(300, 2), (40, 1)], sinks=sinks)
    want, _, _ = case.play(library)
    case.sequences[0].query[1, 16:32] = np.nan  # the second head of the second row
    got, _, _ = case.play(library)
    assert np.isnan(got[1, 16:32]).all()
    got[1, 16:32] = want[1, 16:32]
    assert (got == want).all()
    case.keys[case.slots[1], 1, 7, 3] = np.nan  # a key that two heads of the third row see
    got, _, _ = case.play(library)
    assert np.isnan(got[2, 32:]).all()
    assert (got[2, :32] == want[2, :32]).all()


def test_instruction_sets_agree_bit_by_bit(libraries: dict[str, Library]) -> None:
    settings = Settings(8, 2, 80, softcap=20.0, window=300, rotary_dim=40)
    case = Case(settings, [*RAGGED, (500, 40)], sinks=True, half=True)
    outputs = [case.play(library) for library in libraries.values()]
    for other in outputs[1:]:
        assert all((a == b).all() for a, b in zip(outputs[0], other, strict=True))


def test_caches_that_are_not_bound_in_place_are_copied(library: Library) -> None:
    case = Case(Settings(4, 2, 16), RAGGED)
    want, want_keys, _ = case.play(library)
    caches = {"past_key": case.keys.copy(), "past_value": case.values.copy()}
    node = library.session(model(case.settings))
    output, keys, _ = node.run(None, feed(case.sequences) | caches)
    assert (output[0] == want).all()
    assert (keys == want_keys).all()
    assert (caches["past_key"] == case.keys).all()
