"""Counter-based randomness: reproducible, independent streams, the right distributions."""

from __future__ import annotations

import numpy as np

from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.randomness import CounterRandom, CoupledRandom

LAW = Distribution.dense(np.array([0.1, 0.0, 0.25, 0.65]))
CHI2_999 = {2: 13.8, 9: 27.9}  # upper 0.1 % points; the seeds are fixed, so never flaky


def draws(random: CounterRandom, count: int = 50) -> list[int]:
    out = []
    for start in range(count):
        random.begin(start)
        out.append(random.draft(1, LAW))
        out.append(random.final(LAW))
    return out


def test_same_seed_same_draws_other_seed_other_draws() -> None:
    assert draws(CounterRandom(7)) == draws(CounterRandom(7))
    assert draws(CounterRandom(7)) != draws(CounterRandom(8))
    assert CounterRandom(None).seed != CounterRandom(None).seed


def test_a_draw_is_a_function_of_its_place() -> None:
    one, other = CounterRandom(2**64 - 1), CounterRandom(2**64 - 1)
    other.begin(3)
    other.draft(0, LAW)
    other.coupled(0, LAW)
    for random in (one, other):
        random.begin(9)
    assert one.uniform(0, 9, 2) == other.uniform(0, 9, 2)


def test_places_and_streams_do_not_repeat() -> None:
    random = CounterRandom(5)
    values = [
        random.uniform(stream, start, index)
        for stream in range(3)
        for start in range(40)
        for index in range(20)
    ]
    assert len(set(values)) == len(values)
    streams = np.array(values).reshape(3, -1)
    assert np.abs(np.corrcoef(streams) - np.eye(3)).max() < 0.1
    counts = np.histogram(values, bins=10, range=(0, 1))[0]
    assert ((counts - 240.0) ** 2 / 240.0).sum() < CHI2_999[9]


def frequency_error(tokens: list[int]) -> float:
    counts = np.bincount(tokens, minlength=4)
    assert counts[1] == 0
    expected = LAW.probs * len(tokens)
    seen = expected > 0
    return float(((counts[seen] - expected[seen]) ** 2 / expected[seen]).sum())


def test_draws_follow_the_distribution() -> None:
    random, plain, coupled = CounterRandom(11), [], []
    for start in range(4000):
        random.begin(start)
        plain.append(random.draft(0, LAW))
        coupled.append(random.coupled(0, LAW))
    assert frequency_error(plain) < CHI2_999[2]
    assert frequency_error(coupled) < CHI2_999[2]


def test_accepts_has_its_probability_and_certain_cases() -> None:
    random = CounterRandom(3)
    random.begin(1)
    assert random.accepts(0, 1.0)
    assert random.accepts(0, 1.7)
    assert not random.accepts(0, 0.0)
    hits = 0
    for start in range(4000):
        random.begin(start)
        hits += random.accepts(0, 0.3)
    assert abs(hits - 1200) < 100


def test_coupled_noise_depends_on_seed_and_position_only() -> None:
    one, other = CoupledRandom(4), CoupledRandom(4)
    one.begin(10)
    other.begin(7)
    assert one.noise(12, 5).tolist() == other.noise(12, 5).tolist()
    assert one.noise(12, 5).tolist() != one.noise(13, 5).tolist()
    assert one.draft(2, LAW) == other.coupled(5, LAW)


def test_coupled_treats_sparse_and_dense_alike() -> None:
    sparse = Distribution(4, np.array([0, 2, 3]), LAW.probs[[0, 2, 3]])
    random = CoupledRandom(9)
    for start in range(100):
        random.begin(start)
        assert random.coupled(0, LAW) == random.coupled(0, sparse)
