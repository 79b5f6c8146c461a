"""Prompts being made: from text, ids or messages to token ids, until somebody cancels."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.text.prompts import FittedPrompt, Prompt, PromptReader

__all__ = ["PromptMaker"]


class PromptMaker:
    """Makes the prompts of one decoder; every method may be called from any thread."""

    def __init__(self, reader: PromptReader) -> None:
        self._reader = reader
        self._wishes: set[threading.Event] = set()  # one for each prompt that is being made

    @property
    def has_template(self) -> bool:
        """True when prompts may be messages."""
        return self._reader.has_chat_template

    def make(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a prompt, however long; arguments and errors as `PromptReader.encode`."""
        with self._wish() as wish:
            return self._reader.encode(prompt, tools, arguments, cancelled=wish.is_set)

    def read(
        self,
        prompt: Prompt,
        params: SamplingParams,
        after: Sequence[int] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> FittedPrompt:
        """What a generation starts from; arguments and errors as `PromptReader.read`."""
        with self._wish() as wish:
            return self._reader.read(prompt, params, after, tools, arguments, cancelled=wish.is_set)

    def cancel(self) -> None:
        """End every prompt that is being made; its call raises `NotBegunError`."""
        for wish in list(self._wishes):
            wish.set()

    @contextmanager
    def _wish(self) -> Iterator[threading.Event]:
        wish = threading.Event()
        self._wishes.add(wish)
        try:
            yield wish
        finally:
            self._wishes.discard(wish)
