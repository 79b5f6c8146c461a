"""Replay a draft-length policy over a recorded trace, on a virtual clock.

The policy is the runtime's own and sees what it would see: offers, and rounds whose seconds
scatter as the recorded ones did. It is judged by the seconds without that scatter, so that two
policies differ by what they chose and not by luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from policies.trace import LONGEST, Case, Trace

from specdec.runtime import SamplingParams
from specdec.runtime.drafting.acceptance import AcceptanceTable
from specdec.runtime.drafting.draft_length import DraftLength, RoundOutcome
from specdec.runtime.drafting.drafter import LOOKUP, MODEL, DraftContext, Offer
from specdec.runtime.drafting.ngram import NgramDrafter
from specdec.runtime.meter import Meter
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitsProcessor
from specdec.runtime.sampling.randomness import CounterRandom

__all__ = ["BOTH", "Clock", "play"]

BOTH = (LOOKUP, MODEL)
"""Sources that offer by default."""

_VOCABULARY = 1 << 20


class Clock:
    """Seconds of drafting and verifying by length of the context, and their scatter."""

    def __init__(self, trace: Trace, temperature: float, seed: int) -> None:
        keys = sorted(key for key in trace.draft if key[1] == temperature)
        self._lengths = [trace.lengths[key] for key in keys]
        self._draft = [_level(trace.draft[key]) for key in keys]
        widths = range(1, LONGEST + 2)
        self._verify = np.array(
            [np.sort([_level(trace.verify[key][m]) for m in widths]) for key in keys]
        )
        self._random = np.random.default_rng(seed)
        self._draft_scatter = _scatter(trace.draft[key] for key in keys)
        self._verify_scatter = _scatter(s for key in keys for s in trace.verify[key].values())

    def draft(self, length: int) -> float:
        """Seconds per drafted token with this many tokens in the cache."""
        return float(np.interp(length, self._lengths, self._draft))

    def verify(self, rows: int, length: int) -> float:
        """T(rows) with this many tokens in the cache."""
        return float(np.interp(length, self._lengths, self._verify[:, rows - 1]))

    def scattered(self, draft: float, verify: float) -> tuple[float, float]:
        """The same seconds as a stopwatch would have read them."""
        pick = self._random.choice
        return draft * pick(self._draft_scatter), verify * pick(self._verify_scatter)


def play(
    case: Case,
    make_policy: Callable[[int, AcceptanceTable], DraftLength],
    clock: Clock,
    sources: Sequence[str],
    seed: int,
) -> float:
    """Replay one case.

    Args:
        case: of the trace.
        make_policy: called with the length of the prompt and the look-up's acceptance.
        clock: of the trace.
        sources: of `MODEL` and `LOOKUP`, who may offer.
        seed: of the accept decisions, which depend on it and on the place in the text alone.

    Returns:
        Seconds on the virtual clock.
    """
    luck = np.random.default_rng(seed).random(case.kept.shape)
    accepted = case.kept > luck
    committed, lookup, context = list(case.prompt), NgramDrafter(), _context()
    lookup.prefill(committed, context)
    policy = make_policy(len(committed), lookup.acceptance)
    done, spent = 0, 0.0
    while done < len(case.text):
        limit = len(case.text) - done - 1
        offers = list(lookup.offers(committed)) if LOOKUP in sources else []
        offers += [Offer(MODEL, LONGEST)] if MODEL in sources else []
        offers = [replace(o, room=min(o.room, limit)) for o in offers if limit > 0]
        choice = policy.choose(offers)
        count, right = choice.num_draft_tokens, 0
        if choice.source == MODEL:
            right = _run(accepted[done, :count])
        elif count:
            drafted = lookup.propose(committed, offers[0], count, context).tokens
            right = _run(np.array(drafted) == case.text[done : done + count])
        length = len(committed)
        draft = count * clock.draft(length) if choice.source == MODEL else 0.0
        verify = clock.verify(count + 1, length)
        spent += draft + verify
        seen = clock.scattered(draft, verify)
        policy.observe(
            RoundOutcome(count, min(right + 1, count), right, *seen, source=choice.source)
        )
        committed += case.text[done : done + right + 1]
        done += right + 1
    return spent


def _run(right: NDArray[np.bool_]) -> int:
    """How many are right before the first that is not."""
    return int(np.argmin(right)) if not right.all() else len(right)


def _level(samples: Sequence[float]) -> float:
    """What a pass takes when nothing disturbs it much."""
    return float(np.quantile(samples, 0.4))


def _scatter(groups: Iterable[Sequence[float]]) -> NDArray[np.float64]:
    """Every sample over the level of its group."""
    return np.concatenate([np.asarray(group) / _level(group) for group in groups])


def _context() -> DraftContext:
    params = SamplingParams()
    process = LogitsProcessor(
        params, TokenHistory(params, _VOCABULARY), vocab_size=_VOCABULARY, engine_name="draft"
    )
    return DraftContext(process, CounterRandom(0), frozenset(), _VOCABULARY, Meter())
