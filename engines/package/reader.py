"""Read a package directory and verify it against its manifest, without building an engine.

Cheap checks come first: schema, paths, sizes and external data always, then (unless told not
to) the checksums, which read every byte. Files that the manifest does not list are never
opened, whatever else the directory holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdec.engines.errors import PackageError, PackageIntegrityError
from specdec.engines.package.external_data import check_external_data
from specdec.engines.package.files import (
    MANIFEST_NAME,
    hash_files,
    open_regular,
    resolve_inside,
    unreadable,
)
from specdec.engines.package.manifest import Manifest
from specdec.engines.storage.writing import left_behind

__all__ = ["Package", "read_package"]

_MAX_MANIFEST = 8 << 20
_MAX_TEMPLATE = 1 << 20
_COPY = "copy the package again"


@dataclass(frozen=True)
class Package:
    """A verified package directory; no engine is built."""

    path: Path
    """The directory, with every link followed."""
    manifest: Manifest
    files: Mapping[str, Path]
    """Every listed name, and where it is with every link followed."""
    chat_template: str | None
    """Text of the chat template (Jinja)."""
    chat_templates: Mapping[str, str]
    """Texts of further chat templates by name, such as `tool_use`."""
    is_hashed: bool = False
    """Every file was compared with its checksum."""

    @property
    def target_graph(self) -> Path:
        """Path of the target's graph."""
        return self.files[self.manifest.target.graph]

    @property
    def draft_graph(self) -> Path | None:
        """Path of the draft's graph, None without a draft."""
        draft = self.manifest.draft
        return None if draft is None else self.files[draft.graph]

    @property
    def tokenizer_path(self) -> Path:
        """Path of the `tokenizer.json`."""
        return self.files[self.manifest.tokenizer.file]

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts the chat template may name, such as `bos_token`."""
        return self.manifest.tokenizer.special_tokens


def read_package(path: str | os.PathLike[str], verify_checksums: bool = True) -> Package:
    """Read a package directory and verify it.

    Schema, paths, sizes and external data are always verified; `verify_checksums` adds the
    SHA-256 of every listed file, which reads them all. Unlisted files are never opened.

    Raises:
        PackageVersionError: written with a schema version this release does not read.
        PackageIntegrityError: a file is missing, has another size, or fails its checksum.
        PackageError: there is no package at `path`, or it is malformed or unsafe.
    """
    if not isinstance(verify_checksums, bool):
        raise PackageError(f"verify_checksums is {verify_checksums!r}; allowed is True or False")
    root = _resolve_root(path)
    manifest = _read_manifest(root)
    files = {name: _resolve_file(root, name, manifest) for name in manifest.files}
    listed = {Path(os.path.realpath(path)) for path in files.values()}
    for entry in filter(None, (manifest.target, manifest.draft)):
        if entry.backend.startswith("onnxruntime"):
            check_external_data(files[entry.graph], listed)
        if entry.native is not None:
            check_external_data(files[entry.native.graph], listed)
    if verify_checksums:
        _verify_checksums(files, manifest)
    template = manifest.tokenizer.chat_template
    text = None if template is None else _read_text(files[template], _MAX_TEMPLATE)
    others = manifest.tokenizer.chat_templates.items()
    texts = {name: _read_text(files[path], _MAX_TEMPLATE) for name, path in others}
    return Package(root, manifest, files, text, texts, verify_checksums)


def _resolve_root(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise PackageError(f"the package is {path!r}; allowed is the path of its directory")
    given = Path(path)
    try:
        root = Path(os.path.realpath(given, strict=True))
    except FileNotFoundError:
        left = left_behind(given, "replaced")
        if left:
            raise PackageError(
                f"{given} does not exist: an export that was to replace it was cut off, and what "
                f"it held is in {left[0]}; rename that, or run the export again"
            ) from None
        raise PackageError(
            f"{given} does not exist; allowed is a package directory; make one with specdec-export"
        ) from None
    except (OSError, ValueError) as error:
        raise PackageError(f"{given} cannot be read ({error}); check the path") from error
    if not root.is_dir():
        raise PackageError(
            f"{given} is not a directory; allowed is a package directory, "
            f"the one that holds {MANIFEST_NAME}"
        )
    return root


def _read_manifest(root: Path) -> Manifest:
    try:
        path = resolve_inside(root, MANIFEST_NAME)
    except PackageIntegrityError:
        raise PackageError(
            f"{root} holds no {MANIFEST_NAME}; is it a specdec package? "
            "run specdec-export to make one"
        ) from None
    return Manifest.from_json(_read_text(path, _MAX_MANIFEST))


def _read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file of at most `limit` bytes."""
    try:
        with open_regular(path) as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > limit:
        raise PackageError(f"{path} is larger than {limit} bytes; allowed are {limit}; {_COPY}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PackageError(f"{path} is not UTF-8 (at byte {error.start}); {_COPY}") from error


def _resolve_file(root: Path, name: str, manifest: Manifest) -> Path:
    path = resolve_inside(root, name)
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise PackageError(f"{path} is not a regular file; allowed are regular files; {_COPY}")
    listed = manifest.files[name].size
    if status.st_size != listed:
        raise PackageIntegrityError(
            f"{path} has {status.st_size} bytes; {MANIFEST_NAME} lists {listed}; {_COPY}"
        )
    return path


def _verify_checksums(files: Mapping[str, Path], manifest: Manifest) -> None:
    names = sorted(files)
    for name, found in zip(names, hash_files(files[name] for name in names), strict=True):
        listed = manifest.files[name]
        if found != listed:
            raise PackageIntegrityError(
                f"{files[name]} was altered: its SHA-256 is {found.sha256[:12]}..., "
                f"{MANIFEST_NAME} lists {listed.sha256[:12]}...; {_COPY}"
            )
