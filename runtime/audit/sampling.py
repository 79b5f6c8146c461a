"""Compare counts of what the loop commits when sampling with the target's exact probabilities.

After each of many prefixes the decoder runs many times, each time with another seed, until it
has committed `depth` tokens, over as many rounds as that takes. The first tokens are counted
against P(. | prefix), the second ones against P(. | prefix, first) for every first token that
came often enough, and so on. Given the tokens before them, counts at one depth are draws from
one distribution, so all these tables are independent and their fits add up to one test per depth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from specdec.engines.engine import Engine
from specdec.runtime.audit.exact import ExactDistributions, entropy
from specdec.runtime.audit.replay import ReplayCache, ReplayEngine
from specdec.runtime.audit.statistics import Fit, fit_counts
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["Counted", "SamplingAudit"]

_MIN_DRAWS = 25
_MAX_TABLES = 12
_WALK = 16
_GOOD_ENTROPY = 1.2  # nats: that of three or four tokens


@dataclass
class Counted:
    """Fits of all tables so far."""

    depths: list[Fit]
    """One per depth, summed over prefixes."""
    firsts: list[Fit] = field(default_factory=list)
    """Of the first tokens, one per prefix."""
    samples: int = 0
    committed: int = 0
    rounds: int = 0
    evaluated: int = 0
    accepted: int = 0


class SamplingAudit:
    """Counts what a pair commits under one set of options.

    Args:
        target: the model whose distribution is checked.
        draft: the draft, or None.
        shares_cache: the draft uses the target's cache.
        drafter: as `SpeculativeDecoder`.
        end_token_ids: the model's end tokens.
        params: options with a temperature and a number of drafted tokens; the seed is where the
            seeds of the samples start.
        depth: how many tokens of each sample are counted.
    """

    def __init__(
        self,
        target: Engine,
        draft: Engine | None,
        *,
        shares_cache: bool,
        drafter: DrafterName = "auto",
        end_token_ids: Iterable[int] = (),
        params: SamplingParams,
        depth: int = 3,
    ) -> None:
        self._target = target
        self._ends = frozenset(end_token_ids)
        self._depth = depth
        self._params = replace(params, max_new_tokens=depth + _most_drafted(params), stop=())
        self._cache = ReplayCache(target)
        self._caches = [self._cache]
        replayed = None
        if draft is not None:
            cache = self._cache if shares_cache else ReplayCache(draft)
            replayed = ReplayEngine(draft, cache)
            self._caches += [] if shares_cache else [cache]
        self._decoder = SpeculativeDecoder(
            ReplayEngine(target, self._cache),
            replayed,
            shares_cache=shares_cache,
            drafter=drafter,
            eos_token_ids=self._ends,
        )
        self._stops = frozenset() if params.ignore_eos else self._ends
        self._stops |= frozenset(params.stop_token_ids)
        self._next_seed = (params.seed or 0) << 32
        self.counted = Counted([Fit()] * depth)

    @property
    def passes(self) -> tuple[int, int]:
        """(passes the engines ran, passes answered from memory)."""
        return sum(c.passes for c in self._caches), sum(c.replays for c in self._caches)

    def choose_prefix(self, prompt: Sequence[int]) -> list[int]:
        """The prompt and as much of a plain continuation as leaves a few likely next tokens.

        A token that is certain shows no bias, and one of thousands needs as many samples. The
        choice is made from the target's distributions alone, before anything is counted.
        """
        distributions = ExactDistributions(self._target, prompt, self._params, self._stops)
        room = self._target.info.max_length - len(prompt) - self._params.max_new_tokens
        random = np.random.default_rng(self._seed())
        output: list[int] = []
        nearest, chosen = math.inf, 0
        for length in range(max(min(_WALK, room), 1)):
            distribution = distributions.distribution(output)
            distance = abs(entropy(distribution) - _GOOD_ENTROPY)
            if distance < nearest:
                nearest, chosen = distance, length
            output.append(distribution.draw(random.random()))
            if output[-1] in self._stops:
                break
        return [*prompt, *output[:chosen]]

    def count(self, prefix: Sequence[int], samples: int) -> None:
        """Sample after a prefix, and add the fits of its tables."""
        self._forget()
        drawn = Counter(self._sample(prefix) for _ in range(samples))
        distributions = ExactDistributions(self._target, prefix, self._params, self._stops)
        for depth in range(self._depth):
            tables: dict[tuple[int, ...], Counter[int]] = {}
            for tokens, times in drawn.items():
                if len(tokens) > depth:
                    tables.setdefault(tokens[:depth], Counter())[tokens[depth]] += times
            for before, counts in _largest(tables):
                fit = fit_counts(distributions.distribution(before), counts)
                self.counted.depths[depth] += fit
                if depth == 0:
                    self.counted.firsts.append(fit)
        self._forget()

    def _sample(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """The first tokens of one request, over as many rounds as they take."""
        params = replace(self._params, seed=self._seed())
        with self._decoder.stream(list(prefix), params) as stream:
            taken = 0
            for chunk in stream:
                taken += len(chunk.token_ids)
                if taken >= self._depth:
                    break
        result = stream.result
        assert result is not None, "a closed stream has a result"
        self.counted.samples += 1
        self.counted.committed += result.stats.new_tokens
        self.counted.rounds += result.stats.rounds
        self.counted.evaluated += result.stats.evaluated
        self.counted.accepted += result.stats.accepted
        return result.token_ids[: self._depth]

    def _seed(self) -> int:
        self._next_seed += 1
        return self._next_seed % 2**64

    def _forget(self) -> None:
        for cache in self._caches:
            cache.forget()


def _most_drafted(params: SamplingParams) -> int:
    """Room for a whole round after the last counted token, so that K is never cut short."""
    return 33 if params.num_draft_tokens == "auto" else params.num_draft_tokens + 1


def _largest(
    tables: dict[tuple[int, ...], Counter[int]],
) -> list[tuple[tuple[int, ...], Counter[int]]]:
    """The tables with most draws: those with few have no power, and each costs a pass."""
    ranked = sorted(tables.items(), key=lambda item: (-item[1].total(), item[0]))
    return [item for item in ranked[:_MAX_TABLES] if item[1].total() >= _MIN_DRAWS]
