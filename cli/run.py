"""`specdec-run`: generate from a package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.command import specdec_command
from specdec.cli.common import EXIT_DONE, EXIT_INTERRUPTED, invoke
from specdec.cli.options.loading import (
    check_drafting_options,
    load_options,
    ort_options,
    package_argument,
)
from specdec.cli.options.model_defaults import model_defaults_option, over_defaults
from specdec.cli.options.prompts import (
    read_prompts,
    read_tools,
    template_options,
    to_request,
)
from specdec.cli.options.sampling import sampling_options, sampling_params
from specdec.cli.options.table import SHARED, with_options

if TYPE_CHECKING:
    from specdec.runtime import SpeculativeDecoder

__all__ = ["command", "main"]


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@specdec_command("specdec-run")
@package_argument
@click.argument("stdin", metavar="[-]", type=click.Choice(["-"]), required=False)
@with_options(SHARED["prompt"], SHARED["prompt_file"])
@click.option("--chat", is_flag=True, help="Converse: a line of stdin is a turn.")
@click.option("--system", metavar="TEXT", help="The system message of the chat template.")
@click.option("--raw", is_flag=True, help="Send the text as it is, without the chat template.")
@click.option(
    "--tools",
    "tools_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON list of tools for the chat template.",
)
@template_options
@load_options
@with_options(SHARED["json"].but(help="One JSON document per prompt and line."))
@click.option("--stats", "show_stats", is_flag=True, help="Figures on stderr.")
@model_defaults_option
@sampling_options
def command(
    package: Path,
    stdin: str | None,
    prompts: Sequence[str],
    prompt_files: Sequence[str],
    chat: bool,
    system: str | None,
    raw: bool,
    tools_file: Path | None,
    as_json: bool,
    show_stats: bool,
    model_defaults: bool,
    template_args: Sequence[tuple[str, Any]],
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
    texts = (
        []
        if chat
        else read_prompts(
            prompts,
            prompt_files,
            stdin is not None,
            package=package,
            truncates=options["truncate_prompt"] is not None,
        )
    )
    tools = None if tools_file is None else read_tools(tools_file)
    params = sampling_params(options)
    check_drafting_options(options, params.num_draft_tokens)

    from specdec.cli.views.answers import AnswerPrinter

    printer = AnswerPrinter(as_json, show_stats, total=len(texts))
    with _load(package, options) as decoder:
        use_template = decoder.has_chat_template and not raw
        needs = [
            ("--chat", chat),
            ("--system", system is not None),
            ("--tools", tools is not None),
            ("--template-arg", bool(template_args)),
            ("--chat-template", options["chat_template"] is not None),
        ]
        option = next((name for name, given in needs if given), None)
        if not use_template and option:
            reason = "--raw turns it off" if raw else f"{package} has none"
            raise click.UsageError(f"{option} needs the chat template, and {reason}")
        if model_defaults:
            params = over_defaults(decoder.defaults, params)
        arguments = dict(template_args) or None
        if chat:
            from specdec.cli.chat import converse

            return converse(decoder, params, system, tools, arguments, printer)
        for text in texts:
            request = to_request(text, system, use_template)
            if printer.play(
                decoder.stream(request, params, tools=tools, chat_template_kwargs=arguments)
            ):
                return EXIT_INTERRUPTED
    return EXIT_DONE


def _load(package: Path, options: dict[str, Any]) -> SpeculativeDecoder:
    from specdec.runtime import SpeculativeDecoder

    return SpeculativeDecoder.load(
        package,
        device=options["device"],
        draft_device=options["draft_device"],
        verify_checksums=not options["no_checksums"],
        num_threads=options["num_threads"],
        drafter=options["drafter"],
        chat_template=options["chat_template"],
        ort=ort_options(options),
    )
