"""What a loaded package says beside its engines, as arguments of a decoder."""

from __future__ import annotations

from typing import Any

from specdec.engines.load import LoadedPackage
from specdec.runtime.sampling.defaults import ModelDefaults
from specdec.runtime.text.chat import package_chat
from specdec.runtime.text.codec import TextCodec

__all__ = ["package_arguments"]


def package_arguments(package: LoadedPackage, chat_template: str | None) -> dict[str, Any]:
    """Keyword arguments of `SpeculativeDecoder`: texts, special tokens, defaults and costs.

    Raises:
        PackageError: the tokenizer cannot be read.
        InvalidParameterError: there is no chat template called `chat_template`, or the package's
            sampling options are not those of this release.
    """
    manifest = package.manifest
    said = manifest.generation
    return {
        "shares_cache": package.draft_shares_cache,
        "codec": TextCodec(package.tokenizer_path),
        "chat": package_chat(package.package, chat_template),
        "eos_token_ids": manifest.tokenizer.eos_token_ids,
        "bos_token_id": manifest.tokenizer.bos_token_id,
        "defaults": ModelDefaults(said.sampling, said.suppress_tokens, said.begin_suppress_tokens),
        "costs": manifest.costs,
    }
