"""Read a source's tokenizer, compare two, and write what the runtime needs of one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import GenerationEntry, TokenizerEntry
from specdec.engines.storage.writing import write_file
from specdec.export.errors import SourceError, TokenizerMismatchError
from specdec.export.sources.generation import load_generation, read_stated
from specdec.export.sources.gguf.tokenizer import gguf_tokenizer, special_ids
from specdec.export.sources.source import ModelSource, open_source_gguf, reading
from specdec.export.sources.templates import sort_templates, write_templates

__all__ = ["SourceTokenizer", "check_same_tokenizer", "load_tokenizer", "write_tokenizer"]

_FILE = "tokenizer.json"


@dataclass(frozen=True)
class SourceTokenizer:
    """A tokenizer as the package will hold it."""

    source: str
    backend: Any
    """A `tokenizers.Tokenizer`."""
    tokens: dict[int, str]
    """Every token by id."""
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    chat_template: str | None
    special_tokens: dict[str, str] = field(default_factory=dict)
    chat_templates: dict[str, str] = field(default_factory=dict)
    """Further templates by name."""
    generation: GenerationEntry = field(default_factory=GenerationEntry)
    """The model's own defaults."""
    notes: tuple[str, ...] = ()
    """What the user should know of all this."""

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens) + 1


def load_tokenizer(source: ModelSource, config: Any) -> SourceTokenizer:
    """Read the tokenizer of a source and the ids that end a text.

    Raises:
        SourceError: there is none, it has no fast (`tokenizers`) form, or an id that ends a text
            is no token.
    """
    found = _from_gguf(source) if source.gguf_file is not None else _from_folder(source, config)
    outside = [index for index in found.eos_token_ids if index not in found.tokens]
    if outside:
        raise SourceError(
            f"{source.name} ends its texts with id {outside[0]}, which is no token of its "
            f"tokenizer (of {found.size}); correct eos_token_id in its configuration"
        )
    return found


def _from_folder(source: ModelSource, config: Any) -> SourceTokenizer:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    stated = read_stated(source, "tokenizer_config.json")
    # transformers 5 writes this name for what version 4 calls a fast tokenizer without a class.
    generic = stated.get("tokenizer_class") == "TokenizersBackend"
    reader = PreTrainedTokenizerFast if generic else AutoTokenizer
    with reading(source, "tokenizer"):
        tokenizer = reader.from_pretrained(source.location, **source.arguments)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise SourceError(
            f"the tokenizer of {source.name} has no tokenizer.json form; convert it with "
            "transformers' AutoTokenizer(..., use_fast=True) and save it first"
        )
    backend.no_truncation()
    backend.no_padding()
    tokens = {index: token for token, index in backend.get_vocab(with_added_tokens=True).items()}
    generation = load_generation(source)
    ends = _eos_token_ids(source, config, tokenizer, generation.eos_token_ids)
    eos = tuple(dict.fromkeys(index for ids in ends.values() for index in ids))
    _check_ends(source, ends, max(tokens) + 1, config)
    special = {
        name: str(value)
        for name, value in tokenizer.special_tokens_map.items()
        if isinstance(value, str)
    }
    templates = sort_templates(tokenizer.chat_template, source.name)
    return SourceTokenizer(
        source=source.name,
        backend=backend,
        tokens=tokens,
        eos_token_ids=eos,
        bos_token_id=tokenizer.bos_token_id,
        chat_template=templates.default,
        special_tokens=special,
        chat_templates=templates.others,
        generation=generation.entry,
        notes=(*_end_notes(ends), *generation.notes),
    )


def _from_gguf(source: ModelSource) -> SourceTokenizer:
    model = open_source_gguf(source)
    backend = gguf_tokenizer(model)
    tokens = {index: token for token, index in backend.get_vocab(with_added_tokens=True).items()}
    ids = special_ids(model)
    roles = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    return SourceTokenizer(
        source=source.name,
        backend=backend,
        tokens=tokens,
        eos_token_ids=tuple(
            dict.fromkeys(ids[role] for role in ("eos", "eot", "eom") if role in ids)
        ),
        bos_token_id=ids.get("bos"),
        chat_template=model.metadata.get("tokenizer.chat_template"),
        special_tokens={
            name: tokens[ids[role]] for role, name in roles.items() if ids.get(role) in tokens
        },
    )


def check_same_tokenizer(target: SourceTokenizer, draft: SourceTokenizer) -> None:
    """Compare two vocabularies id by id, whatever the padding of either model's logits.

    Raises:
        TokenizerMismatchError: they differ; the message names the first id and both tokens.
    """
    for index in range(max(target.size, draft.size)):
        ours, theirs = target.tokens.get(index), draft.tokens.get(index)
        if ours != theirs:
            raise TokenizerMismatchError(
                f"target {target.source} and draft {draft.source} use different tokenizers: id "
                f"{index} is {_shown(ours)} in the target and {_shown(theirs)} in the draft; "
                "choose a draft of the same family, or --draft self"
            )


def write_tokenizer(tokenizer: SourceTokenizer, directory: Path) -> TokenizerEntry:
    """Write `tokenizer.json` and the chat template into a package directory."""
    write_file(directory / _FILE, tokenizer.backend.to_str())
    default, others = write_templates(tokenizer.chat_template, tokenizer.chat_templates, directory)
    return TokenizerEntry(
        file=_FILE,
        eos_token_ids=tokenizer.eos_token_ids,
        chat_template=default,
        bos_token_id=tokenizer.bos_token_id,
        special_tokens=tokenizer.special_tokens,
        chat_templates=others,
    )


def _eos_token_ids(
    source: ModelSource, config: Any, tokenizer: Any, generation: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """The ids that end a text, by what names them."""
    if source.is_genai:
        named = config.eos_token_ids
        return {"genai_config.json": named, "the tokenizer": _as_ids(tokenizer.eos_token_id)}
    stated = read_stated(source, "config.json")
    text = stated.get("text_config")
    inner = text if isinstance(text, dict) else {}
    return {
        "generation_config.json": generation,
        # Not the configuration object: it has defaults for what the file leaves out.
        "config.json": _as_ids(inner.get("eos_token_id", stated.get("eos_token_id"))),
        "the tokenizer": _as_ids(tokenizer.eos_token_id),
    }


def _check_ends(
    source: ModelSource, ends: dict[str, tuple[int, ...]], num_tokens: int, config: Any
) -> None:
    """Refuse an end that no text can reach."""
    size = min(num_tokens, int(config.get_text_config().vocab_size))
    for where, ids in ends.items():
        bad = next((index for index in ids if index >= size), None)
        if bad is not None:
            raise SourceError(
                f"{where} of {source.name} names the end token {bad}, and the vocabulary has ids "
                f"0 .. {size - 1}; correct eos_token_id there"
            )


def _as_ids(value: Any) -> tuple[int, ...]:
    """An id or several, without repetitions."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(dict.fromkeys(int(i) for i in value))


def _end_notes(ends: dict[str, tuple[int, ...]]) -> list[str]:
    """Tell of sources that disagree about the end."""
    stated = {where: ids for where, ids in ends.items() if ids}
    if len({frozenset(ids) for ids in stated.values()}) < 2:
        return []
    listed = "; ".join(f"{where} says {', '.join(map(str, ids))}" for where, ids in stated.items())
    return [f"every end token that is named ends a text ({listed})"]


def _shown(token: str | None) -> str:
    return "absent" if token is None else json.dumps(token, ensure_ascii=False)
