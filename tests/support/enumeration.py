"""Every random path through a program that draws from a `RoundRandom`, with its weight.

`Branching` replays a script of choices and, past its end, takes the first outcome of each new
decision and notes the others. Running the program once per script visits the whole tree; the
sum of path weights per output is the exact distribution of the output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from specdec.runtime.sampling.defaults import NO_DEFAULTS, ModelDefaults
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.params import SamplingParams


class Branching:
    """A `RoundRandom` that follows a script and weighs its path."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.depth = 0
        self.weight = 1.0
        self.open: list[list[int]] = []

    def begin(self, committed_length: int) -> None:
        self.start = committed_length

    def draft(self, index: int, distribution: Distribution) -> int:
        return self._token(distribution)

    def final(self, distribution: Distribution) -> int:
        return self._token(distribution)

    def coupled(self, index: int, distribution: Distribution) -> int:
        raise AssertionError("the coupled rule is not enumerated")

    def accepts(self, index: int, probability: float) -> bool:
        probability = min(max(probability, 0.0), 1.0)
        return self._choose([1.0 - probability, probability]) == 1

    def _token(self, distribution: Distribution) -> int:
        ids = distribution.support()
        return int(ids[self._choose([float(p) for p in distribution.probs])])

    def _choose(self, weights: list[float]) -> int:
        possible = [i for i, w in enumerate(weights) if w > 0.0]
        if self.depth < len(self.script):
            choice = self.script[self.depth]
        else:
            choice = possible[0]
            here = self.script[: self.depth]
            self.open.extend([*here, other] for other in possible[1:])
            self.script = [*here, choice]
        self.depth += 1
        self.weight *= weights[choice]
        return choice


def exact_distribution(
    program: Callable[[Branching], tuple[int, ...]],
) -> dict[tuple[int, ...], float]:
    """Output -> probability, over every random path of `program`."""
    distribution: dict[tuple[int, ...], float] = defaultdict(float)
    todo: list[list[int]] = [[]]
    while todo:
        branching = Branching(todo.pop())
        distribution[program(branching)] += branching.weight
        todo.extend(branching.open)
    return dict(distribution)


def chain_distribution(
    logits_after: Callable[[list[int]], np.ndarray],
    prompt: list[int],
    params: SamplingParams,
    end_ids: frozenset[int],
    defaults: ModelDefaults = NO_DEFAULTS,
) -> dict[tuple[int, ...], float]:
    """The distribution of plain sampling, from `naive_probs` alone: no code of the runtime."""
    distribution: dict[tuple[int, ...], float] = {}

    def extend(output: list[int], weight: float) -> None:
        if len(output) == params.max_new_tokens or (output and output[-1] in end_ids):
            distribution[tuple(output)] = weight
            return
        probs = naive_probs(
            logits_after(prompt + output), prompt, output, params, end_ids, defaults
        )
        for token in np.flatnonzero(probs):
            extend([*output, int(token)], weight * float(probs[token]))

    extend([], 1.0)
    return distribution


def naive_probs(
    logits: np.ndarray,
    prompt: list[int],
    output: list[int],
    params: SamplingParams,
    end_ids: frozenset[int],
    defaults: ModelDefaults = NO_DEFAULTS,
) -> np.ndarray:
    """W(logits | prompt, output), written token by token for clarity: dense float64 [V]."""
    x = np.array(logits, dtype=np.float64)
    size = len(x)
    text = prompt + output
    for token, bias in (params.logit_bias or {}).items():
        x[token] += bias
    for token in set(text):
        penalty = params.repetition_penalty
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
    for token in set(output):
        x[token] -= params.presence_penalty + params.frequency_penalty * output.count(token)
    n = params.no_repeat_ngram_size
    if n:
        for i in range(len(text) - n + 1):
            if text[i : i + n - 1] == text[len(text) - n + 1 :]:
                x[text[i + n - 1]] = -np.inf
    if len(output) < params.min_new_tokens:
        x[list(end_ids)] = -np.inf
    x[list(defaults.suppress_tokens)] = -np.inf
    if not output:
        x[list(defaults.begin_suppress_tokens)] = -np.inf
    ranked = sorted(range(size), key=lambda t: (-x[t], t))
    if params.temperature == 0.0:
        return np.eye(size)[ranked[0]]
    keep = ranked[: params.top_k] if params.top_k else ranked
    p = np.zeros(size)
    p[keep] = np.exp((x[keep] - x.max()) / params.temperature)
    p /= p.sum()
    if params.top_p < 1.0:
        mass, count = 0.0, 0
        while mass < params.top_p and count < len(keep):
            mass += p[keep[count]]
            count += 1
        p[keep[count:]] = 0.0
    p[p < params.min_p * p.max()] = 0.0
    return p / p.sum()


def largest_error(
    distribution: dict[tuple[int, ...], float], expected: dict[tuple[int, ...], float]
) -> float:
    """Largest difference of probability over all outputs of either distribution."""
    return max(
        abs(distribution.get(k, 0.0) - expected.get(k, 0.0))
        for k in distribution.keys() | expected.keys()
    )
