"""The verdict of an audit for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from specdec.runtime.audit import AuditReport, SamplingReport

__all__ = ["audit_lines", "print_audit"]


def print_audit(console: Console, report: AuditReport) -> None:
    """Print the lines, the verdict last."""
    for line in audit_lines(report):
        console.print(line, markup=False, soft_wrap=True)


def audit_lines(report: AuditReport) -> list[str]:
    """Every finding in reading order."""
    lines = [*_greedy(report), ""]
    for part in report.sampling:
        lines += [*_sampling(part), ""]
    lines.append(
        f"{report.seconds:.0f} s; engine passes: {report.engine_passes} run, "
        f"{report.replayed_passes} answered from memory"
    )
    lines.append(
        "PASSED: no difference from the target alone was found"
        if report.passed
        else "FAILED: the output is not the target's own"
    )
    lines.append(
        f"(a correct pair fails the statistical tests with probability {report.false_alarm_rate:g})"
    )
    return lines


def _greedy(report: AuditReport) -> list[str]:
    greedy, rollback = report.greedy, report.rollback
    ties = sum(difference.is_near_tie for difference in greedy.differences)
    lines = [
        f"greedy: {_verdict(greedy.passed)}, {greedy.num_prompts - len(greedy.differences)} of "
        f"{greedy.num_prompts} texts equal the target's ({greedy.num_tokens} tokens), "
        f"{ties} differ after a near-tie"
    ]
    lines += [
        f"  differs at token {d.position}: the two best logits are {d.gap:.3g} apart, rounding "
        f"explains {d.noise:.3g}"
        for d in greedy.differences
    ]
    lines.append(
        f"cache: {_verdict(rollback.passed)}, logits after a roll-back differ by "
        f"{rollback.largest_difference:.3g} (allowed {rollback.allowed:.3g})"
    )
    return lines


def _sampling(part: SamplingReport) -> list[str]:
    options = ", ".join(f"{name} {value}" for name, value in part.options.items())
    lines = [
        f"sampling ({options}): {_verdict(part.passed)}",
        f"  {part.num_samples} samples after {part.num_prefixes} prefixes; acceptance "
        f"{part.acceptance_rate:.0%}, {part.tokens_per_round:.2f} tokens per round",
        f"  total variation {part.total_variation:.4f}, noise floor {part.noise_floor:.4f}; "
        f"{part.detectable:.4f} would be found nine times in ten",
    ]
    lines += [
        f"  {test.name:<16} statistic {test.statistic:9.1f}, expected {test.degrees:8.1f}, "
        f"p = {test.p_value:.3g}{'  FAILED' if test.failed else ''}"
        for test in part.tests
    ]
    return lines


def _verdict(passed: bool) -> str:
    return "ok" if passed else "FAILED"
