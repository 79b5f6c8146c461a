"""`specdec-audit`: is the pair's output the target's own, greedy and sampled?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdec.cli.command import specdec_command
from specdec.cli.common import EXIT_DONE, EXIT_FAILED, error_console, invoke
from specdec.cli.options.given import check_effect
from specdec.cli.options.loading import (
    check_drafting_options,
    load_options,
    ort_options,
    package_argument,
)
from specdec.cli.options.prompts import read_prompts
from specdec.cli.options.sampling import given_law, law_options
from specdec.cli.options.table import SHARED, with_options

if TYPE_CHECKING:
    from specdec.runtime.audit import AuditPlan, AuditReport

__all__ = ["command", "main"]


def main() -> None:
    """Run the command as a process."""
    sys.exit(invoke(command))


@specdec_command("specdec-audit")
@package_argument
@with_options(
    SHARED["prompt_file"].but(help="A prompt per file instead of the built-in ones. Repeatable.")
)
@click.option(
    "--samples", type=click.IntRange(min=25), default=1000, help="Per prefix and setting. [1000]"
)
@click.option("--prefixes", type=click.IntRange(min=1), default=8, help="Per setting. [8]")
@click.option(
    "--depth", type=click.IntRange(1, 8), default=3, help="Tokens counted of each sample. [3]"
)
@click.option(
    "--greedy-tokens", type=click.IntRange(min=1), default=48, help="Per greedy text. [48]"
)
@click.option(
    "--false-alarm-rate",
    type=click.FloatRange(0.0, 0.5, min_open=True),
    default=0.001,
    help="Chance to fail a correct decoder. [0.001]",
)
@load_options
@law_options
@with_options(SHARED["json"])
def command(
    package: Path,
    prompt_files: Sequence[str],
    samples: int,
    prefixes: int,
    depth: int,
    greedy_tokens: int,
    false_alarm_rate: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Check that the package DIR gives its target's own output, without loss.

    Greedy text must equal the target's token for token; sampled tokens are tested against the
    target's exact probabilities. Sampling options replace the two built-in settings; --seed
    moves all samples. Exit code 1 when a check fails. Default values in brackets.
    """
    from specdec.engines.load import load_package
    from specdec.runtime.audit import AuditPlan

    texts = read_prompts((), prompt_files, False, package=package) if prompt_files else None
    given = given_law(options)
    check_drafting_options(options, given.get("num_draft_tokens"))
    with load_package(
        package,
        device=options["device"],
        draft_device=options["draft_device"],
        num_threads=options["num_threads"],
        verify_checksums=not options["no_checksums"],
        load_draft=options["drafter"] not in ("ngram", "none"),
        ort=ort_options(options),
    ) as loaded:
        plan = AuditPlan(
            settings=_settings(given, loaded.draft is not None),
            num_prefixes=prefixes,
            samples=samples,
            depth=depth,
            greedy_tokens=greedy_tokens,
            false_alarm_rate=false_alarm_rate,
        )
        report = _run(loaded, texts, plan, options["drafter"])
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    else:
        from rich.console import Console

        from specdec.cli.views.audit import print_audit

        print_audit(Console(highlight=False), report)
    return EXIT_DONE if report.passed else EXIT_FAILED


def _settings(given: dict[str, Any], has_draft_model: bool) -> Any:
    """The settings to sample under: what was asked for, else the built-in ones."""
    from dataclasses import replace

    from specdec.runtime import SamplingParams
    from specdec.runtime.audit import default_settings

    seed = given.pop("seed", 0)
    if not given:
        return tuple(replace(params, seed=seed) for params in default_settings(has_draft_model))
    chosen = {"temperature": 1.0, "num_draft_tokens": 2, **given, "seed": seed}
    params = SamplingParams(**chosen)
    if params.greedy:
        raise click.UsageError("--temperature is 0; greedy text is always checked, give one above")
    check_effect(params)
    return (params,)


def _run(loaded: Any, texts: Sequence[str] | None, plan: AuditPlan, drafter: Any) -> AuditReport:
    from specdec.runtime.audit import audit
    from specdec.runtime.decoder import SpeculativeDecoder
    from specdec.runtime.report.measuring.prompt_set import (
        load_prompts,
        one_per_category,
        prompt_ids,
    )

    if texts is None:
        texts = [prompt.text for prompt in one_per_category(load_prompts())]
    decoder = SpeculativeDecoder.from_package(loaded, drafter=drafter, owns=False)
    most = max(loaded.target.info.max_length // 2, 1)  # the end of a prompt that is longer
    console = error_console()
    with console.status("audit") as status:
        return audit(
            loaded.target,
            loaded.draft,
            [prompt_ids(decoder, text)[-most:] for text in texts],
            plan,
            shares_cache=loaded.draft_shares_cache,
            drafter=drafter,
            end_token_ids=loaded.manifest.tokenizer.eos_token_ids,
            progress=status.update,
        )
