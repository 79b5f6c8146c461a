"""Load the prompts and texts that all figures are measured on, written for this purpose.

Prompts are requests in six categories and two languages; texts are short passages, for
perplexity and for comparing distributions token by token.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from specdec.runtime.decoder import SpeculativeDecoder

__all__ = ["Passage", "load_prompts", "load_texts", "one_per_category", "prompt_ids"]


@dataclass(frozen=True)
class Passage:
    """A prompt or a text."""

    category: str
    """"chat", "code", "summarising", "translation", "maths" or "copying"."""
    language: str
    """"en" or "zh"."""
    text: str


@cache
def load_prompts() -> tuple[Passage, ...]:
    """All prompts, each category in both languages."""
    return _load("prompts.json")


@cache
def load_texts() -> tuple[Passage, ...]:
    """All texts for scoring."""
    return _load("texts.json")


def one_per_category(prompts: tuple[Passage, ...]) -> tuple[Passage, ...]:
    """The first prompt of each category, languages in turn where there is a choice."""
    chosen: dict[str, Passage] = {}
    for category in dict.fromkeys(prompt.category for prompt in prompts):
        wanted = "zh" if len(chosen) % 3 == 0 else "en"
        own = [prompt for prompt in prompts if prompt.category == category]
        chosen[category] = next((p for p in own if p.language == wanted), own[0])
    return tuple(chosen.values())


def prompt_ids(decoder: SpeculativeDecoder, text: str) -> list[int]:
    """A prompt as the model is asked: a user message where there is a chat template."""
    if decoder.has_chat_template:
        return decoder.encode([{"role": "user", "content": text}])
    return decoder.encode(text)


def _load(name: str) -> tuple[Passage, ...]:
    folder = files("specdec.runtime.report.measuring")
    document = folder.joinpath(name).read_text(encoding="utf-8")
    return tuple(Passage(**entry) for entry in json.loads(document))
