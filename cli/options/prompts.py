"""Where prompts come from, and what is sent for each."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = [
    "MAX_BYTES",
    "Request",
    "read_file",
    "read_prompts",
    "read_tools",
    "template_options",
    "to_request",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

MAX_BYTES = 64 << 20
"""Most that is read of any file of the user's."""
_BYTES_PER_TOKEN = 1024
"""More than any token of a text; the longest are runs of spaces."""
Request = str | list[dict[str, str]]
"""Text as it is, or the messages of a chat."""


def read_prompts(
    texts: Sequence[str],
    files: Sequence[str],
    stdin: bool,
    *,
    package: Path | None = None,
    truncates: bool = False,
) -> list[str]:
    """Return the prompts: those of the command line, then one per file, then stdin as one.

    A file (`-` is stdin) is UTF-8; a byte order mark and the line break that ends it are not
    part of the prompt.

    Args:
        package: whose context bounds what is read of a file; None bounds it by `MAX_BYTES`.
        truncates: prompts are cut to the context, so a file may be longer, up to `MAX_BYTES`.

    Raises:
        click.UsageError: no prompt, an empty one, one that is too large, or not UTF-8.
        PackageError: there is a file to read, and `package` cannot be read.
    """
    prompts = [(text, "--prompt") for text in texts]
    if files or stdin:
        length = None if truncates or package is None else _context(package)
        prompts += [(_read(name, length), name) for name in files]
        if stdin:
            prompts.append((_read("-", length), "stdin"))
    if not prompts:
        raise click.UsageError("no prompt; give --prompt TEXT, --prompt-file FILE, or - for stdin")
    for text, origin in prompts:
        if not text:
            raise click.UsageError(f"the prompt of {origin} is empty")
        if not _is_unicode(text):
            raise click.UsageError(f"the prompt of {origin} is not UTF-8")
    return [text for text, _ in prompts]


def read_tools(path: Path) -> list[dict[str, Any]]:
    """Return the tools of a file: a JSON list of objects, passed to the chat template as it is.

    Raises:
        click.UsageError: the file holds anything else.
    """
    try:
        tools = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--tools {path} is not JSON: {error}") from None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise click.UsageError(f"--tools {path} is not a list of objects, one for each tool")
    return tools


def read_file(path: Path) -> bytes:
    """Return what a file of the user's holds, at most `MAX_BYTES`.

    Raises:
        click.UsageError: it is larger.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise click.UsageError(f"{path} is larger than {MAX_BYTES} bytes; allowed are that many")
    return data


def template_options(function: _Function) -> _Function:
    """Decorate a command with `chat_template` and `template_args`."""
    for option in (
        click.option(
            "--template-arg",
            "template_args",
            metavar="NAME=JSON",
            type=_template_arg,
            multiple=True,
            help="A variable of the chat template, such as enable_thinking=false. Repeatable.",
        ),
        click.option(
            "--chat-template",
            metavar="NAME",
            help="Which of the package's chat templates. [tool_use with --tools, else default]",
        ),
    ):
        function = option(function)
    return function


def _template_arg(value: str) -> tuple[str, Any]:
    """Parse NAME=JSON."""
    name, equals, text = value.partition("=")
    try:
        if not equals or not name.isidentifier():
            raise ValueError
        return name, json.loads(text)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not NAME=JSON, such as enable_thinking=false or mode='\"brief\"'"
        ) from None


def to_request(prompt: str, system: str | None, use_template: bool) -> Request:
    """Return the prompt as a user message, after the system message if any, or as it is."""
    if not use_template:
        return prompt
    messages = [{"role": "system", "content": system}] if system is not None else []
    return [*messages, {"role": "user", "content": prompt}]


def _context(package: Path) -> int:
    """Tokens of a package's context, by its manifest."""
    from specdec.engines.load import read_package

    return read_package(package, verify_checksums=False).manifest.target.max_length


def _read(name: str, length: int | None) -> str:
    most = MAX_BYTES if length is None else min(MAX_BYTES, length * _BYTES_PER_TOKEN)
    if name == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed; give --prompt TEXT or --prompt-file FILE")
        data = sys.stdin.buffer.read(most + 1)
    else:
        with Path(name).open("rb") as stream:
            data = stream.read(most + 1)
    if len(data) > most:
        reason = "" if length is None else f", more than a context of {length} tokens holds"
        origin = "stdin" if name == "-" else name
        raise click.UsageError(
            f"the prompt of {origin} is larger than {most} bytes{reason}; shorten it"
        )
    data = data.removeprefix(codecs.BOM_UTF8)  # a mark of the file, not of its text
    # What is not UTF-8 becomes lone surrogates, as in arguments: one check finds both.
    text = data.decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").removesuffix("\r")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
