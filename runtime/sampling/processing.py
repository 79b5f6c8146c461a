"""From a row of logits to W(logits | prefix), the distribution the user asked for.

The order, the same for target and draft:

1. cut to the real vocabulary (padding columns can never be chosen), refuse NaN and +inf;
2. logit_bias, repetition penalty, presence and frequency penalty, n-gram ban,
   min_new_tokens (`penalties`);
3. temperature: softmax(logits / T); 0 is one-hot on the best id, ties to the lowest;
4. top_k, then top_p of what is left, then min_p (`truncation`);
5. renormalise.

The result keeps the dtype of the logits (at least float32). Truncated rows are sparse.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from specdec.engines.reduction import ReducedRow, Reduction
from specdec.runtime.errors import NoTokenLeftError, NumericalError
from specdec.runtime.sampling.distribution import Distribution, Floats, Ids
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.truncation import leading, nucleus_ids, surest_nucleus, top_k_ids

__all__ = ["LogitRow", "LogitsProcessor", "full_row", "real_logits"]

LogitRow = Floats | ReducedRow
"""One row of logits: float [logits_width], or the reduced row of its engine."""

_CANDIDATES = 128
"""Best tokens that a top-p or min-p choice uses before it reads the full row."""
_MOST_REDUCED = 255
"""Largest top_k for which the best tokens are selected on the device."""


class LogitsProcessor:
    """W for one engine of one generation."""

    def __init__(
        self,
        params: SamplingParams,
        history: TokenHistory,
        *,
        vocab_size: int,
        engine_name: str,
        temperature: float | None = None,
    ) -> None:
        """Bind the options to an engine.

        Args:
            history: shared by target and draft; the loop commits tokens to it.
            vocab_size: number of real tokens; further columns are padding.
            engine_name: "target" or "draft", for messages.
            temperature: replaces `params.temperature` (the draft's own).
        """
        self._params = params
        self._history = history
        self._vocab_size = vocab_size
        self._engine_name = engine_name
        self._temperature = params.temperature if temperature is None else temperature
        self._filters = (
            params.top_k if params.top_k < vocab_size else 0,
            params.top_p,
            params.min_p,
        )

    @functools.cached_property
    def reduction(self) -> Reduction | None:
        """The reduction that nearly always suffices; None when the full row is needed."""
        top_k, top_p, min_p = self._filters
        if self._history.adjusts:
            return None
        if self._temperature == 0.0:
            return Reduction(1)
        if top_k:
            return Reduction(top_k + 1) if top_k <= _MOST_REDUCED else None
        if top_p < 1.0:
            return Reduction(min(_CANDIDATES, self._vocab_size), self._temperature)
        return Reduction(min(_CANDIDATES, self._vocab_size)) if min_p > 0.0 else None

    def __call__(self, logits: LogitRow, extension: Sequence[int], position: int) -> Distribution:
        """The distribution of the token after the committed prefix and `extension`.

        Args:
            logits: float [logits_width], one row, or its reduction by `reduction`; never
                modified or kept.
            extension: drafted tokens between the committed prefix and this token.
            position: absolute position of this token, for messages.

        Raises:
            NumericalError: NaN or +inf, or no finite logit at all.
            NoTokenLeftError: the options forbid every token.
        """
        if isinstance(logits, ReducedRow):
            distribution = self._reduced_distribution(logits)
            if distribution is not None:
                return distribution
        row = real_logits(full_row(logits), self._vocab_size)
        best = int(np.argmax(row))
        if not np.isfinite(row[best]):
            raise NumericalError(
                f"the {self._engine_name} engine gave {row[best]} as its highest logit at "
                f"position {position}; logits must be finite or -inf: check the model's precision"
            )
        adjusted = self._history.adjust(row, extension)
        if adjusted is not row:
            best = int(np.argmax(adjusted))
            if not np.isfinite(adjusted[best]):
                raise self._adjusted_error(float(adjusted[best]), extension, position)
        if self._temperature == 0.0:
            return Distribution.one_hot(best, self._vocab_size, row.dtype)
        top_k, top_p, _ = self._filters
        ids = top_k_ids(adjusted, top_k) if top_k else None
        weights = self._weights(adjusted if ids is None else adjusted[ids], float(adjusted[best]))
        if top_p < 1.0:
            kept = nucleus_ids(weights, top_p)
            weights, ids = weights[kept], kept if ids is None else ids[kept]
        return self._distribution(ids, weights)

    def _reduced_distribution(self, row: ReducedRow) -> Distribution | None:
        """The result of the full row, bit for bit; None when the reduced row leaves it open."""
        if not row.is_sound:
            return None
        if self._temperature == 0.0:
            if not row.is_unique:
                return None
            return Distribution.one_hot(int(row.ids[0]), self._vocab_size, row.values.dtype)
        top_k, top_p, min_p = self._filters
        best = leading(row.values, top_k or row.values.shape[0], self._vocab_size)
        if best is None:
            return None
        order = np.argsort(row.ids[:best])
        ids = row.ids[order]
        weights = self._weights(row.values[order], float(row.values[0]))
        if top_p < 1.0:
            if row.mass is None:  # after a top-k the rest of the row does not count
                kept: Ids | None = nucleus_ids(weights, top_p)
            else:
                kept = surest_nucleus(weights, row.mass, top_p)
            if kept is None:
                return None
            weights, ids = weights[kept], ids[kept]
        elif not top_k and best < self._vocab_size and not weights.min() < min_p:
            return None
        return self._distribution(ids, weights)

    def _adjusted_error(
        self, highest: float, extension: Sequence[int], position: int
    ) -> NoTokenLeftError | NumericalError:
        """Why the options left no usable logit."""
        if np.isneginf(highest):
            names = self._history.banning_options(extension) or ["repetition_penalty"]
            options = " and ".join(names)
            return NoTokenLeftError(
                f"no token is left to choose at position {position}: {options} "
                "forbid every token the model allows; relax them"
            )
        return NumericalError(
            f"the options turned the {self._engine_name} engine's logits at position {position} "
            f"into {highest}; use a repetition_penalty closer to 1"
        )

    def _weights(self, values: Floats, peak: float) -> Floats:
        """exp((values - peak) / temperature)."""
        with np.errstate(over="ignore", under="ignore"):
            weights: Floats = np.subtract(values, peak)
            weights *= 1.0 / self._temperature
            return np.exp(weights, out=weights)

    def _distribution(self, ids: Ids | None, weights: Floats) -> Distribution:
        """min-p and normalisation of weights at `ids` (None: all); the best has weight 1."""
        min_p = self._filters[2]
        if min_p > 0.0:
            kept = np.flatnonzero(weights >= min_p)
            weights, ids = weights[kept], kept if ids is None else ids[kept]
        weights /= weights.sum()
        return Distribution(self._vocab_size, ids, weights)


def full_row(logits: LogitRow) -> Floats:
    """The full row of logits behind a row that may be reduced."""
    return logits.full() if isinstance(logits, ReducedRow) else logits


def real_logits(logits: Floats, vocab_size: int) -> Floats:
    """The first `vocab_size` columns of one row, in float32 or wider."""
    row = logits[:vocab_size]
    return row.astype(np.float32) if row.dtype.itemsize < 4 else row
