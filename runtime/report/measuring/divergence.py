"""Compare distributions of the next token: two sets of logits over the same text.

With P the reference's distribution and Q the other's, per position:
KL(P || Q) = sum P (log P - log Q), overlap = sum min(P, Q), and whether the most probable token is
the same. Perplexity is exp(-mean log P(next token of the text)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine
from specdec.engines.errors import NumericalError
from specdec.runtime.meter import chunk_size
from specdec.runtime.report.contents import Agreement

__all__ = ["AgreementTally", "draft_rows", "log_softmax", "score_text"]

Floats = NDArray[np.float64]


class AgreementTally:
    """Adds up differences text by text.

    Raises:
        NumericalError: `add` got logits that are not finite.
    """

    def __init__(self) -> None:
        self._rows = self._scored = 0
        self._kl = self._same = self._overlap = 0.0
        self._loss = self._reference_loss = 0.0

    def add(
        self,
        logits: NDArray[np.floating],
        reference: NDArray[np.floating],
        token_ids: Sequence[int],
    ) -> None:
        """Add one text.

        Args:
            logits: float [T, vocab_size], row i after the first i + 1 tokens.
            reference: the same shape, of the distribution to compare with.
            token_ids: the T tokens.
        """
        for i, (row, other) in enumerate(zip(logits, reference, strict=True)):
            ours, theirs = log_softmax(row), log_softmax(other)
            distribution = np.exp(theirs)
            self._rows += 1
            self._kl += float((distribution * (theirs - ours)).sum())
            self._same += int(row.argmax()) == int(other.argmax())
            self._overlap += float(np.minimum(np.exp(ours), distribution).sum())
            if i + 1 < len(token_ids):
                self.add_loss(float(ours[token_ids[i + 1]]), float(theirs[token_ids[i + 1]]))

    def add_loss(self, log_prob: float, reference_log_prob: float) -> None:
        """Add the log-probabilities two distributions give to the next token of the text."""
        self._scored += 1
        self._loss -= log_prob
        self._reference_loss -= reference_log_prob

    def add_position(self, kl: float, same: bool, overlap: float) -> None:
        """Add one position compared elsewhere."""
        self._rows += 1
        self._kl += kl
        self._same += same
        self._overlap += overlap

    def agreement(self) -> Agreement | None:
        """The means so far; None before the first position."""
        if not self._rows:
            return None
        scored = max(self._scored, 1)
        return Agreement(
            tokens=self._rows,
            kl_divergence=max(self._kl / self._rows, 0.0),
            argmax_agreement=self._same / self._rows,
            overlap=self._overlap / self._rows,
            perplexity=float(np.exp(min(self._loss / scored, 700.0))),
            reference_perplexity=float(np.exp(min(self._reference_loss / scored, 700.0))),
        )


def log_softmax(logits: NDArray[np.floating]) -> Floats:
    """Natural logarithms of a softmax, float64 of the shape of `logits` [..., vocab_size].

    Raises:
        NumericalError: a logit is not finite.
    """
    wide = logits.astype(np.float64)
    if not np.isfinite(wide).all():
        raise NumericalError("an engine gave logits that are not finite; export it again")
    shifted = wide - wide.max(axis=-1, keepdims=True)
    normalised: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def score_text(
    engine: Engine, token_ids: Sequence[int], rows: int | None = None
) -> NDArray[np.float32]:
    """Logits after every token of a text, float32 [T, vocab_size]; the cache then holds it.

    Args:
        engine: its cache is emptied first.
        token_ids: T >= 1 tokens.
        rows: tokens per pass; None for the engine's own chunk.
    """
    engine.truncate(0)
    width, step = engine.info.vocab_size, rows or chunk_size(engine)
    parts = []
    for start in range(0, len(token_ids), step):
        chunk = np.array([token_ids[start : start + step]], np.int64)
        logits = engine.forward(chunk, chunk.shape[1])[0, :, :width]
        parts.append(np.array(logits, np.float32))
    return np.concatenate(parts)


def draft_rows(
    target: Engine, draft: Engine, shares_cache: bool, token_ids: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """One-step draft logits [vocab_size] after each token, on the cache the draft really uses.

    Yields (i, row after the first i + 1 tokens), a view that the next step overwrites. On a
    shared cache the target must hold the text; positions go from the last to the first, so that
    each step finds the target's own keys and values before it and one target pass serves all.
    """
    width = draft.info.vocab_size
    positions = range(len(token_ids))
    if not shares_cache:
        draft.truncate(0)
        positions = range(min(len(token_ids), draft.info.max_length))
    for i in reversed(positions) if shares_cache else positions:
        if shares_cache:
            target.truncate(i)
        yield i, draft.forward(np.array([[token_ids[i]]], np.int64), 1)[0, 0, :width]
    draft.truncate(0)
