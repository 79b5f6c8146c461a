"""The tokens of a GGUF file with their types, and the merges that SentencePiece scores imply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec.export.errors import SourceError
from specdec.export.sources.gguf.parts import GgufModel

__all__ = [
    "BYTE",
    "CONTROL",
    "NORMAL",
    "UNKNOWN",
    "USER_DEFINED",
    "Vocabulary",
    "read_vocabulary",
    "score_merges",
]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id."""

    tokens: dict[int, str]
    kinds: dict[int, int]
    scores: dict[int, float]

    def of_kind(self, *kinds: int) -> list[int]:
        """Ids of the tokens of these types, ascending."""
        return [index for index in self.tokens if self.kinds[index] in kinds]


def read_vocabulary(model: GgufModel) -> Vocabulary:
    """Every token of the file; ids that only pad the table are left out.

    Raises:
        SourceError: the lists are missing, of different lengths, or a token is there twice.
    """
    texts = model.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(texts, list) or not texts:
        raise SourceError(f"{model.path} has no tokenizer.ggml.tokens; convert the model again")
    count = len(texts)
    kinds = _numbers(model, "token_type", count, NORMAL)
    scores = _numbers(model, "scores", count, 0.0)
    tokens: dict[int, str] = {}
    ids: dict[str, int] = {}
    for index, text in enumerate(texts):
        if kinds[index] == UNUSED and text == f"[PAD{index}]":
            continue
        text = text or f"[EMPTY_{index}]"
        if text in ids:
            raise SourceError(
                f"{model.path}: token {text!r} has the ids {ids[text]} and {index}; allowed is one"
            )
        ids[text] = index
        tokens[index] = text
    return Vocabulary(
        tokens, {i: int(kinds[i]) for i in tokens}, {i: float(scores[i]) for i in tokens}
    )


def _numbers(model: GgufModel, name: str, count: int, default: float) -> Sequence[Any]:
    values = model.metadata.get(f"tokenizer.ggml.{name}")
    if values is None:
        return [default] * count
    if len(values) != count:
        raise SourceError(
            f"{model.path}: tokenizer.ggml.{name} has {len(values)} entries for {count} tokens; "
            "convert the model again"
        )
    numbers: list[Any] = values.tolist()
    return numbers


def score_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The merges of a SentencePiece BPE vocabulary, the first to apply first.

    SentencePiece joins the two neighbours whose joint piece has the best score; so every way of
    cutting a piece in two pieces is a merge, ranked by the piece's score.
    """
    pieces = {vocabulary.tokens[index]: index for index in vocabulary.of_kind(NORMAL, USER_DEFINED)}
    merges: list[tuple[float, int, int, str, str]] = []
    for piece, index in pieces.items():
        ways = []
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                ways.append((pieces[left], pieces[right], left, right))
        ways.sort()
        score = vocabulary.scores[index]
        merges += [(score, len(left), len(right), left, right) for _, _, left, right in ways]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return [(left, right) for _, _, _, left, right in merges]
