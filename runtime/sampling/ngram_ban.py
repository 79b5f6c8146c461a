"""The no-repeat n-gram ban: no n-gram of prompt and output may occur twice."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NgramBan"]


class NgramBan:
    """Index of the tokens that followed each (n-1)-gram of the committed text."""

    def __init__(self, size: int) -> None:
        self._order = size - 1
        self._followers: dict[tuple[int, ...], list[int]] = {}
        self._tail: list[int] = []

    def commit(self, tokens: Sequence[int]) -> None:
        """Add tokens to the committed text; O(1) each."""
        for key, token in self._ngrams(tokens):
            self._followers.setdefault(key, []).append(token)
        self._tail = self._last([*self._tail, *tokens])

    def banned(self, extension: Sequence[int]) -> list[int]:
        """Tokens that would complete a known n-gram after the text and `extension`."""
        text = [*self._tail, *extension]
        if len(text) < self._order:
            return []
        key = tuple(self._last(text))
        banned = list(self._followers.get(key, ()))
        banned += [token for start, token in self._ngrams(extension) if start == key]
        return banned

    def _ngrams(self, tokens: Sequence[int]) -> list[tuple[tuple[int, ...], int]]:
        """The n-grams that end inside `tokens`, as (first n-1 tokens, last token)."""
        text = [*self._tail, *tokens]
        first = max(len(self._tail), self._order)
        return [(tuple(text[i - self._order : i]), text[i]) for i in range(first, len(text))]

    def _last(self, text: list[int]) -> list[int]:
        return text[len(text) - self._order :] if len(text) > self._order else text
