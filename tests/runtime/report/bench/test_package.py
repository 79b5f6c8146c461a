"""The benchmark and the simulation, on engines whose answers are known."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specdec.engines import load_package
from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.report.bench.contents import BenchReport
from specdec.runtime.report.bench.energy import EnergySource
from specdec.runtime.report.bench.forced import ForcedDrafter
from specdec.runtime.report.bench.package import BenchSettings, bench_package
from specdec.runtime.report.bench.sweep import sweep
from specdec.runtime.report.bench.tables import bench_tables
from specdec.runtime.report.measuring.machine import copy_bandwidth, describe_machine
from specdec.runtime.report.measuring.memory import peak_memory, resident_memory
from specdec.runtime.report.measuring.runs import BenchPrompt, Variant, play_interleaved
from specdec.runtime.report.records import from_data, to_data
from tests.runtime.report.test_schema import schema_validator
from tests.support.decoders import pair
from tests.support.table_engine import TableEngine, random_table


def settings(**changes: object) -> BenchSettings:
    base = BenchSettings(
        prompts=(("chat", "Good morning."), ("code", "print(1)")),
        params=SamplingParams(max_new_tokens=12),
        draft_tokens=(0, 3, "auto"),
        repeats=2,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def report(tiny_package: Path) -> BenchReport:
    return sweep([tiny_package], settings(contexts=(None, 20)), threads=(1, 2))


def test_every_setting_is_played(report: BenchReport) -> None:
    ways = Counter((r.num_threads, r.context, r.num_draft_tokens) for r in report.results)
    assert ways == {
        (threads, context, k): 1
        for threads in (1, 2)
        for context in (None, 20)
        for k in ("0", "3", "auto")
    }
    for result in report.results:
        assert result.runs == 4
        assert result.tokens <= 4 * 12
        assert len(result.rates) == 4
        assert result.tokens_per_second.median == pytest.approx(np.median(result.rates))
        assert result.tokens_per_second.low <= result.tokens_per_second.median
        assert 0.0 < result.host_share < 1.0
        assert result.bytes_per_second > 0.0
        assert result.inter_token.p50 <= result.inter_token.p95 <= result.inter_token.p99
        plain = result.num_draft_tokens == "0"
        assert (result.speedup is None) == plain
        assert (result.acceptance_rate is None) == plain
        assert result.tokens_per_round == pytest.approx(1.0) or not plain
    assert report.peak_memory is not None
    assert report.peak_memory > 10_000_000


def test_the_document_keeps_to_its_schema(report: BenchReport) -> None:
    document = json.loads(json.dumps(to_data(report), allow_nan=False))
    schema_validator("bench.schema.json").validate(document)
    assert from_data(BenchReport, document) == report


def test_tables_fit_a_narrow_terminal(report: BenchReport) -> None:
    tables = bench_tables(report)
    assert len(tables) == 4
    assert "1 threads" in tables[0].heading
    assert [table.note for table in tables[:-1]] == ["", "", ""]
    assert "Peak memory" in tables[-1].note


def test_energy_is_reported_per_token(tiny_package: Path) -> None:
    joules = iter(range(10_000))
    counter = EnergySource("counter", lambda: float(next(joules)))
    with load_package(tiny_package, num_threads=1) as package:
        results = bench_package(package, settings(repeats=1), [counter])
    for result in results:
        assert result.joules_per_token == pytest.approx(result.runs / result.tokens)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"acceptances": (1.5,)}, "acceptance is 1.5; allowed is 0 .. 1"),
        (
            {"acceptances": (0.5,), "params": SamplingParams(temperature=1.0)},
            "needs greedy decoding",
        ),
        ({"contexts": (60,)}, "context 60 and 12 new tokens do not fit; allowed is a context of"),
        ({"params": SamplingParams(max_new_tokens=200)}, "do not fit"),
    ],
)
def test_what_is_refused(tiny_package: Path, changes: dict[str, object], reason: str) -> None:
    with load_package(tiny_package) as package, pytest.raises(InvalidParameterError, match=reason):
        bench_package(package, settings(**changes))


def test_an_acceptance_needs_a_draft_engine(tiny_package: Path) -> None:
    with (
        load_package(tiny_package, load_draft=False) as package,
        pytest.raises(InvalidParameterError, match="with a draft engine only"),
    ):
        bench_package(package, settings(acceptances=(0.5,), drafter="ngram"))


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("acceptance", [0.0, 0.6, 1.0])
def test_a_forced_draft_is_accepted_as_often_as_asked(acceptance: float, shares: bool) -> None:
    """The text stays the target's; 600 positions decide, so 5 sigma is 0.1 at 0.6."""
    target = TableEngine(random_table(0, 7), max_length=700)
    draft = TableEngine(
        random_table(1, 7),
        name="draft",
        max_length=700,
        share_cache_with=target if shares else None,
    )
    params = SamplingParams(max_new_tokens=600, num_draft_tokens=4)
    plain = SpeculativeDecoder(target).generate([1], replace(params, num_draft_tokens=0))
    drafter = ForcedDrafter(draft, acceptance, shares_cache=shares)
    drafter.text = [1, *plain.token_ids]
    decoder = SpeculativeDecoder(target, draft, shares_cache=shares, drafter=drafter)
    draft.calls.clear()
    result = decoder.generate([1], params)
    assert result.token_ids == plain.token_ids
    assert result.stats.acceptance_rate == pytest.approx(acceptance, abs=0.1)
    passes = [call for call in draft.calls if call[2]]
    assert len(passes) == result.stats.drafted, "every drafted token costs a real pass"


def test_simulated_acceptances_are_interleaved_and_named(tiny_package: Path) -> None:
    with load_package(tiny_package, num_threads=1) as package:
        results = bench_package(
            package,
            settings(
                acceptances=(0.2, 1.0),
                draft_tokens=(4,),
                params=SamplingParams(max_new_tokens=30, ignore_eos=True),
                repeats=3,
            ),
        )
    assert [r.simulated_acceptance for r in results] == [None, 0.2, 1.0]
    assert results[2].acceptance_rate == pytest.approx(1.0)
    assert results[1].acceptance_rate == pytest.approx(0.2, abs=0.15)
    assert results[2].tokens_per_round > 2 * results[1].tokens_per_round


def test_variants_take_turns() -> None:
    decoder, _, _ = pair(seed=3)
    params = SamplingParams(max_new_tokens=4, temperature=1.0)
    variants = [
        Variant("plain", decoder, replace(params, num_draft_tokens=0)),
        Variant("drafted", decoder, replace(params, num_draft_tokens=2)),
    ]
    prompts = [BenchPrompt("a", (1, 2)), BenchPrompt("b", (3,))]
    order: list[tuple[str, int, int]] = []
    runs = play_interleaved(
        prompts, variants, 2, lambda run: order.append((run.variant, run.prompt, run.repeat))
    )
    assert order == [
        ("plain", 0, 0),
        ("drafted", 0, 0),
        ("drafted", 1, 0),
        ("plain", 1, 0),
        ("drafted", 0, 1),
        ("plain", 0, 1),
        ("plain", 1, 1),
        ("drafted", 1, 1),
    ]
    again = play_interleaved(prompts, variants, 2)
    assert [run.token_ids for run in again] == [run.token_ids for run in runs], "seeded"
    assert all(len(run.pauses) < run.stats.new_tokens for run in runs)


def test_the_machine_is_described() -> None:
    machine = describe_machine("cpu", None, 2)
    assert machine.cores >= 1
    assert machine.cpu
    assert copy_bandwidth() > 1e8
    resident, peak = resident_memory(), peak_memory()
    assert resident is not None
    assert peak is not None
    assert peak >= resident > 10_000_000
