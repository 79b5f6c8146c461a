"""The manifest of a package, `specdec.json`: what the directory holds and how to run it.

The manifest is the only file trusted to name others: every other file of the package is
listed in it with its size and SHA-256, and whatever is not listed is never opened.
`docs/packages.md` describes the format field by field.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specdec.engines.errors import OutputError, PackageError, PackageVersionError
from specdec.engines.package.agreement import check_pair, check_token_ids
from specdec.engines.package.defaults import GenerationEntry
from specdec.engines.package.entries import EngineEntry, FileEntry, TokenizerEntry
from specdec.engines.package.fields import FieldError, path_problem, read_object, read_record
from specdec.engines.package.files import MANIFEST_NAME, hash_file, inventory
from specdec.engines.package.strict_json import parse_object, shown
from specdec.engines.storage.writing import write_file

__all__ = [
    "MANIFEST_NAME",
    "SCHEMA_VERSION",
    "EngineEntry",
    "FileEntry",
    "GenerationEntry",
    "Manifest",
    "TokenizerEntry",
    "hash_file",
    "inventory",
    "write_manifest",
]

SCHEMA_VERSION = 2
"""The newest schema version this release writes and reads; 2 came with native graphs, named chat
templates and generation defaults."""
_PLAIN_VERSION = 1
"""Of a package without any of these, which releases before version 2 read as well."""
_SINCE_2 = (
    ("generation",),
    ("tokenizer", "chat_templates"),
    ("engines", "target", "native"),
    ("engines", "draft", "native"),
)

@dataclass(frozen=True)
class Manifest:
    """A whole `specdec.json`, valid once it exists.

    `files` maps the path of every file of the package but the manifest to its entry; `source`,
    `checks` and `costs` are free-form JSON objects that this layer does not interpret.

    Raises:
        PackageError: a path in `files` leaves the package or two name one file; an engine or
            the tokenizer names a file that is not listed; target and draft disagree on what
            they must share; a special id is outside the vocabulary.
    """

    target: EngineEntry
    draft: EngineEntry | None
    tokenizer: TokenizerEntry
    files: Mapping[str, FileEntry]
    specdec_version: str
    source: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Any] = field(default_factory=dict)
    generation: GenerationEntry = field(default_factory=GenerationEntry)
    """The model's own defaults."""

    def __post_init__(self) -> None:
        _check_file_names(self.files)
        _check_listed(self)
        check_pair(self.target, self.draft)
        check_token_ids(self.tokenizer, self.generation, self.target.vocab_size)

    @classmethod
    def from_json(cls, document: str) -> Manifest:
        """Read a manifest.

        Raises:
            PackageVersionError: written with another schema version.
            PackageError: not JSON, or a field is missing, unknown, of the wrong type or out of
                range; the message gives its JSON path.
        """
        tree = parse_object(document)
        _check_version(tree)
        required = ["schema_version", "specdec_version", "engines", "tokenizer", "files"]
        free = ["source", "checks", "costs"]
        read_object(tree, "manifest", [*required, *free[:2]], [*free, "generation"])
        version = tree["specdec_version"]
        if not isinstance(version, str) or not version:
            raise FieldError("specdec_version", shown(version), "a non-empty string")
        engines = read_object(tree["engines"], "engines", ["target"], ["draft"])
        draft = engines.get("draft")
        files = tree["files"]
        if not isinstance(files, dict):
            raise FieldError("files", shown(files), "an object")
        return cls(
            target=read_record(EngineEntry, engines["target"], "engines.target"),
            draft=None if draft is None else read_record(EngineEntry, draft, "engines.draft"),
            tokenizer=read_record(TokenizerEntry, tree["tokenizer"], "tokenizer"),
            files={
                name: read_record(FileEntry, entry, f"files[{shown(name)}]")
                for name, entry in files.items()
            },
            specdec_version=version,
            generation=read_record(GenerationEntry, tree.get("generation", {}), "generation"),
            **{name: _free_form(tree, name) for name in free},
        )

    def to_json(self) -> str:
        """Write the manifest: fields in the order of the format, files sorted, final newline.

        The schema version is the oldest that has every field in use, so that older releases
        read what they can.

        Raises:
            PackageError: a free-form section holds what JSON cannot, such as NaN or an array.
        """
        tree: dict[str, Any] = {
            "schema_version": _PLAIN_VERSION,
            "specdec_version": self.specdec_version,
            "engines": {
                "target": _engine_tree(self.target),
                "draft": None if self.draft is None else _engine_tree(self.draft),
            },
            "tokenizer": asdict(self.tokenizer),
            "generation": asdict(self.generation),
            "files": {name: asdict(self.files[name]) for name in sorted(self.files)},
            "source": self.source,
            "checks": self.checks,
            "costs": self.costs,
        }
        if not self.tokenizer.chat_templates:
            del tree["tokenizer"]["chat_templates"]
        if self.generation.is_empty:
            del tree["generation"]
        if any(_has(tree, path) for path in _SINCE_2):
            tree["schema_version"] = 2
        try:
            return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise PackageError(
                f"source, checks or costs cannot be written as JSON ({error}); "
                "allowed are objects, arrays, text, finite numbers, true, false and null"
            ) from error


def write_manifest(directory: Path, manifest: Manifest) -> Path:
    """Write `specdec.json` into `directory` in one step, and return its path.

    The text is read back first: what would not load is never written.

    Raises:
        PackageError: the manifest would not load again, or the file cannot be written.
    """
    document = manifest.to_json()
    Manifest.from_json(document)
    path = directory / MANIFEST_NAME
    try:
        write_file(path, document)
    except OutputError as error:
        raise PackageError(str(error)) from error
    return path


def _engine_tree(entry: EngineEntry) -> dict[str, Any]:
    """An entry as JSON-ready data, without the records that it does not use."""
    tree = asdict(entry)
    for name in ("tensorrt", "native"):
        if tree[name] is None:
            del tree[name]
    return tree


def _check_version(tree: dict[str, Any]) -> None:
    got = tree.get("schema_version", "missing")
    if type(got) is not int:
        allowed = f"an integer, {_PLAIN_VERSION} or {SCHEMA_VERSION}"
        raise FieldError("schema_version", shown(got), allowed)
    if not _PLAIN_VERSION <= got <= SCHEMA_VERSION:
        advice = "upgrade specdec" if got > SCHEMA_VERSION else "export the package again"
        raise PackageVersionError(
            f"specdec.json has schema_version {got}; this release reads {_PLAIN_VERSION} and "
            f"{SCHEMA_VERSION}; {advice}"
        )
    for path in _SINCE_2 if got < 2 else ():
        if _has(tree, path):
            raise FieldError(
                ".".join(path), "present", f"no such field before version {SCHEMA_VERSION}"
            )


def _has(tree: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a manifest's tree has a field."""
    inner: Any = tree
    for name in path:
        if not isinstance(inner, dict) or name not in inner:
            return False
        inner = inner[name]
    return True


def _free_form(tree: dict[str, Any], name: str) -> dict[str, Any]:
    value = tree.get(name, {})
    if not isinstance(value, dict):
        raise FieldError(name, shown(value), "an object")
    return value


def _check_file_names(files: Mapping[str, FileEntry]) -> None:
    seen: dict[str, str] = {}
    for name in files:
        problem = path_problem(name)
        if problem is not None:
            raise FieldError(
                f"files[{shown(name)}]",
                f"no path of a package ({problem})",
                "a relative path that stays inside it",
            )
        same = unicodedata.normalize("NFC", name).casefold()
        if same == MANIFEST_NAME:
            raise FieldError("files", f"listing {shown(name)}", "every file but the manifest")
        if same in seen:
            raise FieldError(
                "files",
                f"listing {shown(seen[same])} and {shown(name)}",
                "names that differ in more than case, so that every file system holds both",
            )
        seen[same] = name


def _check_listed(manifest: Manifest) -> None:
    named = {
        **_graphs("target", manifest.target),
        **_graphs("draft", manifest.draft),
        "tokenizer.file": manifest.tokenizer.file,
        "tokenizer.chat_template": manifest.tokenizer.chat_template,
    }
    named |= {
        f"tokenizer.chat_templates[{shown(name)}]": path
        for name, path in manifest.tokenizer.chat_templates.items()
    }
    for where, name in named.items():
        if name is not None and name not in manifest.files:
            raise FieldError(where, shown(name), "a file listed in files")


def _graphs(name: str, entry: EngineEntry | None) -> dict[str, str | None]:
    """The graphs that an entry names, by their place in the manifest."""
    if entry is None:
        return {}
    native = None if entry.native is None else entry.native.graph
    return {f"engines.{name}.graph": entry.graph, f"engines.{name}.native.graph": native}
