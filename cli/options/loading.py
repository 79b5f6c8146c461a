"""Where and how a package is loaded: the options every command that runs one shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.options.given import refuse_without_effect
from specdec.cli.options.table import SHARED, with_options

if TYPE_CHECKING:
    from specdec.engines.onnxruntime.options import OrtOptions

__all__ = [
    "check_drafting_options",
    "gpu_options",
    "load_options",
    "ort_options",
    "package_argument",
    "placement_names",
    "placement_options",
]

package_argument = click.argument(
    "package", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)

_GPU = ("engine", "cuda_graphs", "allow_operators", "gpu_memory", "allow_cpu_fallback")
_PLACEMENT = ("device", "draft_device", "num_threads")

gpu_options = with_options(*(SHARED[name] for name in _GPU))
"""Decorates a command with `engine` and the options of engines on a GPU."""

placement_names = (*_PLACEMENT, *_GPU)
"""Parameters that say where a package runs."""

placement_options = with_options(*(SHARED[name] for name in placement_names))
"""Decorates a command with `device`, `draft_device`, `num_threads`, and `gpu_options`."""

load_options = with_options(
    *(SHARED[name] for name in ("drafter", *_PLACEMENT, "load_cache", "no_checksums", *_GPU))
)
"""Decorates a command with `placement_options`, `drafter`, `load_cache` and `no_checksums`."""


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
        allow_operators=options["allow_operators"],
    )


def check_drafting_options(options: dict[str, Any], num_draft_tokens: int | str | None) -> None:
    """Refuse options about a draft model that this call does not run.

    Args:
        options: of `load_options`.
        num_draft_tokens: what the call asks for; None is the default.

    Raises:
        click.UsageError: one of them was given.
    """
    drafter = options["drafter"]
    if drafter in ("ngram", "none"):
        refuse_without_effect(
            f"with --drafter {drafter}, which runs no draft model", "draft_device"
        )
    if num_draft_tokens == 0:
        names = ("draft_device", *(("drafter",) if drafter in ("model", "hybrid") else ()))
        refuse_without_effect("with --num-draft-tokens 0, which is plain decoding", *names)
