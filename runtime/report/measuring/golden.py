"""Keep distributions of the original weights over our texts in a package, to check engines by.

The export notes, after every token of every text, the original model's most probable tokens and
their log-probabilities (natural), and that of the token that follows. Any later engine, on any
machine, can then be compared with the original weights without torch. KL and overlap are taken
over those tokens and one class for all others, which makes KL a lower bound and the overlap an
upper one, both tight: the kept tokens hold nearly all the probability.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine
from specdec.engines.errors import PackageError
from specdec.engines.load import LoadedPackage
from specdec.engines.storage.writing import write_file
from specdec.runtime.report.contents import Agreement
from specdec.runtime.report.measuring.divergence import AgreementTally, log_softmax, score_text
from specdec.runtime.report.records import from_data, to_data

__all__ = [
    "REFERENCE_NAME",
    "GoldenText",
    "compare_with_golden",
    "golden_text",
    "read_golden",
    "write_golden",
]

REFERENCE_NAME = "reference.json"
"""The file of a package that holds the golden texts."""
_KEPT = 16
_FLOOR = 1e-12


@dataclass(frozen=True)
class GoldenText:
    """One text of T tokens and the original distribution after each of them."""

    token_ids: tuple[int, ...]
    top_ids: tuple[tuple[int, ...], ...]
    """[T, kept], likeliest first."""
    top_log_probs: tuple[tuple[float, ...], ...]
    """[T, kept]."""
    next_log_probs: tuple[float, ...]
    """[T - 1]: of token i + 1 after the first i + 1 tokens."""


@dataclass(frozen=True)
class _File:
    texts: tuple[GoldenText, ...]


def golden_text(token_ids: Sequence[int], logits: NDArray[np.floating]) -> GoldenText:
    """Note the original distribution.

    Args:
        token_ids: T tokens.
        logits: float [T, vocab_size] of the original weights.
    """
    log_probs = log_softmax(logits)
    kept = min(_KEPT, log_probs.shape[1])
    top = np.argsort(-log_probs, axis=1, kind="stable")[:, :kept]
    values = np.take_along_axis(log_probs, top, axis=1)
    following = [log_probs[i, token] for i, token in enumerate(token_ids[1:])]
    return GoldenText(
        token_ids=tuple(int(token) for token in token_ids),
        top_ids=tuple(tuple(row) for row in top.tolist()),
        top_log_probs=tuple(tuple(round(v, 6) for v in row) for row in values.tolist()),
        next_log_probs=tuple(round(float(value), 6) for value in following),
    )


def write_golden(directory: Path, texts: Sequence[GoldenText]) -> None:
    """Write the file into a package directory."""
    document = json.dumps(to_data(_File(tuple(texts))), separators=(",", ":"))
    write_file(directory / REFERENCE_NAME, document + "\n")


def read_golden(package: LoadedPackage) -> tuple[GoldenText, ...]:
    """The golden texts of a package; none when it does not hold them.

    Raises:
        PackageError: the file is not what the export writes.
    """
    path = package.package.files.get(REFERENCE_NAME)
    if path is None:
        return ()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PackageError(f"{REFERENCE_NAME} is not JSON ({error}); export again") from error
    texts = from_data(_File, document, REFERENCE_NAME).texts
    for text in texts:
        _check(text, package.manifest.target.vocab_size)
    return texts


def compare_with_golden(engine: Engine, texts: Sequence[GoldenText]) -> Agreement | None:
    """Compare an engine with the original weights; None without texts that fit its context.

    Raises:
        NumericalError: the engine's logits are not finite.
    """
    tally = AgreementTally()
    for text in texts:
        if len(text.token_ids) <= engine.info.max_length:
            _add(tally, text, log_softmax(score_text(engine, text.token_ids)))
    engine.truncate(0)
    return tally.agreement()


def _add(tally: AgreementTally, text: GoldenText, log_probs: NDArray[np.float64]) -> None:
    for i, (ids, values) in enumerate(zip(text.top_ids, text.top_log_probs, strict=True)):
        row = log_probs[i]
        theirs = _with_rest(np.exp(np.array(values)))
        ours = _with_rest(np.exp(row[list(ids)]))
        kl = float((theirs * (np.log(theirs) - np.log(ours))).sum())
        tally.add_position(
            max(kl, 0.0), int(row.argmax()) == ids[0], float(np.minimum(ours, theirs).sum())
        )
        if i < len(text.next_log_probs):
            tally.add_loss(float(row[text.token_ids[i + 1]]), text.next_log_probs[i])


def _with_rest(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    rest = max(1.0 - float(probs.sum()), 0.0)
    classes: NDArray[np.float64] = np.maximum(np.append(probs, rest), _FLOOR)
    return classes


def _check(text: GoldenText, vocab_size: int) -> None:
    count = len(text.token_ids)
    ids = [*text.token_ids, *(token for row in text.top_ids for token in row)]
    sound = (
        count > 0
        and len(text.top_ids) == len(text.top_log_probs) == count
        and len(text.next_log_probs) == count - 1
        and all(len(a) == len(b) > 0 for a, b in zip(text.top_ids, text.top_log_probs, strict=True))
        and all(0 <= token < vocab_size for token in ids)
    )
    if not sound:
        raise PackageError(f"{REFERENCE_NAME} does not fit its package; export again")
