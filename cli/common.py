"""What every command shares: exit codes, errors in one line, and where things are printed.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed with a one-line
reason, 2 wrong usage, 130 interrupted. A reader that went away (`| head`) ends a command
quietly with 0. `SPECDEC_DEBUG=1` shows the whole traceback of a failure.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import shell_complete

from specdec.cli.command import completion_variable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "EXIT_DONE",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "error_console",
    "fail",
    "invoke",
    "one_line",
]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
# InvalidParameterError, UnsupportedOptionError, ExportOptionError
_USAGE_CODES = frozenset({30, 31, 41})


def invoke(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; `arguments` default to the process's own."""
    if not _has_streams():
        return EXIT_FAILED
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = command.name or "specdec"
    variable = completion_variable(name)
    if variable in os.environ:  # a shell wants a word completed
        return shell_complete(command, {}, name, variable, os.environ[variable])
    try:
        # Not `command.main`: it has its own mind about Ctrl-C and closed pipes.
        with command.make_context(name, given) as context:
            code = int(command.invoke(context))
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_DONE
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        if os.environ.get("SPECDEC_DEBUG") == "1":
            raise
        return _explain(error)


def _has_streams() -> bool:
    """Tell whether there is a stdout to print to; a closed stderr is replaced by silence.

    Python gives None for a stream that was closed before the process began. The file descriptors
    of such streams are taken first, so that no other file is opened as number 0, 1 or 2.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return True
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open to the end)
    if sys.stdout is None:
        fail("stdout is closed, and there is nowhere to print to; redirect it, to a file say")
        return False
    return True


def error_console() -> Console:
    """Return a rich console on stderr; it honours NO_COLOR and drops styles in a pipe."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def fail(reason: str) -> None:
    """Print the reason of a failure on stderr."""
    click.echo(f"error: {one_line(reason)}", err=True)


def one_line(message: str) -> str:
    """Return a message with its line breaks and runs of spaces as single spaces."""
    return " ".join(message.split())


def _explain(error: BaseException) -> int:
    """Print the reason of a failure in one line; return the exit code."""
    from specdec.engines.errors import SpecdecError

    if isinstance(error, click.ClickException):
        fail(error.format_message())
        return EXIT_FAILED
    if isinstance(error, SpecdecError):
        fail(str(error))
        return EXIT_USAGE if error.code in _USAGE_CODES else EXIT_FAILED
    fail(f"{type(error).__name__}: {error} (SPECDEC_DEBUG=1 shows where)")
    return EXIT_FAILED


def _discard_stdout() -> None:
    """Let the flush at interpreter exit succeed although the reader of stdout is gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
