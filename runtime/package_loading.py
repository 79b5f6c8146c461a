"""Load a package, and wire its engines, tokenizer, templates and defaults to a decoder."""

from __future__ import annotations

from os import PathLike
from typing import Any, TypeVar

from specdec.engines.load import LoadedPackage, load_package
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.drafting.drafter import Drafter
from specdec.runtime.load_arguments import check_load_arguments
from specdec.runtime.sampling.defaults import ModelDefaults
from specdec.runtime.text.chat import package_chat
from specdec.runtime.text.codec import TextCodec

__all__ = ["PackageLoading", "package_arguments"]

_Decoder = TypeVar("_Decoder", bound="PackageLoading")


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


class PackageLoading:
    """The constructors from a package of a decoder over one target and one draft."""

    @classmethod
    def load(
        cls: type[_Decoder],
        path: str | PathLike[str],
        device: str = "cpu",
        draft_device: str | None = None,
        verify_checksums: bool = True,
        num_threads: int | None = None,
        drafter: DrafterName = "auto",
        chat_template: str | None = None,
        ort: OrtOptions = DEFAULT_ORT_OPTIONS,
    ) -> _Decoder:
        """Load a package directory written by `specdec-export`.

        Args:
            path: the directory.
            device: "cpu" or "cuda:N", for the target.
            draft_device: the same for the draft; None is `device`.
            verify_checksums: hash every file before use.
            num_threads: threads an engine may use; None lets the backend choose.
            drafter: as in the constructor.
            chat_template: name of the package's chat template to use; None takes `tool_use` for
                requests with tools, where there is one, else `default`.
            ort: how engines on ONNX Runtime run: CUDA graphs, memory, logits reduced on the device.

        Raises:
            InvalidParameterError: an argument has an illegal type or value.
            PackageError: the directory is not a sound package.
            MissingDependencyError: the backend's library is not installed.
            DeviceError: a device is not available.
            EngineError: a backend failed to load a graph.
        """
        check_load_arguments(verify_checksums, num_threads, drafter, ort)
        package = load_package(
            path,
            device=device,
            draft_device=draft_device,
            verify_checksums=verify_checksums,
            num_threads=num_threads,
            load_draft=drafter not in ("ngram", "none"),
            ort=ort,
        )
        try:
            return cls.from_package(package, drafter=drafter, chat_template=chat_template)
        except BaseException:
            package.close()
            raise

    @classmethod
    def from_package(
        cls: type[_Decoder],
        package: LoadedPackage,
        *,
        drafter: DrafterName | Drafter = "auto",
        chat_template: str | None = None,
        owns: bool = True,
    ) -> _Decoder:
        """Wire the engines, tokenizer and chat template of a loaded package together.

        Args:
            package: its engines serve one decoder at a time.
            drafter, chat_template: as in `load`.
            owns: closing the decoder closes the package.
        """
        make: Any = cls
        decoder: _Decoder = make(
            package.target,
            package.draft,
            drafter=drafter,
            on_close=package.close if owns else lambda: None,
            **package_arguments(package, chat_template),
        )
        return decoder
