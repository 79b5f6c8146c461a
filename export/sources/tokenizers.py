"""Read a source's tokenizer, compare two, and write what the runtime needs of one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import TokenizerEntry
from specdec.engines.storage.writing import write_file
from specdec.export.errors import SourceError, TokenizerMismatchError
from specdec.export.sources.gguf.tokenizer import gguf_tokenizer, special_ids
from specdec.export.sources.source import (
    ModelSource,
    load_generation_config,
    open_source_gguf,
    reading,
)

__all__ = ["SourceTokenizer", "check_same_tokenizer", "load_tokenizer", "write_tokenizer"]

_FILE = "tokenizer.json"
_TEMPLATE = "chat_template.jinja"


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
    notes: tuple[str, ...] = ()
    """What the user should know of it."""

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
    from transformers import AutoTokenizer

    with reading(source, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(source.location, **source.arguments)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise SourceError(
            f"the tokenizer of {source.name} has no tokenizer.json form; convert it with "
            "transformers' AutoTokenizer(..., use_fast=True) and save it first"
        )
    backend.no_truncation()
    backend.no_padding()
    tokens = {index: token for token, index in backend.get_vocab(with_added_tokens=True).items()}
    eos, notes = _eos_token_ids(source, config, tokenizer)
    special = {
        name: str(value)
        for name, value in tokenizer.special_tokens_map.items()
        if isinstance(value, str)
    }
    template = tokenizer.chat_template
    return SourceTokenizer(
        source=source.name,
        backend=backend,
        tokens=tokens,
        eos_token_ids=eos,
        bos_token_id=tokenizer.bos_token_id,
        chat_template=template if isinstance(template, str) else None,
        special_tokens=special,
        notes=notes,
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
    if tokenizer.chat_template is not None:
        write_file(directory / _TEMPLATE, tokenizer.chat_template)
    return TokenizerEntry(
        file=_FILE,
        eos_token_ids=tokenizer.eos_token_ids,
        chat_template=_TEMPLATE if tokenizer.chat_template is not None else None,
        bos_token_id=tokenizer.bos_token_id,
        special_tokens=tokenizer.special_tokens,
    )


def _eos_token_ids(
    source: ModelSource, config: Any, tokenizer: Any
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Every id that generation config, model config or tokenizer calls an end, and a note.

    A configuration class has an id of its own where the file names none; that is the last resort.
    """
    generation = load_generation_config(source)
    stated = _stated_eos(source)
    named = {
        "generation_config.json": _ids(getattr(generation, "eos_token_id", None)),
        "config.json": _ids(stated),
        "the tokenizer": _ids(tokenizer.eos_token_id),
    }
    named = {holder: ids for holder, ids in named.items() if ids}
    union = tuple(dict.fromkeys(index for ids in named.values() for index in ids))
    if not union:
        return _ids(getattr(config.get_text_config(), "eos_token_id", None)), ()
    if all(set(ids) == set(union) for ids in named.values()):
        return union, ()
    said = ", ".join(f"{holder} {list(ids)}" for holder, ids in named.items())
    return union, (f"{source.name} names several ends ({said}); each of them ends a text",)


def _stated_eos(source: ModelSource) -> Any:
    """`eos_token_id` as config.json has it, None where it says nothing."""
    from transformers import PretrainedConfig

    with reading(source, "configuration"):
        data, _ = PretrainedConfig.get_config_dict(source.location, **source.arguments)
    return data.get("eos_token_id")


def _ids(value: Any) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,)
    return tuple(dict.fromkeys(int(index) for index in value or ()))


def _shown(token: str | None) -> str:
    return "absent" if token is None else json.dumps(token, ensure_ascii=False)
