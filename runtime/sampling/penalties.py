"""Adjust logits by the options that depend on the text: bias, penalties, bans, minimum length.

`TokenHistory` counts the committed tokens once, and adjusts the logits of any position of a
round as plain decoding would: position i sees the committed prefix plus the i drafted tokens
before it. Counts are gathered first and applied once, so the arithmetic, rounding included,
is the same with and without speculation. With every option off nothing is counted or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.sampling.defaults import NO_DEFAULTS, ModelDefaults
from specdec.runtime.sampling.distribution import Floats, Ids
from specdec.runtime.sampling.ngram_ban import NgramBan
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["TokenHistory"]


class TokenHistory:
    """Token counts of prompt and output, for the options of one generation.

    Repetition penalty and n-gram ban see prompt and output; presence and frequency penalty
    see the output only.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        end_token_ids: Iterable[int] = (),
        prompt_ids: Sequence[int] = (),
        defaults: ModelDefaults = NO_DEFAULTS,
    ) -> None:
        """Count a prompt.

        Args:
            end_token_ids: every token that ends this generation; banned before
                `min_new_tokens`.
            defaults: the bans of the model.

        Raises:
            InvalidParameterError: `logit_bias`, an end token or a ban is outside the vocabulary.
        """
        self.params = params
        self.num_output = 0
        self._ends = _checked_ids("stop_token_ids", end_token_ids, vocab_size)
        self._banned = _checked_ids("suppress_tokens", defaults.suppress_tokens, vocab_size)
        self._banned_first = _checked_ids(
            "begin_suppress_tokens", defaults.begin_suppress_tokens, vocab_size
        )
        biases = dict(params.logit_bias or {})
        self._bias_ids = _checked_ids("logit_bias", biases, vocab_size)
        self._bias = np.array([biases[int(token)] for token in self._bias_ids])
        self._additive = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        self._repetition = params.repetition_penalty != 1.0
        self._seen = _IdSet(vocab_size) if self._repetition else None
        self._written = _IdSet(vocab_size) if self._additive else None
        self._counts = np.zeros(vocab_size if self._additive else 0, dtype=np.int64)
        size = params.no_repeat_ngram_size
        self._ngrams = NgramBan(size) if size else None
        if self._seen is not None:
            self._seen.add(prompt_ids)
        if self._ngrams is not None:
            self._ngrams.commit(prompt_ids)

    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens that became part of the output."""
        self.num_output += len(tokens)
        if self._seen is not None:
            self._seen.add(tokens)
        if self._written is not None:
            self._written.add(tokens)
            for token in tokens:
                self._counts[token] += 1
        if self._ngrams is not None:
            self._ngrams.commit(tokens)

    def adjust(self, row: Floats, extension: Sequence[int]) -> Floats:
        """Logits after bias, penalties and bans at the position after `extension`.

        Args:
            row: float [vocab_size]; never modified.
            extension: drafted tokens between the committed prefix and this position.

        Returns:
            `row` itself when no option applies, else an adjusted copy.
        """
        bans = self._bans(extension)
        if not (self._bias.size or self._seen or self._written or self._ngrams or bans):
            return row
        out: Floats = row.copy()
        if self._bias.size:
            out[self._bias_ids] += self._bias.astype(out.dtype)
        if self._seen is not None:
            _repeat(out, self._seen.with_extra(extension), self.params.repetition_penalty)
        if self._written is not None:
            self._subtract(out, self._written.with_extra(extension), extension)
        if self._ngrams is not None:
            out[self._ngrams.banned(extension)] = -np.inf
        for ids in bans.values():
            out[ids] = -np.inf
        return out

    @property
    def adjusts(self) -> bool:
        """Whether an option may change the logits of some position."""
        options = self._bias.size or self._seen or self._written or self._ngrams
        banned = self._banned.size or self._banned_first.size
        return bool(options or banned or (self.params.min_new_tokens > 0 and self._ends.size))

    def banning_options(self, extension: Sequence[int]) -> list[str]:
        """Names of the options that can forbid a token at the position after `extension`."""
        names = []
        if np.isneginf(self._bias).any():
            names.append("logit_bias")
        if self._ngrams is not None:
            names.append("no_repeat_ngram_size")
        return [*names, *self._bans(extension)]

    def _bans(self, extension: Sequence[int]) -> dict[str, Ids]:
        """Ids that may not follow `extension`, by the name of what forbids them."""
        position = self.num_output + len(extension)
        bans = {
            "min_new_tokens": self._ends if position < self.params.min_new_tokens else None,
            "the model's suppress_tokens": self._banned,
            "the model's begin_suppress_tokens": self._banned_first if position == 0 else None,
        }
        return {name: ids for name, ids in bans.items() if ids is not None and ids.size}

    def _subtract(self, out: Floats, ids: Ids, extension: Sequence[int]) -> None:
        """`logit -= presence + frequency * count` for every output token."""
        if not ids.size:
            return
        for token in extension:
            self._counts[token] += 1
        counts = self._counts[ids].astype(out.dtype)
        for token in extension:
            self._counts[token] -= 1
        counts *= self.params.frequency_penalty
        counts += self.params.presence_penalty
        out[ids] -= counts


class _IdSet:
    """A growing set of token ids, readable as an array without sorting."""

    def __init__(self, vocab_size: int) -> None:
        self._member = np.zeros(vocab_size, dtype=bool)
        self._ids = np.empty(vocab_size, dtype=np.int64)
        self._size = 0

    def add(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not self._member[token]:
                self._member[token] = True
                self._ids[self._size] = token
                self._size += 1

    def with_extra(self, tokens: Sequence[int]) -> Ids:
        """int64 ids of the set and of `tokens`, each once."""
        extra = [token for token in dict.fromkeys(tokens) if not self._member[token]]
        ids = self._ids[: self._size]
        return np.concatenate((ids, np.array(extra, dtype=np.int64))) if extra else ids


def _repeat(out: Floats, ids: Ids, penalty: float) -> None:
    """Divide positive and multiply negative logits by `penalty` (Keskar et al., 2019)."""
    values = out[ids]
    with np.errstate(over="ignore"):  # a model's own mask value may become -inf
        out[ids] = np.where(values > 0, values / penalty, values * penalty)


def _checked_ids(option: str, tokens: Iterable[int], vocab_size: int) -> Ids:
    ids = np.array(sorted(set(tokens)), dtype=np.int64)
    if ids.size and int(ids[-1]) >= vocab_size:
        raise InvalidParameterError(
            f"{option} holds token id {int(ids[-1])}; allowed is 0 .. {vocab_size - 1}"
        )
    return ids
