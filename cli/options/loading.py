"""Where and how a package is loaded: the options every command that runs one shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from specdec.engines.onnxruntime.options import OrtOptions

__all__ = ["DRAFTERS", "gpu_options", "load_options", "ort_options", "package_argument"]

DRAFTERS = ("auto", "model", "ngram", "hybrid", "none")

ENGINES = ("auto", "native", "onnxruntime")

_Function = TypeVar("_Function", bound=Callable[..., Any])

package_argument = click.argument(
    "package", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


def gpu_options(function: _Function) -> _Function:
    """Decorate a command with `engine`, `cuda_graphs`, `gpu_memory`, `allow_cpu_fallback`."""
    for option in (
        click.option(
            "--engine",
            type=click.Choice(ENGINES),
            default="auto",
            show_default=True,
            help="Of a CPU: native operators, plain ONNX Runtime, or the former where they run.",
        ),
        click.option(
            "--allow-cpu-fallback",
            is_flag=True,
            help="Run on a GPU even if it leaves matrix products to the CPU.",
        ),
        click.option(
            "--gpu-memory",
            metavar="GB",
            type=click.FloatRange(min=0.0, min_open=True),
            help="Limit of an engine's arena on the GPU; weights and KV cache lie outside it.",
        ),
        click.option("--cuda-graphs", is_flag=True, help="Replay short passes as CUDA graphs."),
    ):
        function = option(function)
    return function


def ort_options(options: dict[str, Any]) -> OrtOptions:
    """What `gpu_options` and, where a command has it, `--load-cache` were given."""
    from specdec.engines.onnxruntime.options import OrtOptions

    limit = options["gpu_memory"]
    return OrtOptions(
        engine=options["engine"],
        cuda_graphs=options["cuda_graphs"],
        gpu_memory_limit=None if limit is None else max(int(min(limit, 1e9) * 1e9), 1),
        allow_cpu_fallback=options["allow_cpu_fallback"],
        load_cache=options.get("load_cache"),
    )


def load_options(function: _Function) -> _Function:
    """Decorate a command with `drafter`, `device`, `draft_device`, `threads`, `no_checksums`.

    And with `gpu_options`.
    """
    for option in (
        gpu_options,
        click.option(
            "--no-checksums", is_flag=True, help="Load without hashing the package's files."
        ),
        click.option("--threads", type=click.IntRange(min=1), help="CPU threads."),
        click.option(
            "--load-cache",
            metavar="DIR",
            type=click.Path(file_okay=False, path_type=Path),
            help="Keep what loading makes of the graphs here: later loads are faster.",
        ),
        click.option("--draft-device", metavar="cpu|cuda:N", help="Of the draft. [the target's]"),
        click.option("--device", metavar="cpu|cuda:N", default="cpu", help="Of the target. [cpu]"),
        click.option("--drafter", type=click.Choice(DRAFTERS), default="auto", show_default=True),
    ):
        function = option(function)
    return function
