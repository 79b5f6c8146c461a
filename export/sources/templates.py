"""The chat templates of a source, as a package holds them: a default and others by name.

Older models name several in `tokenizer_config.json`, newer ones have files: `chat_template.jinja`
and `additional_chat_templates/NAME.jinja`. transformers reads both into one text or a dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specdec.engines.storage.writing import write_file
from specdec.export.errors import SourceError

__all__ = ["SourceTemplates", "sort_templates", "write_templates"]

_DEFAULT = "chat_template.jinja"
_FOLDER = "additional_chat_templates"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class SourceTemplates:
    """The templates of one source."""

    default: str | None = None
    others: dict[str, str] = field(default_factory=dict)


def sort_templates(found: str | Mapping[str, str] | None, source: str) -> SourceTemplates:
    """Sort what transformers read; a byte order mark at the start of a template is no text.

    Raises:
        SourceError: a name could not be that of a file.
    """
    if found is None:
        return SourceTemplates()
    named = {"default": found} if isinstance(found, str) else dict(found)
    for name in named:
        if not _NAME.fullmatch(name) or name.endswith("."):
            raise SourceError(
                f"{source} has a chat template named {name!r}; allowed are letters, digits, "
                "'_', '-' and '.'; rename it in the source"
            )
    texts = {name: text.removeprefix("\ufeff") for name, text in named.items()}
    return SourceTemplates(texts.pop("default", None), texts)


def write_templates(
    default: str | None, others: Mapping[str, str], directory: Path
) -> tuple[str | None, dict[str, str]]:
    """Write the templates into a package directory.

    Returns:
        The path of the default, if any, and those of the others by name.
    """
    paths = {name: f"{_FOLDER}/{name}.jinja" for name in others}
    if others:
        (directory / _FOLDER).mkdir()
    for name, path in paths.items():
        write_file(directory / path, others[name])
    if default is None:
        return None, paths
    write_file(directory / _DEFAULT, default)
    return _DEFAULT, paths
