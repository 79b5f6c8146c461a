"""`Session`: a conversation whose turns reuse the KV cache of the turns before.

A turn is generated as if from scratch over all the session's tokens; what the cache shares
with them is kept by truncating it to the longest common prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from specdec.runtime.closing import Closing
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.errors import ClosedError, PromptError
from specdec.runtime.sampling.params import SamplingParams, checked_params
from specdec.runtime.text.prompts import Message, Prompt, copied, is_messages

__all__ = ["Session", "SessionHost"]


class SessionHost(Protocol):
    """Interface of the decoder, as a session uses it."""

    def check_open(self) -> None:
        """Raise `ClosedError` when the decoder is closed."""
        ...

    def open_stream(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        after: Sequence[int] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        reuse: bool = False,
        on_end: Callable[[GenerationResult, bool], None] | None = None,
    ) -> GenerationStream:
        """Open a stream over the ids `after` and a prompt; `on_end` gets the result and whether
        it failed."""
        ...


@dataclass(frozen=True, eq=False)
class _State:
    """A session after a turn; replaced in one step, so an interrupt leaves one turn or the next."""

    ids: list[int]
    messages: list[Message]


class Session(Closing):
    """Made by `SpeculativeDecoder.session()`.

    Text and ids are appended to the session's ids. Messages are appended to its history, and
    the whole history is rendered again; each reply joins it as an assistant message. A
    session is of one kind or the other. A cancelled turn stays with what was generated; a
    turn that failed leaves no trace.
    """

    def __init__(self, decoder: SessionHost) -> None:
        self._decoder = decoder
        self._state = _State([], [])
        self._closed = False

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Every token of the session so far, prompts and outputs."""
        return tuple(self._state.ids)

    @property
    def messages(self) -> tuple[Message, ...]:
        """A copy of the history, replies included; empty for a session of text or ids."""
        return tuple(copied(self._state.messages))

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> GenerationResult:
        """One turn; arguments and errors as `SpeculativeDecoder.generate`.

        Raises:
            ClosedError: the session was closed.
            PromptError: also when messages and text or ids are mixed in one session.
        """
        named: dict[str, Any] = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        with self.stream(prompt, params, **named) as stream:
            return stream.drain()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> GenerationStream:
        """One turn, chunk by chunk; a closed stream keeps what was generated."""
        if self._closed:
            raise ClosedError("the session is closed; open another")
        self._decoder.check_open()
        params = checked_params(params)
        if is_messages(prompt):
            messages = cast("Sequence[Message]", prompt)
            return self._stream_messages(messages, params, tools, chat_template_kwargs)
        before = self._state
        if before.messages:
            raise PromptError("this session holds messages; pass messages, not text or ids")

        def end(result: GenerationResult, failed: bool) -> None:
            if not failed and self._state is before:  # else it was reset meanwhile
                self._state = _State([*result.prompt_token_ids, *result.token_ids], [])

        return self._decoder.open_stream(
            prompt,
            params,
            after=before.ids,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            reuse=True,
            on_end=end,
        )

    def reset(self) -> None:
        """Forget every turn, one that is still open included."""
        self._state = _State([], [])

    def described(self) -> str:
        """How far it has come, or "closed"."""
        state = self._state
        turns = f", {len(state.messages)} messages" if state.messages else ""
        return "closed" if self._closed else f"{len(state.ids)} tokens{turns}"

    def close(self) -> None:
        """End the session; the decoder stays open. Idempotent."""
        self._closed = True

    def _stream_messages(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        tools: Sequence[Mapping[str, Any]] | None,
        chat_template_kwargs: Mapping[str, Any] | None,
    ) -> GenerationStream:
        before = self._state
        if before.ids and not before.messages:
            raise PromptError("this session holds text or ids; pass text or ids, not messages")
        history = [*before.messages, *copied(messages)]

        def end(result: GenerationResult, failed: bool) -> None:
            if not failed and self._state is before:
                ids = [*result.prompt_token_ids, *result.token_ids]
                reply = {"role": "assistant", "content": result.text}
                self._state = _State(ids, [*history, reply])

        return self._decoder.open_stream(
            history,
            params,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            reuse=True,
            on_end=end,
        )
