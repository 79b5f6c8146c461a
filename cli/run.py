"""`specdec-run`: generate from a package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.common import EXIT_DONE, EXIT_INTERRUPTED, invoke
from specdec.cli.prompts import read_prompts, to_request
from specdec.cli.sampling_options import sampling_options, sampling_params

if TYPE_CHECKING:
    from specdec.runtime import SpeculativeDecoder

__all__ = ["command", "main"]

DRAFTERS = ("auto", "model", "ngram", "hybrid", "none")


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@click.command("specdec-run", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "package", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.argument("stdin", metavar="[-]", type=click.Choice(["-"]), required=False)
@click.option("--prompt", "prompts", metavar="TEXT", multiple=True, help="Repeatable.")
@click.option(
    "--prompt-file",
    "prompt_files",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    multiple=True,
    help="A prompt per file, without the line break at its end. Repeatable.",
)
@click.option("--chat", is_flag=True, help="Converse: a line of stdin is a turn.")
@click.option("--system", metavar="TEXT", help="The system message of the chat template.")
@click.option("--raw", is_flag=True, help="Send the text as it is, without the chat template.")
@click.option("--drafter", type=click.Choice(DRAFTERS), default="auto", show_default=True)
@click.option("--device", metavar="cpu|cuda:N", default="cpu", help="Of the target. [cpu]")
@click.option("--draft-device", metavar="cpu|cuda:N", help="Of the draft. [the target's]")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.")
@click.option("--no-checksums", is_flag=True, help="Load without hashing the package's files.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document per prompt and line.")
@click.option("--stats", "show_stats", is_flag=True, help="Figures on stderr.")
@sampling_options
def command(
    package: Path,
    stdin: str | None,
    prompts: Sequence[str],
    prompt_files: Sequence[str],
    chat: bool,
    system: str | None,
    raw: bool,
    as_json: bool,
    show_stats: bool,
    **options: Any,
) -> int:
    """Generate text from the package DIR; `-` reads one prompt from stdin.

    A prompt is sent as one user message through the package's chat template, if it has one.
    Default values in brackets.
    """
    if options["logprobs"] is not None and not as_json:
        raise click.UsageError("--logprobs has no place in plain text; add --json")
    if chat and (prompts or prompt_files or stdin or raw):
        raise click.UsageError("--chat reads its turns from stdin, through the chat template")
    texts = [] if chat else read_prompts(prompts, prompt_files, stdin is not None)
    params = sampling_params(options)

    from specdec.cli.answers import AnswerPrinter

    printer = AnswerPrinter(as_json, show_stats)
    with _load(package, options) as decoder:
        use_template = decoder.has_chat_template and not raw
        if not use_template and (chat or system is not None):
            option = "--chat" if chat else "--system"
            reason = "--raw turns it off" if raw else f"{package} has none"
            raise click.UsageError(f"{option} needs the chat template, and {reason}")
        if chat:
            from specdec.cli.chat import converse

            return converse(decoder, params, system, printer)
        for text in texts:
            if printer.play(decoder.stream(to_request(text, system, use_template), params)):
                return EXIT_INTERRUPTED
    return EXIT_DONE


def _load(package: Path, options: dict[str, Any]) -> SpeculativeDecoder:
    from specdec.runtime import SpeculativeDecoder

    return SpeculativeDecoder.load(
        package,
        device=options["device"],
        draft_device=options["draft_device"],
        verify_checksums=not options["no_checksums"],
        num_threads=options["threads"],
        drafter=options["drafter"],
    )
