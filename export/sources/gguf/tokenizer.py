"""Build the tokenizer of a GGUF file from its metadata, as a `tokenizers.Tokenizer`.

Two kinds are built: "gpt2" (byte-level BPE, cut into words by `tokenizer.ggml.pre`) and "llama"
(SentencePiece BPE with byte fallback). Tokens of type CONTROL and USER_DEFINED are found in a text
before anything is cut, as their authors added them.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from specdec.export.errors import SourceError
from specdec.export.sources.gguf.parts import GgufModel
from specdec.export.sources.gguf.pretokenizers import PRETOKENIZERS
from specdec.export.sources.gguf.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    read_vocabulary,
    score_merges,
)

__all__ = ["gguf_tokenizer", "special_ids"]

_G = "tokenizer.ggml."
_ROLES = ("bos", "eos", "eot", "eom", "unknown", "padding")
_FLAGS = ("add_bos_token", "add_eos_token", "add_space_prefix")
_READ = {
    _G + name for name in ("model", "pre", "tokens", "token_type", "scores", "merges", *_FLAGS)
}
_READ |= {f"{_G}{role}_token_id" for role in _ROLES} | {"tokenizer.chat_template"}
_SAYS_NOTHING = {f"{_G}{name}_token_id" for name in ("seperator", "separator", "cls", "mask")}
_SAYS_NOTHING |= {f"{_G}fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")}
_SAYS_NOTHING |= {f"{_G}{name}_token_id" for name in ("prefix", "suffix", "middle")}
_SAYS_NOTHING |= {_G + "token_type_count", "tokenizer.huggingface.json"}
"""Tokens that only a caller places, and a copy of the tokenizer in another form."""
_ONLY_FALSE = {_G + name for name in ("add_sep_token", "remove_extra_whitespaces")}
_TEMPLATES = ("tokenizer.chat_template.", "tokenizer.chat_templates")


def gguf_tokenizer(model: GgufModel) -> Tokenizer:
    """The tokenizer of a GGUF model.

    Raises:
        SourceError: a key is missing, unknown, or has a value that cannot be honoured.
    """
    _check_keys(model)
    kind = model.metadata.get(_G + "model")
    if kind not in ("gpt2", "llama"):
        raise SourceError(
            f"{model.path}: tokenizer.ggml.model is {kind!r}; allowed are 'gpt2' and 'llama': pass "
            "the Hugging Face folder"
        )
    vocabulary = read_vocabulary(model)
    data = _byte_level(model, vocabulary) if kind == "gpt2" else _sentencepiece(model, vocabulary)
    data |= {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(model, vocabulary),
        "post_processor": _template(model, vocabulary, data.pop("adds_bos")),
    }
    try:
        return Tokenizer.from_str(json.dumps(data, ensure_ascii=False))
    except Exception as error:  # tokenizers raises plain exceptions
        raise SourceError(
            f"{model.path}: its tokenizer cannot be built ({' '.join(str(error).split())[:200]})"
        ) from error


def special_ids(model: GgufModel) -> dict[str, int]:
    """Ids of the special tokens that the file names, by role ("bos", "eos", "eot", "eom", ...).

    Raises:
        SourceError: one of them is outside the vocabulary.
    """
    count = len(model.metadata.get(_G + "tokens", ()))
    found = {}
    for role in _ROLES:
        key = f"{_G}{role}_token_id"
        index = model.metadata.get(key)
        if index is None:
            continue
        if not 0 <= int(index) < count:
            raise SourceError(
                f"{model.path}: {key} is {index}; allowed are ids below {count}, the tokens"
            )
        found[role] = int(index)
    return found


def _byte_level(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    name = model.metadata.get(_G + "pre")
    if name not in PRETOKENIZERS:
        got = (
            "names no pre-tokenizer (tokenizer.ggml.pre)"
            if name is None
            else (f"names the pre-tokenizer {name!r}, which is not known here")
        )
        raise SourceError(
            f"{model.path} {got}, so that its texts cannot be cut as the model learned them; pass "
            "the Hugging Face folder, or convert the model again"
        )
    merges = model.metadata.get(_G + "merges")
    if not isinstance(merges, list):
        raise SourceError(f"{model.path} has no tokenizer.ggml.merges; convert the model again")
    way = PRETOKENIZERS[name]
    split = [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
        for p in way.patterns
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    prefix = bool(model.metadata.get(_G + "add_space_prefix", False))
    return {
        "adds_bos": way.adds_bos,
        "normalizer": {"type": "NFC"} if way.composes else None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                *split,
                level | {"use_regex": False, "add_prefix_space": prefix},
            ],
        },
        "decoder": level | {"use_regex": True},
        "model": _bpe(vocabulary, merges, ignore_merges=way.whole_words),
    }


def _sentencepiece(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    if _G + "merges" in model.metadata or _G + "scores" not in model.metadata:
        raise SourceError(
            f"{model.path}: a tokenizer of kind 'llama' has tokenizer.ggml.scores and no merges; "
            "convert the model again"
        )
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    normalizers = [spaces]
    if model.metadata.get(_G + "add_space_prefix", True):
        normalizers.insert(0, {"type": "Prepend", "prepend": "▁"})
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = special_ids(model).get("unknown", next(iter(vocabulary.of_kind(UNKNOWN)), None))
    return {
        "adds_bos": True,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": back},
        "model": _bpe(
            vocabulary,
            score_merges(vocabulary),
            byte_fallback=len(vocabulary.of_kind(BYTE)) == 256,
            fuse_unk=True,
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
        ),
    }


def _bpe(vocabulary: Vocabulary, merges: list[Any], **options: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "vocab": {token: index for index, token in vocabulary.tokens.items()},
        "merges": merges,
        **options,
    }


def _added(model: GgufModel, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Tokens that are found in a text as they are; UNKNOWN ones too, as SentencePiece's `<unk>`."""
    eats_spaces = _eats_spaces(model)
    added = []
    for index in vocabulary.of_kind(CONTROL, UNKNOWN, USER_DEFINED):
        text = vocabulary.tokens[index]
        added.append(
            {
                "id": index,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": eats_spaces and text not in ("<unk>", "<s>", "<|endoftext|>"),
                "normalized": False,
                "special": vocabulary.kinds[index] != USER_DEFINED,
            }
        )
    return added


def _eats_spaces(model: GgufModel) -> bool:
    """Whether special tokens take the spaces after them: Phi-3's, which no key says."""
    name = str(model.metadata.get("general.name", "")).lower()
    is_spm = model.metadata.get(_G + "model") == "llama"
    return is_spm and ("phi-3" in name or "phi3" in name)


def _template(model: GgufModel, vocabulary: Vocabulary, adds_bos: bool) -> dict[str, Any] | None:
    """The tokens around a text."""
    ids = special_ids(model)
    wanted = {
        "bos": bool(model.metadata.get(_G + "add_bos_token", adds_bos)),
        "eos": bool(model.metadata.get(_G + "add_eos_token", False)),
    }
    around: dict[str, list[Any]] = {"bos": [], "eos": []}
    special = {}
    for role, added in wanted.items():
        if not added:
            continue
        if role not in ids:
            raise SourceError(
                f"{model.path} adds a {role.upper()} token (tokenizer.ggml.add_{role}_token) and "
                f"names none (tokenizer.ggml.{role}_token_id); convert the model again"
            )
        text = vocabulary.tokens[ids[role]]
        around[role] = [{"SpecialToken": {"id": text, "type_id": 0}}]
        special[text] = {"id": text, "ids": [ids[role]], "tokens": [text]}
    if not special:
        return None
    single = [*around["bos"], {"Sequence": {"id": "A", "type_id": 0}}, *around["eos"]]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": special,
    }


def _check_keys(model: GgufModel) -> None:
    for key, value in model.metadata.items():
        if not key.startswith("tokenizer.") or key in _READ or key in _SAYS_NOTHING:
            continue
        if key.startswith(_TEMPLATES) or (key in _ONLY_FALSE and value is False):
            continue
        hint = "allowed is False" if key in _ONLY_FALSE else "the key is not known here"
        raise SourceError(f"{model.path}: {key} is set, and {hint}; pass the Hugging Face folder")
