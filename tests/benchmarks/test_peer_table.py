"""The arithmetic of the comparison with peers."""

from __future__ import annotations

import pytest
from systems.configurations import CONFIGURATIONS
from systems.setup import PEERS, WORKERS
from systems.table import Ratio, Record, agreement, best, paired_ratio, speed


def record(
    configuration: str, prompt: int, seconds: float, tokens: int = 10, repeat: int = 0
) -> Record:
    return Record(configuration, prompt, repeat, seconds, tuple(range(tokens)))


def test_speed_is_the_median_over_requests() -> None:
    records = [record("a", 0, 1.0), record("a", 1, 2.0), record("a", 2, 10.0), record("b", 0, 0.1)]
    assert speed(records, "a") == 5.0


def test_ratio_pairs_requests_of_one_prompt_and_repeat() -> None:
    # The second prompt is slow for both: only pairing shows that "a" is always twice as fast.
    records = [
        record("a", 0, 1.0),
        record("b", 0, 2.0),
        record("a", 1, 50.0),
        record("b", 1, 100.0),
    ]
    assert paired_ratio(records, "a", "b") == Ratio(2.0, 2.0, 2.0)
    records.append(record("a", 0, 0.001, repeat=1))
    assert paired_ratio(records, "a", "b") == Ratio(2.0, 2.0, 2.0)


def test_ratio_interval_spans_the_pairs() -> None:
    seconds = (1.0, 2.0, 3.0, 4.0, 5.0)
    records = [record("a", i, 1.0) for i in range(5)]
    records += [record("b", i, second) for i, second in enumerate(seconds)]
    ratio = paired_ratio(records, "a", "b")
    assert ratio is not None
    assert ratio.value == 3.0
    assert 1.0 <= ratio.low < 3.0 < ratio.high <= 5.0
    assert str(Ratio(1.234, 1.0, 2.0)) == "1.23 [1.00, 2.00]"


def test_ratio_without_a_common_request_is_none() -> None:
    assert paired_ratio([record("a", 0, 1.0), record("b", 1, 1.0)], "a", "b") is None


def test_agreement_counts_up_to_the_first_difference() -> None:
    records = [
        Record("reference", 0, 0, 1.0, (1, 2, 3, 4)),
        Record("reference", 1, 0, 1.0, (5, 6, 7, 8, 9, 10)),
        Record("one", 0, 0, 1.0, (1, 2, 3, 4)),
        Record("one", 1, 0, 1.0, (5, 6, 0, 8, 9, 10)),
    ]
    assert agreement(records, "one", "reference") == (0.6, 1, 2)
    assert agreement(records, "reference", "reference") == (1.0, 2, 2)


def test_agreement_of_a_text_that_ends_early() -> None:
    records = [Record("r", 0, 0, 1.0, (1, 2, 3, 4)), Record("o", 0, 0, 1.0, (1, 2))]
    assert agreement(records, "o", "r") == (0.5, 0, 1)
    assert agreement(records, "missing", "r") == (0.0, 0, 0)


def test_best_is_the_fastest_that_was_measured() -> None:
    records = [record("a", 0, 1.0), record("b", 0, 0.5)]
    assert best(records, ["a", "b", "c"]) == "b"
    assert best(records, ["c"]) is None


def test_every_configuration_has_its_own_name_and_its_plain_counterpart() -> None:
    names = [configuration.name for configuration in CONFIGURATIONS]
    assert len(set(names)) == len(names)
    for configuration in CONFIGURATIONS:
        assert configuration.plain in names
        assert (configuration.plain == configuration.name) == (configuration.num_draft_tokens == 0)


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS.keys())
def test_every_peer_has_a_worker(peer) -> None:
    assert (WORKERS / peer.script).is_file()
    assert any(configuration.peer == peer.name for configuration in CONFIGURATIONS)
