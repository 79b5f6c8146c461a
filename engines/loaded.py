"""A package whose engines are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from specdec.engines.engine import Engine
from specdec.engines.package.manifest import Manifest
from specdec.engines.package.reader import Package

__all__ = ["LoadedPackage"]


@dataclass(frozen=True, repr=False)
class LoadedPackage:
    """A package and its engines; close it, or use it in a `with`, to free them."""

    package: Package
    target: Engine
    draft: Engine | None
    """None when the package has no draft, or none was asked for."""
    draft_shares_cache: bool
    """The draft reads and writes the target's KV cache."""

    @property
    def path(self) -> Path:
        """The directory, with every link followed."""
        return self.package.path

    @property
    def manifest(self) -> Manifest:
        """The package's manifest."""
        return self.package.manifest

    @property
    def tokenizer_path(self) -> Path:
        """Path of the `tokenizer.json`."""
        return self.package.tokenizer_path

    @property
    def chat_template(self) -> str | None:
        """Text of the chat template (Jinja)."""
        return self.package.chat_template

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """Texts of further chat templates by name, such as `tool_use`."""
        return self.package.chat_templates

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts the chat template may name, such as `bos_token`."""
        return self.package.special_tokens

    def close(self) -> None:
        """Close the draft, then the target whose cache it may use. Idempotent."""
        try:
            if self.draft is not None:
                self.draft.close()
        finally:
            self.target.close()

    def __repr__(self) -> str:
        return f"<LoadedPackage: {str(self.path)!r}, {'target and' if self.draft else 'no'} draft>"

    def __enter__(self) -> LoadedPackage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
