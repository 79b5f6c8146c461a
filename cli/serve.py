"""`specdec-serve`: one package behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from specdec.cli.command import specdec_command
from specdec.cli.common import EXIT_DONE, invoke
from specdec.cli.options.loading import (
    check_drafting_options,
    load_options,
    ort_options,
    package_argument,
)

__all__ = ["command", "main"]


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@specdec_command("specdec-serve")
@package_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="0 takes a free one.",
)
@click.option("--model-name", metavar="NAME", help="Name of the model. [the directory's]")
@click.option(
    "--slots", type=click.IntRange(1, 256), default=4, show_default=True, help="Requests at once."
)
@click.option(
    "--queue", type=click.IntRange(0), default=256, show_default=True, help="Requests that wait."
)
@click.option(
    "--prefill-chunk",
    type=click.IntRange(1, 4096),
    default=128,
    show_default=True,
    help="Tokens of a prompt in one pass, for which the others wait.",
)
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="One key a line; requests must send one.",
)
@click.option(
    "--max-body",
    type=click.IntRange(1000),
    default=2_000_000,
    show_default=True,
    help="Bytes of a request.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Longest time of a request, waiting included.",
)
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="URL",
    help="Origin whose pages may call the server. Repeatable.",
)
@load_options
def command(
    package: Path,
    host: str,
    port: int,
    model_name: str | None,
    slots: int,
    queue: int,
    prefill_chunk: int,
    api_key_file: Path | None,
    max_body: int,
    max_seconds: float,
    cors_origins: Sequence[str],
    **options: Any,
) -> int:
    """Serve the package DIR with OpenAI's API under /v1, and a page to try it under /."""
    from specdec.runtime.errors import MissingDependencyError

    check_drafting_options(options, None)
    try:
        from specdec.cli.serving import serve
        from specdec.runtime.serving.batch_decoder import BatchDecoder
        from specdec.runtime.serving.http.settings import ServerSettings, read_keys
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("specdec"):
            raise
        raise MissingDependencyError(
            f"serving needs {error.name}, which is not installed; run: pip install {error.name}"
        ) from error
    settings = ServerSettings(
        model=model_name or package.resolve().name,
        api_keys=frozenset() if api_key_file is None else read_keys(api_key_file),
        max_body_bytes=max_body,
        max_seconds=max_seconds,
        cors_origins=tuple(cors_origins),
    )
    decoder = BatchDecoder.load(
        package,
        num_slots=slots,
        device=options["device"],
        draft_device=options["draft_device"],
        verify_checksums=not options["no_checksums"],
        num_threads=options["num_threads"],
        drafter=options["drafter"],
        ort=ort_options(options),
        max_queue=queue,
        prefill_chunk=prefill_chunk,
    )
    try:
        serve(decoder, settings, host, port)
    finally:
        decoder.close()
    return EXIT_DONE
