"""Record the acceptance and costs of real prompts, to replay any draft-length policy over them.

Recorded for each case (a prompt, a temperature, a length of context):

- `text`: N tokens that the target wrote;
- `kept`: float32 [N, 16]; the chance that token i of a draft begun after p tokens of the text is
  accepted, given that those before it were and that the text goes on as it does. Greedy: 1 where
  the draft's best token is the text's. Sampled: min(1, Q(x) / P(x)) with x the text's token,
  which is the token rule's distribution exactly (block verification accepts a little more).

A draft that begins after p tokens is the draft model's pass over 16 rows of the text, on the
target's keys and values before them. Looking up needs no record: it is compared with the text.
Costs are the seconds of whole rounds as a policy sees them, host work included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.parts import Parts
from specdec.runtime.drafting.draft_length import Choice, DraftLength, RoundOutcome
from specdec.runtime.drafting.drafter import MODEL, ModelDrafter, Offer
from specdec.runtime.meter import Meter, prefill
from specdec.runtime.report.measuring.prompt_set import (
    load_prompts,
    load_texts,
    one_per_category,
    prompt_ids,
)

__all__ = ["LONGEST", "Case", "Trace", "record"]

LONGEST = 16
TIMED_TOKENS = 64


@dataclass(frozen=True)
class Case:
    """One prompt at one temperature."""

    category: str
    language: str
    context: int
    """Prompts are filled up to this many tokens; 0 leaves them as they are."""
    temperature: float
    prompt: list[int]
    text: list[int]
    kept: NDArray[np.float32]


@dataclass(frozen=True)
class Trace:
    """Cases, and seconds by (context, temperature)."""

    cases: list[Case]
    draft: dict[tuple[int, float], list[float]]
    """Samples of d, seconds per drafted token."""
    verify: dict[tuple[int, float], dict[int, list[float]]]
    """Samples of T(M) by rows."""
    lengths: dict[tuple[int, float], float]
    """Tokens in the cache when the samples were taken, on average."""
    seed_costs: dict[str, Any]
    """The package's own starting figures."""

    def save(self, path: Path) -> None:
        """Write one .npz."""
        about = {
            "cases": [{**asdict(case), "kept": None} for case in self.cases],
            "costs": [
                [context, temperature, self.draft[context, temperature], rows,
                 self.lengths[context, temperature]]
                for (context, temperature), rows in self.verify.items()
            ],
            "seed_costs": self.seed_costs,
        }  # fmt: skip
        kept = np.concatenate([case.kept for case in self.cases])
        np.savez_compressed(path, kept=kept, about=np.array(json.dumps(about)))

    @classmethod
    def load(cls, path: Path) -> Trace:
        """Read what `save` wrote."""
        with np.load(path) as stored:
            about, kept = json.loads(str(stored["about"])), stored["kept"]
        cases, begin = [], 0
        for fields in about["cases"]:
            end = begin + len(fields["text"])
            cases.append(Case(**{**fields, "kept": kept[begin:end]}))
            begin = end
        keys = [(context, temperature) for context, temperature, *_ in about["costs"]]
        draft, rows, lengths = zip(*(costs[2:] for costs in about["costs"]), strict=True)
        verify = [{int(m): s for m, s in samples.items()} for samples in rows]
        return cls(
            cases,
            dict(zip(keys, draft, strict=True)),
            dict(zip(keys, verify, strict=True)),
            dict(zip(keys, lengths, strict=True)),
            about["seed_costs"],
        )


def record(
    decoder: SpeculativeDecoder,
    contexts: Sequence[int],
    temperatures: Sequence[float],
    tokens: int,
    repeats: int,
    seed_costs: dict[str, Any],
) -> Trace:
    """Play all prompts as they are, and one of each category in longer contexts.

    Args:
        decoder: of a package whose draft shares the target's cache.
        contexts: of the cases; 0 leaves the prompts as they are.
        temperatures: of the cases.
        tokens: N, of each text.
        repeats: how often each width is timed.
        seed_costs: the package's own figures.
    """
    parts: Parts = decoder._parts
    cases = [
        case
        for context in contexts
        for temperature in temperatures
        for case in _record_cases(decoder, parts, context, temperature, tokens)
    ]
    firsts = {(case.context, case.temperature): case for case in reversed(cases)}
    timed = {key: _time(parts, case, repeats) for key, case in firsts.items()}
    return Trace(
        cases,
        {key: draft for key, (draft, _) in timed.items()},
        {key: verify for key, (_, verify) in timed.items()},
        {key: len(case.prompt) + TIMED_TOKENS / 2 for key, case in firsts.items()},
        seed_costs,
    )


def _record_cases(
    decoder: SpeculativeDecoder, parts: Parts, context: int, temperature: float, tokens: int
) -> Iterator[Case]:
    passages = load_prompts() if context == 0 else one_per_category(load_prompts())
    for seed, passage in enumerate(passages):
        ids = prompt_ids(decoder, _filled(decoder, passage.text, context))
        text, kept = _play(decoder, parts, ids, temperature, tokens, seed)
        yield Case(passage.category, passage.language, context, temperature, ids, text, kept)
        print(passage.category, context, temperature, f"{kept[:, 0].mean():.3f}", flush=True)


def _filled(decoder: SpeculativeDecoder, text: str, context: int) -> str:
    """The text after as many whole passages as make a prompt of about `context` tokens."""
    filler: list[str] = []
    passages = [*load_texts(), *load_prompts()]
    while len(prompt_ids(decoder, "\n\n".join([*filler, text]))) < context:
        filler.append(passages[len(filler) % len(passages)].text)
    return "\n\n".join([*filler, text])


def _play(
    decoder: SpeculativeDecoder,
    parts: Parts,
    ids: list[int],
    temperature: float,
    tokens: int,
    seed: int,
) -> tuple[list[int], NDArray[np.float32]]:
    """A text of the target, and what the draft would have made of it at every position."""
    assert isinstance(decoder, SpeculativeDecoder)
    params = SamplingParams(
        max_new_tokens=tokens, temperature=temperature, seed=seed, ignore_eos=True
    )
    text = list(decoder.generate(ids, params, reuse_prefix=True).token_ids)
    assert isinstance(parts.drafter, ModelDrafter)
    target, draft = parts.target, parts.drafter.engine
    target.truncate(0)
    prefill(target, ids[:-1], Meter())
    whole = [*ids[-1:], *text]
    distributions = target.forward(np.array([whole[:-1]], np.int64), len(text))[0]
    log_target = _log_probs(distributions, text, temperature)
    kept = np.zeros((len(text), LONGEST), np.float32)
    for begin in reversed(range(len(text))):  # what a draft overwrites is no longer needed
        target.truncate(len(ids) - 1 + begin)
        rows = whole[begin : begin + LONGEST]
        wanted = text[begin : begin + LONGEST]
        logits = draft.forward(np.array([rows[: len(wanted)]], np.int64), len(wanted))[0]
        log_draft = _log_probs(logits, wanted, temperature)
        log_kept = log_draft - log_target[begin : begin + len(wanted)]
        kept[begin, : len(wanted)] = np.exp(np.minimum(log_kept, 0.0))
    target.truncate(0)
    return text, kept


def _log_probs(logits: Any, tokens: list[int], temperature: float) -> NDArray[np.float64]:
    """Of the given token in each row; 0 or -inf when greedy."""
    picked = np.arange(len(tokens)), np.array(tokens)
    if temperature == 0.0:
        return np.where(np.argmax(logits, axis=1) == picked[1], 0.0, -np.inf)
    scaled = np.asarray(logits, np.float32) / np.float32(temperature)
    scaled -= scaled.max(axis=1, keepdims=True)
    mass = np.exp(scaled).sum(axis=1, dtype=np.float64)
    log_probs: NDArray[np.float64] = scaled[picked] - np.log(mass)
    return log_probs


class _Shuffled:
    """A policy that visits every K equally often and keeps what the rounds cost."""

    def __init__(self, seed: int) -> None:
        self.outcomes: list[RoundOutcome] = []
        self._order = self._lengths(np.random.default_rng(seed))

    @staticmethod
    def _lengths(random: np.random.Generator) -> Iterator[int]:
        while True:
            yield from random.permutation(LONGEST + 1).tolist()

    def choose(self, offers: Sequence[Offer]) -> Choice:
        room = max(offer.room for offer in offers if offer.source == MODEL)
        return Choice(MODEL, next(k for k in self._order if k <= room))

    def observe(self, outcome: RoundOutcome) -> None:
        self.outcomes.append(outcome)

    @property
    def fallback(self) -> str | None:
        return None


class _Timed(Generation):
    """A generation with a policy of our own."""

    def __init__(self, policy: DraftLength, parts: Parts, ids: list[int], params: Any) -> None:
        self._given = policy
        super().__init__(parts, ids, params, reuse=True)

    def _policy(self, params: SamplingParams) -> DraftLength:
        return self._given


def _time(parts: Parts, case: Case, repeats: int) -> tuple[list[float], dict[int, list[float]]]:
    """Samples of d, and of T(M) by rows."""
    policy = _Shuffled(0)
    params = SamplingParams(
        max_new_tokens=TIMED_TOKENS, temperature=case.temperature, seed=1, ignore_eos=True
    )
    while len(policy.outcomes) < repeats * (LONGEST + 1):
        generation = _Timed(policy, parts, case.prompt, params)
        while generation.next_chunk().finish_reason is None:
            pass
    draft = [o.draft_seconds / o.drafted for o in policy.outcomes if o.drafted]
    verify: dict[int, list[float]] = {}
    for outcome in policy.outcomes:
        verify.setdefault(outcome.drafted + 1, []).append(outcome.verify_seconds)
    return draft, verify
