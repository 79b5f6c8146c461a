"""Choose the extent of a measurement from its level and the speed of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.report.contents import Level
from specdec.runtime.report.measuring.prompt_set import (
    Passage,
    load_prompts,
    load_texts,
    one_per_category,
    prompt_ids,
)
from specdec.runtime.report.measuring.runs import BenchPrompt

__all__ = ["GenerationPlan", "encode_prompts", "encode_texts", "plan_generation"]

_SLOW_SECONDS = 0.12


@dataclass(frozen=True)
class GenerationPlan:
    """What to generate and to score; counts are of prompts, tokens and repeats."""

    prompts: tuple[BenchPrompt, ...]
    sampled_prompts: int
    """The first so many are also played with sampling."""
    new_tokens: int
    repeats: int
    texts: tuple[tuple[int, ...], ...]


def plan_generation(
    decoder: SpeculativeDecoder, level: Level, step_seconds: float, context: int
) -> GenerationPlan:
    """Choose prompts and texts and encode them.

    Args:
        decoder: of the package.
        level: "short" takes about half a minute with a plain step of 25 ms, "full" some minutes.
        step_seconds: rough time of a plain step.
        context: tokens that every engine holds: the draft is also played alone.
    """
    slow = step_seconds > _SLOW_SECONDS
    passages, texts = load_prompts(), load_texts()
    if level == "short":
        passages = one_per_category(passages)[: 3 if slow else None]
        texts = one_per_category(texts)
    new_tokens = min((24 if slow else 28) if level == "short" else 96, context // 2)
    return GenerationPlan(
        prompts=encode_prompts(
            decoder, [(p.category, p.text) for p in passages], context - new_tokens
        ),
        sampled_prompts=2 if level == "short" else len(passages),
        new_tokens=new_tokens,
        repeats=1 if level == "short" else 2,
        texts=encode_texts(decoder, texts, min(32 if level == "short" else 128, context)),
    )


def encode_prompts(
    decoder: SpeculativeDecoder, prompts: Sequence[tuple[str, str]], limit: int
) -> tuple[BenchPrompt, ...]:
    """Encode (category, text) pairs as the model is asked, the last `limit` tokens of each."""
    return tuple(
        BenchPrompt(category, tuple(prompt_ids(decoder, text)[-limit:]))
        for category, text in prompts
    )


def encode_texts(
    decoder: SpeculativeDecoder, texts: Sequence[Passage], limit: int
) -> tuple[tuple[int, ...], ...]:
    """Encode texts, the first `limit` tokens of each."""
    return tuple(tuple(decoder.encode(text.text)[:limit]) for text in texts)
