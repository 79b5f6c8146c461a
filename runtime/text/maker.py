"""Prompts being made: from text, ids or messages to token ids, until somebody cancels."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.prompts import Prompt, encode_prompt

__all__ = ["PromptMaker"]


class PromptMaker:
    """Makes the prompts of one decoder; every method may be called from any thread."""

    def __init__(self, codec: TextCodec | None, chat: ChatTemplate | None) -> None:
        self._codec = codec
        self._chat = chat
        self._wishes: set[threading.Event] = set()  # one for each prompt that is being made

    @property
    def has_template(self) -> bool:
        """True when prompts may be messages."""
        return self._chat is not None and self._codec is not None

    def make(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continues: bool = False,
    ) -> list[int]:
        """Token ids of a prompt; arguments and errors as `encode_prompt`."""
        wish = threading.Event()
        self._wishes.add(wish)
        try:
            return encode_prompt(
                prompt,
                self._codec,
                self._chat,
                tools,
                continues=continues,
                cancelled=wish.is_set,
            )
        finally:
            self._wishes.discard(wish)

    def cancel(self) -> None:
        """End every prompt that is being made; its `make` raises `NotBegunError`."""
        for wish in list(self._wishes):
            wish.set()
