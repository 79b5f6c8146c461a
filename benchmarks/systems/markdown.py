"""Writes a run of `peers.py` as Markdown: every figure of the comparison comes from here.

A ratio is the median of the ratios of single requests (the same prompt and repeat), with its
95 % bootstrap interval. It is not the quotient of the two medians beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.configurations import Configuration
from systems.document import PeersRun
from systems.table import Ratio, Record, agreement, best, paired_ratio, speed

__all__ = ["full_tables", "origin", "summary"]

REFERENCE = "transformers, plain"
NAMES = {
    "specdec": "specdec",
    "genai": "ONNX Runtime GenAI",
    "openvino": "OpenVINO GenAI",
    "llama.cpp": "llama.cpp",
    "transformers": "transformers",
}


def origin(run: PeersRun) -> str:
    """The paragraph that says what was run, where, and how to read a ratio."""
    machine, settings = run.machine, run.settings
    versions = {
        name: number for packages in run.versions.values() for name, number in packages.items()
    }
    listed = ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
    return (
        f"{machine['cpu']}, {settings['threads']} threads; {run.prompts} prompts, "
        f"{settings['repeats']} repeats, {settings['tokens']} new tokens, prompt reading included, "
        "all taking turns in one run. tokens/s: medians over requests. Ratios: medians of the "
        "ratios of single requests with their 95 % intervals, so they are not quotients of the "
        f"columns beside them. {listed}."
    )


def summary(run: PeersRun, temperature: float) -> str:
    """A row for each system and arithmetic of the target, with its best speculative setting."""
    records = run.records[temperature]
    shown = run.configurations(temperature)
    ours = best(records, [c.name for c in shown if c.peer == "specdec"])
    lines = [
        "| system (target) | plain, tokens/s | best with speculation | tokens/s "
        "| over its own plain | specdec's best over its best |",
        "|---|---|---|---|---|---|",
    ]
    for group in _groups(shown):
        plain = best(records, [c.name for c in group if not c.num_draft_tokens])
        drafted = best(records, [c.name for c in group if c.num_draft_tokens])
        fastest = best(records, [c.name for c in group])
        over = None
        if ours and fastest and group[0].peer != "specdec":
            over = paired_ratio(records, ours, fastest)
        cells = [
            f"{NAMES[group[0].peer]} ({_target(group[0])})",
            _speed(records, plain),
            "none" if drafted is None else drafted.partition(", ")[2],
            _speed(records, drafted),
            _ratio(paired_ratio(records, drafted, plain) if drafted and plain else None),
            _ratio(over),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def full_tables(run: PeersRun) -> str:
    """Every setting at every temperature."""
    parts = []
    for temperature in sorted(run.records):
        parts += [f"Temperature {temperature:g}:", _full(run, temperature)]
        parts += _against(run, temperature)
    return "\n\n".join(parts)


def _full(run: PeersRun, temperature: float) -> str:
    records, shown = run.records[temperature], run.configurations(temperature)
    compared = temperature == 0 and any(c.name == REFERENCE for c in shown)
    columns = ["configuration", "target", "tokens/s", "over its own plain"]
    columns += ["greedy text as transformers'"] if compared else []
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for c in shown:
        gain = paired_ratio(records, c.name, c.plain) if c.num_draft_tokens else None
        cells = [c.name.replace(c.peer, NAMES[c.peer], 1), _target(c), _speed(records, c.name)]
        cells.append(_ratio(gain))
        if compared:
            share, identical, texts = agreement(records, c.name, REFERENCE)
            cells.append(f"{share:.0%} ({identical} of {texts} identical)")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _against(run: PeersRun, temperature: float) -> list[str]:
    """specdec's fastest setting over the fastest of the others, for each arithmetic."""
    records, shown = run.records[temperature], run.configurations(temperature)
    ours = best(records, [c.name for c in shown if c.peer == "specdec"])
    lines = []
    for target in sorted({c.target for c in shown}):
        others = [c.name for c in shown if c.peer != "specdec" and c.target == target]
        theirs = best(records, others)
        if ours and theirs:
            found = _ratio(paired_ratio(records, ours, theirs))
            lines.append(
                f"{ours}, over the fastest other with an {target} target, {theirs}: {found}."
            )
    return lines


def _groups(shown: Sequence[Configuration]) -> list[list[Configuration]]:
    groups: dict[tuple[str, str], list[Configuration]] = {}
    for configuration in shown:
        groups.setdefault((configuration.peer, configuration.target), []).append(configuration)
    return list(groups.values())


def _target(configuration: Configuration) -> str:
    """llama.cpp calls FP32 and FP16 by names of its own."""
    own = configuration.peer == "llama.cpp" and configuration.target == "FP32"
    return "F32" if own else configuration.target


def _speed(records: Sequence[Record], name: str | None) -> str:
    return "" if name is None else f"{speed(records, name):.1f}"


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
