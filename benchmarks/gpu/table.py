"""The short table at the end of a GPU check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["LIMIT", "table"]

LIMIT = 7500
"""Characters: the caller of a remote machine may see the end of its output alone."""
_WIDTH = 150


def table(document: dict[str, Any]) -> str:
    """Lines of plain text, below `LIMIT` characters.

    Args:
        document: the JSON document of the check.
    """
    lines = [*_head(document), *_sections(document["sections"]), *_speeds(document["sections"])]
    lines.append(f"verdict: {document['verdict']}")
    text = "\n".join(line[:_WIDTH] for line in lines)
    if len(text) <= LIMIT:
        return text
    cut = " ...\n"
    return text[: LIMIT // 2] + cut + text[len(cut) + len(text) - LIMIT // 2 :]


def _head(document: dict[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    yield f"GPU check of specdec {document['specdec_version']} on {document['device']}"
    yield f"{machine.get('gpu') or machine['cpu']}; ONNX Runtime {machine['onnxruntime']}"
    yield f"took {document['seconds']:.0f} s of {document['budget_seconds']:.0f} s"


def _sections(sections: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"{'section':<18}{'status':<11}{'checks':>9}{'seconds':>9}"
    for one in sections:
        passed = sum(check["passed"] for check in one["checks"])
        counted = f"{passed}/{len(one['checks'])}" if one["checks"] else "-"
        yield f"{one['name']:<18}{one['status']:<11}{counted:>9}{one['seconds']:>9.0f}"
        bad = [check for check in one["checks"] if not check["passed"]]
        for check in bad[:4]:
            yield f"  FAILED {check['name']}: {check['detail']}"
        if len(bad) > 4:
            yield f"  and {len(bad) - 4} more"
        yield from (f"  {note}" for note in one["notes"][:2])


def _speeds(sections: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in sections:
        figures = one["figures"]
        if "share_of_copy" not in figures:
            continue
        curve = figures["verify_seconds"]
        yield ""
        yield (
            f"{figures['target']}: reads {figures['weights_read'] / 1e9:.2f} GB a pass at "
            f"{figures['bytes_per_second'] / 1e9:.0f} GB/s, {figures['share_of_copy']:.0%} of a "
            f"copy ({figures['copy_bytes_per_second'] / 1e9:.0f} GB/s); with whole logits "
            f"{figures['whole_logits_seconds'] * 1e3:.2f} ms"
        )
        yield "T(M) ms  " + "  ".join(f"{rows}: {s * 1e3:.2f}" for rows, s in curve.items())
        yield "; ".join(_steps(figures))
        if "expected_seconds" in figures:
            told = ", ".join(
                f"{how} {seconds * 1e3:.2f} ms"
                for how, seconds in figures["expected_seconds"].items()
            )
            yield f"target step by arithmetic, {figures['kernels']} kernels: {told}"
        yield f"{'draft':<6}{'A':>5}{'K':>6}{'tok/s':>9}{'plain':>8}{'x':>6}{'host':>6}{'kB':>8}"
        lines = figures.get("pairs", [])
        for line in lines:
            yield (
                f"{line['draft']:<6}{line['forced_acceptance']:>5}{line['num_draft_tokens']:>6}"
                f"{line['tokens_per_second']:>9.1f}{line['plain_tokens_per_second']:>8.1f}"
                f"{line['speedup']:>6.2f}{line['host_share']:>6.0%}"
                f"{line['bytes_per_round'] / 1e3:>8.1f}"
            )
        same = sum(line["same_text"] for line in lines)
        yield f"text as plain decoding's in {same} of {len(lines)}"


def _steps(figures: dict[str, Any]) -> Iterator[str]:
    """How long a plain step of each engine takes, without and with CUDA graphs."""
    for name, value in figures.items():
        if name.endswith(" steps"):
            told = ", ".join(f"{how} {seconds * 1e3:.2f} ms" for how, seconds in value.items())
            yield f"{name}: {told}"
