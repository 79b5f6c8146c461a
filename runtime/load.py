"""From a package directory to a decoder."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from specdec.engines.ort_options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.package import LoadedPackage, load_package
from specdec.runtime.chat import ChatTemplate
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.drafters import Drafter
from specdec.runtime.parts import DrafterName
from specdec.runtime.text import TextCodec

__all__ = ["decoder_for", "load_decoder"]


def load_decoder(
    path: str | PathLike[str],
    *,
    device: str = "cpu",
    draft_device: str | None = None,
    verify_checksums: bool = True,
    num_threads: int | None = None,
    drafter: DrafterName = "auto",
    ort: OrtOptions = DEFAULT_ORT_OPTIONS,
) -> SpeculativeDecoder:
    """Load a package and wire its engines, tokenizer and chat template together.

    The draft engine is not loaded when `drafter` has no use for it. Arguments and errors as
    `SpeculativeDecoder.load`; whatever was loaded is released when a later step fails.
    """
    package = load_package(
        Path(path),
        device=device,
        draft_device=draft_device,
        verify_checksums=verify_checksums,
        num_threads=num_threads,
        load_draft=drafter not in ("ngram", "none"),
        ort=ort,
    )
    try:
        return decoder_for(package, drafter=drafter)
    except BaseException:
        package.close()
        raise


def decoder_for(
    package: LoadedPackage, *, drafter: DrafterName | Drafter = "auto", owns: bool = True
) -> SpeculativeDecoder:
    """Wire the engines, tokenizer and chat template of a loaded package together.

    Args:
        package: its engines serve one decoder at a time.
        drafter: as in `SpeculativeDecoder`.
        owns: closing the decoder closes the package.
    """
    template = package.chat_template
    return SpeculativeDecoder(
        package.target,
        package.draft,
        shares_cache=package.draft_shares_cache,
        codec=TextCodec(package.tokenizer_path),
        chat=None if template is None else ChatTemplate(template, package.special_tokens),
        eos_token_ids=package.manifest.tokenizer.eos_token_ids,
        drafter=drafter,
        costs=package.manifest.costs,
        on_close=package.close if owns else _keep,
    )


def _keep() -> None:
    """Leave the engines to their owner."""
