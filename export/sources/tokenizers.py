"""Read a source's tokenizer, compare two, and write what the runtime needs of one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.engines.package.manifest import TokenizerEntry
from specdec.engines.storage.writing import write_file
from specdec.export.errors import SourceError, TokenizerMismatchError
from specdec.export.sources.source import ModelSource, load_generation_config, reading

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

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens) + 1


def load_tokenizer(source: ModelSource, config: Any) -> SourceTokenizer:
    """Read the tokenizer of a source and the ids that end a text.

    Raises:
        SourceError: there is none, or it has no fast (`tokenizers`) form.
    """
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
    eos = _eos_token_ids(source, config, tokenizer)
    special = {
        name: str(value)
        for name, value in tokenizer.special_tokens_map.items()
        if isinstance(value, str)
    }
    if source.gguf_file is not None:
        # A GGUF file names its special tokens by id; the converted texts can be wrong.
        for name, index in (
            ("bos_token", config.bos_token_id),
            ("eos_token", eos[0] if eos else None),
        ):
            if index in tokens:
                special[name] = tokens[index]
    template = tokenizer.chat_template
    return SourceTokenizer(
        source=source.name,
        backend=backend,
        tokens=tokens,
        eos_token_ids=eos,
        bos_token_id=tokenizer.bos_token_id,
        chat_template=template if isinstance(template, str) else None,
        special_tokens=special,
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


def _eos_token_ids(source: ModelSource, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """The first of generation config, model config, tokenizer that names an end."""
    generation = load_generation_config(source)
    for holder in (generation, config.get_text_config(), tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        if isinstance(ids, int):
            return (ids,)
        if ids:
            return tuple(dict.fromkeys(int(i) for i in ids))
    return ()


def _shown(token: str | None) -> str:
    return "absent" if token is None else json.dumps(token, ensure_ascii=False)
