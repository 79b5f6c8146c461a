"""Prompts: text, token ids or chat messages to the token ids a generation starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specdec.runtime.checks import is_integer
from specdec.runtime.errors import PromptError
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec

__all__ = ["Message", "Prompt", "copied", "encode_prompt", "fit_prompt", "is_messages"]

_MAX_DEPTH = 100

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


def encode_prompt(
    prompt: Prompt,
    codec: TextCodec | None,
    chat: ChatTemplate | None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    continues: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Turn any kind of prompt into token ids.

    Args:
        continues: text goes on after earlier tokens, so the tokenizer adds no special tokens.
        cancelled: asked while a chat template is rendered; True ends it.

    Raises:
        PromptError: a kind that is not understood, or that needs a tokenizer or chat template
            this decoder does not have.
        NotBegunError: `cancelled` said so.
    """
    if tools is not None and not is_messages(prompt):
        raise PromptError("tools were given with a prompt that is not messages; pass messages")
    if isinstance(prompt, str):
        if codec is None:
            raise PromptError("the prompt is text and this decoder has no tokenizer; pass ids")
        return codec.encode(prompt, add_special_tokens=not continues)
    if is_messages(prompt):
        if codec is None or chat is None:
            raise PromptError(
                "the prompt is messages and this decoder has no chat template; pass text or ids"
            )
        text = chat.render(prompt, tools, cancelled=cancelled)  # type: ignore[arg-type]
        return codec.encode(text, add_special_tokens=False)
    return _token_ids(prompt)


def fit_prompt(
    ids: list[int], params: SamplingParams, vocab_size: int, max_length: int
) -> list[int]:
    """Check a prompt against vocabulary and context, and truncate it when asked to.

    Raises:
        PromptError: no token, an id outside the vocabulary, or more tokens than the context.
    """
    if not ids:
        raise PromptError("the prompt is empty; allowed is one token or more")
    bad = next((token for token in ids if not 0 <= token < vocab_size), None)
    if bad is not None:
        raise PromptError(f"the prompt holds token id {bad}; allowed is 0 .. {vocab_size - 1}")
    if params.truncate_prompt == "left":
        room = max(max_length + 1 - params.max_new_tokens, (max_length + 1) // 2)
        ids = ids[-room:]
    if len(ids) > max_length:
        raise PromptError(
            f"the prompt has {len(ids)} tokens and the context holds {max_length}; "
            "shorten it or set truncate_prompt='left'"
        )
    return ids


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
