"""`specdec-bench`: how fast a package generates, with and without its draft."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.command import specdec_command
from specdec.cli.common import EXIT_DONE, error_console, invoke
from specdec.cli.options import lists
from specdec.cli.options.given import check_effect, refuse_without_effect
from specdec.cli.options.loading import check_drafting_options, ort_options, placement_names
from specdec.cli.options.prompts import read_file, read_prompts
from specdec.cli.options.sampling import LAW
from specdec.cli.options.table import DRAFTERS, SHARED, row, with_options

if TYPE_CHECKING:
    from specdec.runtime.report.bench.contents import BenchReport
    from specdec.runtime.report.drawing.tables import Table

__all__ = ["command", "main"]

CATEGORIES = ("chat", "code", "summarising", "translation", "maths", "copying")


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@specdec_command("specdec-bench")
@click.argument(
    "packages",
    metavar="[DIR]...",
    nargs=-1,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@with_options(
    SHARED["prompt"].but(help="Repeatable. [our own]"),
    SHARED["prompt_file"],
    row(
        "--category",
        "categories",
        type=click.Choice(CATEGORIES),
        multiple=True,
        help="Of our own prompts. Repeatable. [one of each]",
    ),
    row(
        "--num-draft-tokens",
        "draft_tokens",
        metavar="LIST",
        type=lists.draft_tokens,
        default="4,auto",
        show_default=True,
        help="Each against plain decoding.",
    ),
    row("--num-threads", metavar="LIST", type=lists.threads, help="CPU threads of each engine."),
    row(
        "--context",
        "contexts",
        metavar="LIST",
        type=lists.contexts,
        help="Fill prompts up to so many tokens.",
    ),
    row("--max-new-tokens", type=click.IntRange(min=2), default=64, show_default=True),
    row("--repeats", type=click.IntRange(min=1), default=3, show_default=True),
    *(LAW[name] for name in ("temperature", "top_k", "top_p", "verify")),
    row("--ignore-eos", is_flag=True, help="Always generate --max-new-tokens."),
    SHARED["drafter"].but(type=click.Choice(DRAFTERS[:-1])),
    *(SHARED[name] for name in placement_names if name != "num_threads"),
    row(
        "--simulate-acceptance",
        "acceptances",
        metavar="LIST",
        type=lists.acceptances,
        help="Force this share of drafted tokens to be accepted: what would such a draft bring?",
    ),
    row(
        "--simulate-target",
        metavar="SIZE",
        help="Use a model of this size with random weights, such as 1.5B, instead of a package. "
        "Needs the export extra.",
    ),
    row("--simulate-draft", metavar="SIZE|self", default="self", help="Its draft. [self]"),
    row("--draft-precision", default="int8", show_default=True, help="Of the simulated draft."),
    SHARED["json"].but(help="One JSON document, of the schema docs/bench.schema.json."),
    row(
        "--out",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the JSON document there too.",
    ),
    row(
        "--compare",
        nargs=2,
        metavar="A B",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Set two such documents side by side, and measure nothing.",
    ),
)
def command(
    packages: Sequence[Path],
    compare: tuple[Path, Path] | None,
    as_json: bool,
    out: Path | None,
    **options: Any,
) -> int:
    """Benchmark the packages DIR: each drafted run against plain decoding, in turn."""
    if compare is not None:
        if packages or options["simulate_target"]:
            raise click.UsageError("--compare measures nothing; leave the packages out")
        refuse_without_effect("with --compare, which measures nothing", "as_json", "out", *options)
        return _compare(*compare)
    if bool(packages) == bool(options["simulate_target"]):
        raise click.UsageError("give a package directory, or --simulate-target SIZE")
    _check_effects(options)
    from specdec.engines.storage.writing import check_output, write_file

    if out is not None:
        check_output(out)
    texts = _texts(options)
    with _sources(packages, options) as directories:
        report = _measure(directories, texts, options)
    from specdec.runtime.report.records import to_data

    document = json.dumps(to_data(report), ensure_ascii=False, allow_nan=False)
    if out is not None:
        write_file(out, document + "\n")
    if as_json:
        click.echo(document)
    else:
        from specdec.runtime.report.bench.tables import bench_tables

        _print(bench_tables(report))
    return EXIT_DONE


def _check_effects(options: dict[str, Any]) -> None:
    """Refuse what was given and can have no effect on what is measured."""
    if not options["simulate_target"]:
        refuse_without_effect("without --simulate-target", "simulate_draft", "draft_precision")
    if options["simulate_target"] or options["acceptances"]:
        refuse_without_effect("on a simulated acceptance, which drafts itself", "drafter")
    check_drafting_options(options, None)
    if set(options["draft_tokens"]) == {0}:
        refuse_without_effect("with --num-draft-tokens 0", "drafter", "draft_device", "verify")


def _measure(
    directories: Sequence[Path], texts: list[tuple[str, str]], options: dict[str, Any]
) -> BenchReport:
    from specdec.runtime import SamplingParams
    from specdec.runtime.report.bench.package import BenchSettings
    from specdec.runtime.report.bench.sweep import sweep

    names = ("temperature", "top_k", "top_p", "verify")
    given = {name: options[name] for name in names if options[name] is not None}
    params = SamplingParams(
        max_new_tokens=options["max_new_tokens"],
        ignore_eos=options["ignore_eos"] or options["acceptances"] is not None,
        **given,
    )
    check_effect(params)
    acceptances = options["acceptances"]
    if options["simulate_target"] and acceptances is None:
        acceptances = (0.6, 0.8, 0.9)
    settings = BenchSettings(
        prompts=tuple(texts),
        params=params,
        draft_tokens=options["draft_tokens"],
        contexts=options["contexts"] or (None,),
        repeats=options["repeats"],
        drafter=options["drafter"],
        acceptances=acceptances or (),
    )
    with _progress(len(directories) * len(options["num_threads"] or (None,)), settings) as advance:
        return sweep(
            directories,
            settings,
            threads=options["num_threads"] or (None,),
            device=options["device"],
            draft_device=options["draft_device"],
            ort=ort_options(options),
            on_run=advance,
        )


def _texts(options: dict[str, Any]) -> list[tuple[str, str]]:
    """(category, text) of the user's prompts, else of ours."""
    if options["prompts"] or options["prompt_files"]:
        if options["categories"]:
            raise click.UsageError(
                "--category chooses among our own prompts; give one or the other"
            )
        texts = read_prompts(options["prompts"], options["prompt_files"], False)
        return [("yours", text) for text in texts]
    from specdec.runtime.report.measuring.prompt_set import load_prompts, one_per_category

    passages = load_prompts()
    if options["categories"]:
        chosen = [p for p in passages if p.category in options["categories"]]
    else:
        chosen = list(one_per_category(passages))
    return [(passage.category, passage.text) for passage in chosen]


@contextmanager
def _sources(packages: Sequence[Path], options: dict[str, Any]) -> Iterator[Sequence[Path]]:
    """The packages, or a simulated one that is gone afterwards."""
    if packages:
        yield packages
        return
    from specdec.cli.quiet import quiet_libraries
    from specdec.cli.views.progress import for_console
    from specdec.engines.devices import Device, require_provider

    size = options["simulate_target"]
    device = Device.parse(options["device"])
    require_provider(device)
    with tempfile.TemporaryDirectory(prefix="specdec-bench-") as folder:
        directory = Path(folder) / f"simulated-{size}"
        directory.mkdir()
        longest = max((c or 512 for c in options["contexts"] or (None,)), default=512)
        with quiet_libraries(False):
            from specdec.export import SimulatedPair, write_simulated_package

            pair = SimulatedPair(
                target=size,
                draft=options["simulate_draft"],
                draft_precision=options["draft_precision"],
                max_length=longest + options["max_new_tokens"] + 32,
                device=device.kind,
            )
            write_simulated_package(pair, directory, for_console(error_console()))
        yield [directory]


@contextmanager
def _progress(loads: int, settings: Any) -> Iterator[Callable[[Any], None]]:
    """A bar over all runs on stderr."""
    from specdec.cli.views.progress import for_console

    ways = 1 + len([k for k in settings.draft_tokens if k != 0]) * max(1, len(settings.acceptances))
    total = loads * len(settings.contexts) * len(settings.prompts) * settings.repeats * ways
    with for_console(error_console()).step("generate", total=total) as handle:
        yield lambda run: handle.advance()


def _compare(first: Path, second: Path) -> int:
    from specdec.runtime.report.bench.compare import compare_table
    from specdec.runtime.report.bench.contents import BenchReport
    from specdec.runtime.report.records import from_data

    reports = []
    for path in (first, second):
        try:
            document = json.loads(read_file(path))
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"{path} is not JSON of specdec-bench ({error})") from None
        reports.append(from_data(BenchReport, document, str(path)))
    table = compare_table(*reports)
    if not table.rows:
        raise click.UsageError("the two have no setting in common; run them with the same options")
    _print([table])
    return EXIT_DONE


def _print(tables: Sequence[Table]) -> None:
    from rich.console import Console

    from specdec.cli.views.report import print_table

    console = Console(highlight=False)
    for table in tables:
        print_table(console, table)
