"""What every worker of a peer speaks: JSON lines over its standard streams.

A worker is one script, run by the peer's own interpreter in one of two ways:

    worker.py prepare SETTINGS   write the weights in the peer's format, once
    worker.py serve SETTINGS     load what is asked for, keep it, answer timed requests

SETTINGS is a JSON object: "weights" (a folder with `hf/` and `f16.gguf`), "models" (the
peer's own folder), "threads" (CPU threads). Only the standard library is used here: this file
runs in every peer's environment.

    {"op": "load", "model": M}       -> {"versions": {package: version}}
    {"op": "generate", "model": M, "prompt": [ids], "max_new_tokens": n, "temperature": T,
     "seed": s, "num_draft_tokens": K}
                                     -> {"token_ids": [ids], "seconds": wall time}
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

__all__ = ["END_TOKEN", "Generate", "Request", "Settings", "installed", "run", "written_once"]

END_TOKEN = 2
"""`<|im_end|>` of the demo model: every peer stops there, and counts it."""


@dataclass(frozen=True)
class Settings:
    """Where things lie, and how many CPU threads a model may use."""

    weights: Path
    models: Path
    threads: int


@dataclass(frozen=True)
class Request:
    """One generation; temperature 0 is greedy, K = 0 is plain decoding."""

    prompt: list[int]
    max_new_tokens: int
    temperature: float
    seed: int
    num_draft_tokens: int | Literal["auto"]


Generate = Callable[[Request], Sequence[int]]
"""New token ids of a request, an end token included."""


def run(
    prepare: Callable[[Settings], None],
    load: Callable[[Settings, str], Generate],
    packages: Sequence[str],
) -> None:
    """Be the worker that the command line asks for.

    Args:
        prepare: writes the models.
        load: loads the model of a name and returns what generates with it.
        packages: whose versions are reported.
    """
    mode, text = sys.argv[1:]
    given = json.loads(text)
    settings = Settings(Path(given["weights"]), Path(given["models"]), given["threads"])
    if mode == "prepare":
        settings.models.mkdir(parents=True, exist_ok=True)
        prepare(settings)
        return
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not end up between the answers
    loaded: dict[str, Generate] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _answer(request, loaded, lambda name: load(settings, name), packages)
        except Exception as error:  # a peer may raise anything; the driver goes on without it
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


def written_once(path: Path, write: Callable[[Path], None]) -> None:
    """Make `path` with `write`, unless it is there; a write that is stopped leaves nothing."""
    if path.exists():
        return
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    write(partial)
    partial.rename(path)


def installed(packages: Sequence[str]) -> dict[str, str]:
    """Versions of those of the packages that are installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _answer(
    request: Mapping[str, Any],
    loaded: dict[str, Generate],
    load: Callable[[str], Generate],
    packages: Sequence[str],
) -> dict[str, Any]:
    name = request["model"]
    if request["op"] == "load":
        loaded[name] = load(name)
        return {"versions": installed(packages)}
    wanted = Request(
        prompt=request["prompt"],
        max_new_tokens=request["max_new_tokens"],
        temperature=request["temperature"],
        seed=request["seed"],
        num_draft_tokens=request["num_draft_tokens"],
    )
    started = perf_counter()
    token_ids = loaded[name](wanted)
    seconds = perf_counter() - started
    return {"token_ids": [int(token) for token in token_ids], "seconds": seconds}
