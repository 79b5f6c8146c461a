"""Whether the parts of a manifest fit together: target and draft, and ids and vocabulary."""

from __future__ import annotations

from specdec.engines.package.defaults import GenerationEntry
from specdec.engines.package.entries import EngineEntry, TokenizerEntry
from specdec.engines.package.fields import FieldError
from specdec.engines.package.strict_json import shown

__all__ = ["check_pair", "check_token_ids"]

_SHARED_GEOMETRY = (
    "backend",
    "layout",
    "num_layers",
    "num_kv_heads",
    "head_size",
    "kv_dtype",
    "max_length",
)


def check_pair(target: EngineEntry, draft: EngineEntry | None) -> None:
    """Raise `FieldError` when a draft does not fit its target."""
    if target.shares_target_cache:
        raise FieldError("engines.target.shares_target_cache", "true", "false")
    if draft is None:
        return
    if draft.vocab_size != target.vocab_size:
        raise FieldError(
            "engines.draft.vocab_size", f"{draft.vocab_size}", f"the target's, {target.vocab_size}"
        )
    if not draft.shares_target_cache:
        return
    if target.layout != "in_place":
        raise FieldError(
            "engines.draft.shares_target_cache", "true", 'true for layout "in_place" only'
        )
    for name in _SHARED_GEOMETRY:
        got, wanted = getattr(draft, name), getattr(target, name)
        if got != wanted:
            raise FieldError(
                f"engines.draft.{name}", shown(got), f"the shared cache's, {shown(wanted)}"
            )


def check_token_ids(
    tokenizer: TokenizerEntry, generation: GenerationEntry, vocab_size: int
) -> None:
    """Raise `FieldError` for an id outside the vocabulary."""
    named = {"tokenizer.bos_token_id": tokenizer.bos_token_id}
    named |= {
        f"tokenizer.eos_token_ids[{index}]": token_id
        for index, token_id in enumerate(tokenizer.eos_token_ids)
    }
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        ids = getattr(generation, name)
        named |= {f"generation.{name}[{index}]": token_id for index, token_id in enumerate(ids)}
    for where, token_id in named.items():
        if token_id is not None and token_id >= vocab_size:
            raise FieldError(where, f"{token_id}", f"0 .. {vocab_size - 1}")
