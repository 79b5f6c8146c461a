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

from collections.abc import Sequence

import numpy as np

from specdec.runtime.distribution import Distribution, Floats
from specdec.runtime.errors import NoTokenLeftError, NumericalError
from specdec.runtime.params import SamplingParams
from specdec.runtime.penalties import TokenHistory
from specdec.runtime.truncation import nucleus_ids, top_k_ids

__all__ = ["LogitsProcessor", "real_logits"]


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

    def __call__(self, logits: Floats, extension: Sequence[int], position: int) -> Distribution:
        """The distribution of the token after the committed prefix and `extension`.

        Args:
            logits: float [logits_width], one row; never modified or kept.
            extension: drafted tokens between the committed prefix and this token.
            position: absolute position of this token, for messages.

        Raises:
            NumericalError: NaN or +inf, or no finite logit at all.
            NoTokenLeftError: the options forbid every token.
        """
        row = real_logits(logits, self._vocab_size)
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
        return self._sample_law(adjusted, float(adjusted[best]))

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

    def _sample_law(self, row: Floats, peak: float) -> Distribution:
        """Temperature, truncation and normalisation; `peak` is the highest logit of `row`."""
        top_k, top_p, min_p = self._filters
        ids = None
        if top_k:
            ids = top_k_ids(row, top_k)
            row = row[ids]
        with np.errstate(over="ignore", under="ignore"):
            weights = np.subtract(row, peak)
            weights *= 1.0 / self._temperature
            np.exp(weights, out=weights)
        if top_p < 1.0:
            kept = nucleus_ids(weights, top_p)
            weights, ids = weights[kept], kept if ids is None else ids[kept]
        if min_p > 0.0:
            kept = np.flatnonzero(weights >= min_p)
            weights, ids = weights[kept], kept if ids is None else ids[kept]
        weights /= weights.sum()
        return Distribution(self._vocab_size, ids, weights)


def real_logits(logits: Floats, vocab_size: int) -> Floats:
    """The first `vocab_size` columns of one row, in float32 or wider."""
    row = logits[:vocab_size]
    return row.astype(np.float32) if row.dtype.itemsize < 4 else row
