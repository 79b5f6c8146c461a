"""Compute the distribution the output must follow, by passes of the target outside the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine
from specdec.runtime.decoding.caches import common_prefix
from specdec.runtime.meter import Meter, prefill
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitsProcessor

__all__ = ["ExactDistributions", "PlainReader", "entropy"]


class PlainReader:
    """Reads text into an engine as plain decoding does: the prompt in chunks, then row by row."""

    def __init__(self, engine: Engine, prompt: Sequence[int]) -> None:
        """Empty the cache and read the prompt but for its last token."""
        self._engine = engine
        self._prompt = list(prompt)
        self._ids = self._prompt[:-1]
        engine.truncate(0)
        prefill(engine, self._ids, Meter())

    def logits(self, output: Sequence[int]) -> NDArray[Any]:
        """Logits [logits_width] of the token after prompt and `output`; valid until the next."""
        ids = [*self._prompt, *output]
        shared = min(common_prefix(self._ids, ids), len(ids) - 1)
        self._engine.truncate(shared)
        for position in range(shared, len(ids)):
            row = np.array([ids[position : position + 1]], dtype=np.int64)
            last: NDArray[Any] = self._engine.forward(row, 1)[0, 0]
        self._ids = ids
        return last


class ExactDistributions:
    """P(next token | prompt, output so far) under the options of a request.

    Args:
        engine: the target; its cache is taken over.
        prompt: at least one token.
        params: the request's options.
        end_token_ids: what ends a generation, for `min_new_tokens`.
    """

    def __init__(
        self,
        engine: Engine,
        prompt: Sequence[int],
        params: SamplingParams,
        end_token_ids: Iterable[int],
    ) -> None:
        size = engine.info.vocab_size
        history = TokenHistory(params, size, end_token_ids, prompt)
        self._process = LogitsProcessor(params, history, vocab_size=size, engine_name="target")
        self._reader = PlainReader(engine, prompt)
        self._start = len(prompt)

    def distribution(self, output: Sequence[int]) -> Distribution:
        """The distribution of the token after `output`."""
        return self._process(self._reader.logits(output), output, self._start + len(output))


def entropy(distribution: Distribution) -> float:
    """In nats."""
    probs = distribution.probs[distribution.probs > 0].astype(np.float64)
    return float(-(probs * np.log(probs)).sum())
