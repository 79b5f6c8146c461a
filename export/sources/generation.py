"""What a model's `generation_config.json` says, sorted into what a package honours.

Only what the file states counts: transformers fills in defaults of its own (top_k 50), which no
author chose. Sampling options are kept where the file samples (`do_sample`) or where they act on
greedy text too; bans are kept as bans; every other setting that would change the output is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.package.defaults import GenerationEntry
from specdec.export.errors import SourceError
from specdec.export.sources.source import ModelSource

__all__ = ["SourceGeneration", "load_generation", "read_stated", "within_vocabulary"]

_FILE = "generation_config.json"
_SAMPLED = {"temperature": float, "top_k": int, "top_p": float, "min_p": float}
_ALWAYS = {
    "repetition_penalty": float,
    "no_repeat_ngram_size": int,
    "max_new_tokens": int,
    "min_new_tokens": int,
}
_BANS = ("suppress_tokens", "begin_suppress_tokens")
_NO_EFFECT = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_new_tokens": 0,
}
_IRRELEVANT = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "do_sample"),
    *("transformers_version", "_from_model_config", "use_cache", "cache_implementation"),
    *("cache_config", "return_legacy_cache", "prefill_chunk_size", "max_length", "max_time"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits"),
    *("return_dict_in_generate", "num_return_sequences", "compile_config", "disable_compile"),
    *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule"),
    *("assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size"),
    *("assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "trust_remote_code"),
    *("_commit_hash", "early_stopping", "low_memory", "renormalize_logits", "token_healing"),
    *("remove_invalid_values", "chat_format", "max_window_size"),
}
"""Settings about other things than which token comes next, or about ways of searching that are
off in themselves."""
_OFF: dict[str, Any] = {
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "length_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_length": 0,
    "guidance_scale": 1.0,
}
"""Settings with the values at which they do nothing; null and false do nothing anywhere."""


@dataclass(frozen=True)
class SourceGeneration:
    """What the file of one source says."""

    entry: GenerationEntry
    eos_token_ids: tuple[int, ...]
    notes: tuple[str, ...] = ()


def load_generation(source: ModelSource) -> SourceGeneration:
    """Read the generation configuration of a source; a source without one says nothing.

    Raises:
        SourceError: the file is malformed; the message names the key.
    """
    stated = read_stated(source, _FILE)
    where = f"{_FILE} of {source.name}"
    notes = []
    sampling: dict[str, float] = {}
    for name, kind in (_SAMPLED | _ALWAYS).items():
        value = stated.get(name)
        if value is None or value == _NO_EFFECT.get(name):
            continue
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise SourceError(f"{name} in {where} is {value!r}; allowed is a number")
        if name in _ALWAYS or stated.get("do_sample"):
            sampling[name] = kind(value)
    if stated.get("do_sample"):
        sampling.setdefault("temperature", 1.0)
    bans = {name: _ids(stated.get(name), name, where) for name in _BANS}
    others = sorted(name for name in stated if _acts(name, stated[name]))
    if sampling:
        listed = ", ".join(f"{name} {value:g}" for name, value in sampling.items())
        notes.append(f"the model's own sampling options apply when asked for: {listed}")
    for name, ids in bans.items():
        if ids:
            when = " as the first token" if name.startswith("begin") else ""
            notes.append(f"{name}: {len(ids)} tokens are never chosen{when}")
    if others:
        listed = ", ".join(f"{name} ({json.dumps(stated[name])[:40]})" for name in others)
        notes.append(f"not honoured of {_FILE}: {listed}")
    entry = GenerationEntry(sampling, not_honoured=tuple(others), **bans)
    ends = stated.get("eos_token_id")
    return SourceGeneration(entry, _ids(ends, "eos_token_id", where), tuple(notes))


def within_vocabulary(entry: GenerationEntry, vocab_size: int) -> GenerationEntry:
    """The entry without bans of ids that can never be chosen anyway: padding of the head."""
    bans = {name: tuple(i for i in getattr(entry, name) if i < vocab_size) for name in _BANS}
    return GenerationEntry(entry.sampling, not_honoured=entry.not_honoured, **bans)


def read_stated(source: ModelSource, file: str) -> dict[str, Any]:
    """The JSON object in a file of a source; empty when there is no such file.

    Raises:
        SourceError: it is not a JSON object.
    """
    from transformers.utils import cached_file

    if source.gguf_file is not None:
        return {}
    found = cached_file(
        source.location,
        file,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if found is None:
        return {}
    try:
        stated = json.loads(Path(found).read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{file} of {source.name} is not JSON ({error}); correct it") from error
    if not isinstance(stated, dict):
        raise SourceError(f"{file} of {source.name} is not a JSON object; correct it")
    return stated


def _acts(name: str, value: Any) -> bool:
    """Whether a setting that is not honoured would change the output."""
    honoured = {*_SAMPLED, *_ALWAYS, *_BANS}
    if name in honoured or name in _IRRELEVANT or value in (None, False, [], {}):
        return False
    return bool(value != _OFF.get(name))


def _ids(value: Any, name: str, where: str) -> tuple[int, ...]:
    """Token ids of a setting: an id, a list of them, or null."""
    if value is None:
        return ()
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    ids = list(items)
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise SourceError(f"{name} in {where} is {value!r}; allowed are token ids, 0 or more")
    return tuple(dict.fromkeys(ids))
