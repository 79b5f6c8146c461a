"""Prompts: text, token ids or chat messages to the token ids a generation starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specdec.runtime.checks import is_integer
from specdec.runtime.errors import PromptError
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec

__all__ = ["FittedPrompt", "Message", "Prompt", "PromptReader", "copied", "is_messages"]

_MAX_DEPTH = 100
_SYSTEM_ROLES = ("system", "developer")
_USUAL_CHARACTERS = 4
"""Of a token; a text below this size is tokenized without a further thought."""

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message]


def is_messages(prompt: object) -> bool:
    """True for a non-empty sequence whose first item is a mapping."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, (str, bytes))
        and len(prompt) > 0
        and isinstance(prompt[0], Mapping)
    )


def copied(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages with every mapping and list of theirs copied, however deep.

    Raises:
        PromptError: one is no mapping, or they nest deeper than 100 levels.
    """
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise PromptError(
                f"message {index} is {type(message).__name__}; allowed is a dict with role and "
                "content"
            )
    return [_copied(message, 0) for message in messages]


def _copied(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise PromptError(f"messages nest deeper than {_MAX_DEPTH} levels; allowed are that many")
    if isinstance(value, Mapping):
        return {key: _copied(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item, depth + 1) for item in value]
    return value


@dataclass(frozen=True)
class FittedPrompt:
    """A prompt that fits vocabulary and context."""

    ids: list[int]
    cut: str | None = None
    """What was dropped of it, in one line; None when nothing was."""


class PromptReader:
    """Reads the prompts of one decoder.

    Args:
        codec: the tokenizer, if any.
        chat: template for messages, if any.
        bos_token_id: the token that begins every text, if the model has one.
        vocab_size: ids `0 .. vocab_size - 1` are legal.
        max_length: context in tokens.
    """

    def __init__(
        self,
        codec: TextCodec | None,
        chat: ChatTemplate | None,
        bos_token_id: int | None,
        vocab_size: int,
        max_length: int,
    ) -> None:
        self._codec = codec
        self._chat = chat
        self._bos_token_id = bos_token_id
        self._vocab_size = vocab_size
        self._max_length = max_length

    @property
    def has_chat_template(self) -> bool:
        """Whether prompts may be messages."""
        return self._chat is not None and self._codec is not None

    def read(
        self,
        prompt: Prompt,
        params: SamplingParams,
        after: Sequence[int] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> FittedPrompt:
        """The ids that a generation starts from: those of `after`, then the prompt's.

        Raises:
            PromptError: as `encode` and `fit`.
        """
        new_ids = self.encode(
            prompt,
            tools,
            arguments,
            continues=bool(after),
            refuses_giants=params.truncate_prompt is None,
            cancelled=cancelled,
        )
        ids = [*after, *new_ids]
        return self.fit(ids, params, lambda: self.head(ids, prompt, tools, arguments))

    def encode(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        continues: bool = False,
        refuses_giants: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[int]:
        """Turn any kind of prompt into token ids.

        Args:
            tools: tool descriptions for the chat template.
            arguments: further variables of the chat template.
            continues: text goes on after earlier tokens, so the tokenizer adds no special tokens.
            cancelled: asked while a chat template is rendered; True ends it.
            refuses_giants: refuse a text that cannot fit the context before it is tokenized.

        Raises:
            PromptError: a kind that is not understood, or that needs a tokenizer or chat template
                this decoder does not have; or a giant.
        """
        codec = self._codec
        for name, given in (("tools", tools), ("chat_template_kwargs", arguments)):
            if given is not None and not is_messages(prompt):
                raise PromptError(
                    f"{name} were given with a prompt that is not messages; pass messages"
                )
        if isinstance(prompt, str):
            if codec is None:
                raise PromptError("the prompt is text and this decoder has no tokenizer; pass ids")
            text, special = prompt, not continues
        elif is_messages(prompt):
            if codec is None or self._chat is None:
                raise PromptError(
                    "the prompt is messages and this decoder has no chat template; pass text or ids"
                )
            messages = cast("Sequence[Message]", prompt)
            text = self._chat.render(messages, tools, arguments=arguments, cancelled=cancelled)
            special = False
        else:
            return _token_ids(prompt)
        if refuses_giants:
            self._check_size(codec, text)
        return codec.encode(text, add_special_tokens=special)

    def fit(self, ids: list[int], params: SamplingParams, head: Callable[[], int]) -> FittedPrompt:
        """Check a prompt against vocabulary and context, and truncate it when asked to.

        Args:
            head: how many ids from the first on a truncation leaves in place; asked only then.

        Raises:
            PromptError: no token, an id outside the vocabulary, or more tokens than the context.
        """
        if not ids:
            raise PromptError("the prompt is empty; allowed is one token or more")
        bad = next((token for token in ids if not 0 <= token < self._vocab_size), None)
        if bad is not None:
            raise PromptError(
                f"the prompt holds token id {bad}; allowed is 0 .. {self._vocab_size - 1}"
            )
        context = self._max_length
        if params.truncate_prompt == "left":
            room = max(context + 1 - params.max_new_tokens, (context + 1) // 2)
            if len(ids) > room:
                return self._cut(ids, room, head())
        if len(ids) > context:
            raise PromptError(
                f"the prompt has {len(ids)} tokens and the context holds {context}; "
                "shorten it or set truncate_prompt='left'"
            )
        return FittedPrompt(ids)

    def head(
        self,
        ids: Sequence[int],
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> int:
        """How many of a prompt's first ids are what every prompt of its kind begins with.

        That is the token that begins a text and, of messages, the system prompt as far as the
        template writes it first.
        """
        system: list[Message] = []
        for message in prompt if is_messages(prompt) else ():
            if not isinstance(message, Mapping) or message.get("role") not in _SYSTEM_ROLES:
                break
            system.append(message)
        if system and self._chat is not None and self._codec is not None:
            try:
                text = self._chat.render(system, tools, False, arguments)
            except PromptError:  # a template that wants a user's turn marks no system prompt
                return self._num_bos(ids)
            alone = self._codec.encode(text, add_special_tokens=False)
            pairs = zip(alone, ids, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(alone), len(ids)))
            return max(same, self._num_bos(ids))
        return self._num_bos(ids)

    def _num_bos(self, ids: Sequence[int]) -> int:
        """1 when a prompt begins with the token that begins every text, else 0."""
        begins = {self._bos_token_id}
        if self._codec is not None:
            begins.update(self._codec.encode("")[:1])
        return int(ids[0] in begins)

    def _cut(self, ids: list[int], room: int, head: int) -> FittedPrompt:
        """Keep the first `head` ids and the last ones, `room` in all."""
        if head > room // 2:  # a system prompt that leaves no room for anything else
            head = self._num_bos(ids)
        dropped = len(ids) - room
        kept = f"the last {room - head}"
        if head:
            kept = f"the first {head} and {kept}"
        cut = (
            f"the prompt has {len(ids)} tokens: tokens {head} .. {head + dropped - 1} were cut, "
            f"{kept} are kept"
        )
        return FittedPrompt([*ids[:head], *ids[head + dropped :]], cut)

    def _check_size(self, codec: TextCodec, text: str) -> None:
        """Refuse a text that has more tokens than the context whatever it says."""
        if len(text) <= _USUAL_CHARACTERS * self._max_length or codec.size_bound is None:
            return
        least = codec.size_bound.least_tokens(text)
        if least > self._max_length:
            raise PromptError(
                f"the prompt has {len(text)} characters, which are {least} tokens or more, and "
                f"the context holds {self._max_length}; shorten it or set truncate_prompt='left'"
            )


def _token_ids(prompt: object) -> list[int]:
    items = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if isinstance(items, (bytes, bytearray)) or not isinstance(items, Sequence):
        raise PromptError(
            f"the prompt is {type(prompt).__name__}; allowed is text, token ids or messages"
        )
    for index, item in enumerate(items):
        if not is_integer(item):
            raise PromptError(
                f"item {index} of the prompt is {item!r}; "
                "allowed is token ids only, or messages (dicts) only"
            )
    return [int(item) for item in items]
