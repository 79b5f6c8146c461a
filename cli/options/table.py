"""Declares options as rows of a table, so that several commands share one wording of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["DRAFTERS", "SHARED", "Row", "row", "with_options"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Row:
    """One option: its flags and click's attributes."""

    flags: tuple[str, ...]
    attributes: dict[str, Any]

    def but(self, **changes: Any) -> Row:
        """The same option with other attributes, such as another `help`."""
        return Row(self.flags, {**self.attributes, **changes})


def row(*flags: str, **attributes: Any) -> Row:
    """Declare an option; arguments as `click.option`."""
    return Row(flags, attributes)


def with_options(*rows: Row) -> Callable[[_Function], _Function]:
    """Decorate a command with options, which `--help` lists in this order."""

    def decorate(function: _Function) -> _Function:
        for item in reversed(rows):
            function = click.option(*item.flags, **item.attributes)(function)
        return function

    return decorate


ENGINES = ("auto", "native", "onnxruntime")
DRAFTERS = ("auto", "model", "ngram", "hybrid", "none")

SHARED = {
    "device": row("--device", metavar="cpu|cuda:N", default="cpu", help="Of the target. [cpu]"),
    "draft_device": row(
        "--draft-device", metavar="cpu|cuda:N", help="Of the draft. [the target's]"
    ),
    "num_threads": row(
        "--num-threads", type=click.IntRange(min=1), help="CPU threads of each engine."
    ),
    "no_checksums": row(
        "--no-checksums", is_flag=True, help="Load without hashing the package's files."
    ),
    "load_cache": row(
        "--load-cache",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Keep what loading makes of the graphs here: later loads are faster.",
    ),
    "drafter": row(
        "--drafter",
        type=click.Choice(DRAFTERS),
        default="auto",
        show_default=True,
        help="Who drafts: the draft model, a look-up in the text so far, or both.",
    ),
    "engine": row(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="Of a CPU: native operators, plain ONNX Runtime, or the former where they run.",
    ),
    "cuda_graphs": row("--cuda-graphs", is_flag=True, help="Replay short passes as CUDA graphs."),
    "gpu_memory": row(
        "--gpu-memory",
        metavar="GB",
        type=click.FloatRange(min=0.0, min_open=True),
        help="Limit of an engine's arena on the GPU; weights and KV cache lie outside it.",
    ),
    "allow_operators": row(
        "--allow-operator",
        "allow_operators",
        metavar="NAME",
        multiple=True,
        help="Load graphs that hold this operator although no export writes it. Repeatable.",
    ),
    "allow_cpu_fallback": row(
        "--allow-cpu-fallback",
        is_flag=True,
        help="Run on a GPU even if it leaves matrix products to the CPU.",
    ),
    "prompt": row("--prompt", "prompts", metavar="TEXT", multiple=True, help="Repeatable."),
    "prompt_file": row(
        "--prompt-file",
        "prompt_files",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        multiple=True,
        help="A prompt per file, without the line break at its end. Repeatable.",
    ),
    "json": row("--json", "as_json", is_flag=True, help="One JSON document."),
}
"""Options of more than one command, by name."""
