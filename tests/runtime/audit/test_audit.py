"""The audit passes correct decoders at its stated rate and fails each planted fault."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specdec.runtime import SamplingParams
from specdec.runtime.audit import AuditPlan, AuditReport, audit, default_settings
from specdec.runtime.decoding.caches import Caches
from specdec.runtime.drafting.drafter import ModelDrafter, Proposal
from specdec.runtime.sampling import verify as verify_module
from specdec.runtime.sampling.verify import Verdict
from tests.support.table_engine import TableEngine, nearby_table, random_table

pytestmark = pytest.mark.slow

PROMPTS = [[1, 2, 3], [4, 0], [2, 2, 5, 1]]
TOKEN = SamplingParams(temperature=1.0, top_k=4, num_draft_tokens=2, verify="token")
BLOCK = replace(TOKEN, verify="block", top_k=0, draft_temperature=1.8)


def run(
    *settings: SamplingParams,
    shares_cache: bool = False,
    table_seed: int = 1,
    samples: int = 400,
    drafter: Any = "auto",
    **plan: Any,
) -> AuditReport:
    table = random_table(table_seed, 6, order=2)
    target = TableEngine(table, max_length=90, padding=2)
    draft = TableEngine(
        nearby_table(table, 9),
        name="draft",
        max_length=90,
        share_cache_with=target if shares_cache else None,
    )
    options: dict[str, Any] = {"num_prefixes": 3, "greedy_tokens": 30, **plan}
    return audit(
        target,
        draft,
        PROMPTS,
        AuditPlan(settings=settings, samples=samples, **options),
        shares_cache=shares_cache,
        drafter=drafter,
        end_token_ids=[5],
    )


OPTIONS = {
    "block": BLOCK,
    "token": TOKEN,
    "coupled": replace(TOKEN, verify="coupled"),
    "filters": replace(TOKEN, top_p=0.9, min_p=0.05, draft_temperature=0.5),
    "penalties": replace(
        BLOCK, repetition_penalty=1.3, frequency_penalty=0.5, no_repeat_ngram_size=3
    ),
    "automatic": replace(BLOCK, num_draft_tokens="auto"),
    "plain": replace(TOKEN, num_draft_tokens=0),
}


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_correct_decoder_passes(name: str, shares_cache: bool) -> None:
    report = run(OPTIONS[name], shares_cache=shares_cache)
    assert report.passed
    assert report.greedy.num_tokens > 0
    assert report.rollback.largest_difference == 0.0
    (sampling,) = report.sampling
    assert sampling.num_samples == 1200
    assert sampling.total_variation < 1.4 * sampling.noise_floor
    assert [test.name for test in sampling.tests] == [
        "token 1", "token 2", "token 3", "worst prefix", "excluded tokens",
    ]  # fmt: skip
    assert report.replayed_passes > report.engine_passes


@pytest.mark.parametrize("drafter", ["ngram", "hybrid", "none"])
def test_other_drafters_pass(drafter: str) -> None:
    params = replace(TOKEN, num_draft_tokens="auto" if drafter == "none" else 2)
    assert run(params, drafter=drafter).passed


def test_the_false_alarm_rate_is_the_stated_one() -> None:
    """Of 120 audits at a rate of 0.1, 12 fail on average, and more than 22 once in 400 times."""
    failed = sum(
        not run(
            replace((BLOCK, TOKEN)[number % 2], seed=number),
            table_seed=number,
            samples=120,
            num_prefixes=2,
            greedy_tokens=4,
            false_alarm_rate=0.1,
        ).passed
        for number in range(120)
    )
    assert 1 <= failed <= 22


def raw_draft_in_the_ratio(target_probs, draft_probs, draft_tokens, random):
    """Planted fault: the token comes from a truncated distribution, the ratio has the raw one."""
    for i, token in enumerate(draft_tokens):
        raw = 0.7 * draft_probs[i].prob(token)  # the mass the truncation took away is missing
        if not random.accepts(i, target_probs[i].prob(token) / raw):
            return Verdict(i, random.final(target_probs[i].residual(draft_probs[i])), i + 1)
    return Verdict(len(draft_tokens), random.final(target_probs[len(draft_tokens)]), 0)


def no_residual(target_probs, draft_probs, draft_tokens, random):
    """Planted fault: the correction comes from the target instead of the residual."""
    for i, token in enumerate(draft_tokens):
        if not random.accepts(i, target_probs[i].prob(token) / draft_probs[i].prob(token)):
            return Verdict(i, random.final(target_probs[i]), i + 1)
    return Verdict(len(draft_tokens), random.final(target_probs[len(draft_tokens)]), 0)


@pytest.mark.parametrize("fault", [raw_draft_in_the_ratio, no_residual])
def test_a_wrong_rule_is_found(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(TOKEN).passed
    monkeypatch.setitem(verify_module.VERIFIERS, "token", fault)
    report = run(TOKEN)
    assert not report.passed
    assert report.greedy.passed  # greedy text alone shows nothing of it
    assert any(test.failed for test in report.sampling[0].tests)
    assert report.sampling[0].total_variation > 1.5 * report.sampling[0].noise_floor


def test_dropping_improbable_drafts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ModelDrafter.propose

    def dropping(self, *args):
        draft = honest(self, *args)
        kept = 0
        while kept < len(draft.tokens) and draft.draft_probs[kept].prob(draft.tokens[kept]) > 0.2:
            kept += 1
        return Proposal(draft.tokens[:kept], draft.draft_probs[:kept])

    monkeypatch.setattr(ModelDrafter, "propose", dropping)
    report = run(BLOCK)
    assert not report.passed
    assert report.greedy.passed


@pytest.mark.parametrize("off", [-1, 1], ids=["a row too few", "a row too many"])
def test_a_cache_cut_off_by_one_is_found(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 9 of docs/defects.md, on the target's cache."""
    honest = Caches.align

    def align(self: Caches) -> None:
        wrong = len(self.ids) - 1 + off
        if self.target.length > wrong:
            self.target.truncate(wrong)
        self._engines = [engine for engine in self._engines if engine is not self.target]
        honest(self)
        self._engines = [self.target, *self._engines]

    monkeypatch.setattr(Caches, "align", align)
    # Before a pass of the target this would mend a row too many, wherever it came from.
    monkeypatch.setattr(Caches, "forget_draft_rows", lambda self: None)
    report = run(TOKEN)
    assert not report.passed
    assert not report.sampling[0].passed


def test_a_row_of_the_draft_left_in_a_shared_cache_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forget_draft_rows(self: Caches) -> None:
        if self.target.length > len(self.ids):
            self.target.truncate(len(self.ids))

    monkeypatch.setattr(Caches, "forget_draft_rows", forget_draft_rows)
    report = run(TOKEN, shares_cache=True)
    assert not report.sampling[0].passed
    assert not report.greedy.passed


class NeverForgets(TableEngine):
    """A roll-back that lowers the length and leaves the rows where they are."""

    cut = 0

    @property
    def length(self) -> int:
        return len(self.cached) - self.cut

    def truncate(self, length: int) -> None:
        self.cut += self.length - length

    def logits_after(self, ids: list[int]) -> np.ndarray:
        return super().logits_after(self.cached[: len(ids) + self.cut])


def test_a_rollback_that_does_nothing_is_found() -> None:
    """Row 10 of docs/defects.md, should an engine of a package ever do it."""
    table = random_table(1, 6, order=2)
    plan = AuditPlan(settings=(TOKEN,), samples=30, num_prefixes=1, greedy_tokens=12)
    for kind, passed in ((TableEngine, True), (NeverForgets, False)):
        report = audit(kind(table, max_length=5000), None, PROMPTS, plan, drafter="ngram")
        assert report.rollback.passed is passed
        assert report.passed is passed


def test_greedy_differences_are_told_from_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over several rows that rounds near-ties the other way is no fault; more is one."""
    honest, table = TableEngine.forward, TableEngine(random_table(1, 6, order=2)).table
    gaps = np.sort(table.reshape(-1, 6), axis=1)
    nearest = float((gaps[:, -1] - gaps[:, -2]).min())

    def rounding(self, token_ids, num_logits):
        logits = honest(self, token_ids, num_logits)
        if self.info.name == "target" and token_ids.shape[1] > 1:
            logits = logits + nearest * np.where(np.arange(logits.shape[-1]) % 2, 1.1, -1.1)
        return logits

    monkeypatch.setattr(TableEngine, "forward", rounding)
    report = run(TOKEN, greedy_tokens=60)
    assert all(d.is_near_tie for d in report.greedy.differences)
    assert report.greedy.passed


def test_a_wrong_greedy_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(target_probs, draft_probs, draft_tokens, random):
        return Verdict(len(draft_tokens), random.final(target_probs[len(draft_tokens)]), 0)

    monkeypatch.setitem(verify_module.VERIFIERS, "token", trusting)
    report = run(TOKEN)
    assert not report.greedy.passed
    assert report.greedy.differences[0].noise == 0.0


def test_excluded_tokens_are_a_test_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in fifty tokens from outside top-k: too rare to move the other counts much."""
    honest = verify_module.verify_token

    def leaking(target_probs, draft_probs, draft_tokens, random):
        verdict = honest(target_probs, draft_probs, draft_tokens, random)
        distribution = target_probs[verdict.num_accepted]
        outside = [
            token for token in range(distribution.vocab_size) if distribution.prob(token) == 0.0
        ]
        if random.uniform(7, verdict.num_accepted, 0) < 0.02 and outside:
            return replace(verdict, token=outside[0])
        return verdict

    monkeypatch.setitem(verify_module.VERIFIERS, "token", leaking)
    tests = {test.name: test for test in run(TOKEN).sampling[0].tests}
    assert tests["excluded tokens"].failed
    assert tests["excluded tokens"].statistic > 5


def test_the_report_is_plain_data() -> None:
    settings = default_settings(has_draft_model=True)
    report = run(*settings, samples=60, num_prefixes=1)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["passed"] is data["greedy"]["passed"] is True
    assert [part["options"]["temperature"] for part in data["sampling"]] == [1.0, 0.9]
    assert data["false_alarm_rate"] == 0.001
    assert settings[1].draft_temperature == 2.0
    assert default_settings(has_draft_model=False)[1].draft_temperature is None
