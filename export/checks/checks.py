"""Judge freshly built engines before a package is called good.

Every width that the runtime uses is run (1 row, 2, K + 1, a prompt), across a truncation, against
the original weights and against each other; then the very loop that users run generates a short
text with and without the draft. The figures go into the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.engine import Engine
from specdec.export.checks.reference import Reference
from specdec.runtime.report.measuring.curves import CurvePlan, measure_curves
from specdec.runtime.report.measuring.divergence import draft_rows, log_softmax, score_text

__all__ = ["CheckReport", "check_engines"]

_WIDTHS = (1, 2, 5, 9)
_GREEDY_TOKENS = 32
_NUM_DRAFT_TOKENS = 4
_MIN_AGREEMENT = 0.9
_MAX_KL = 0.05
_REPEATS = 5
_CONTEXT = 16


@dataclass
class CheckReport:
    """Figures of the finished engines and what is wrong with them, if anything."""

    figures: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check_engines(
    target: Engine,
    draft: Engine | None,
    shares_cache: bool,
    reference: Reference,
    draft_reference: Reference | None,
    *,
    timed: bool = True,
) -> CheckReport:
    """Run all checks; nothing is raised for a bad engine, it is reported.

    Args:
        target: the target engine, empty.
        draft: the draft engine or None.
        shares_cache: whether the draft uses the target's cache.
        reference: the target's original logits.
        draft_reference: the draft model's own original logits on the same tokens, or the first
            of them; None when the draft is the target's own weights.
        timed: measure costs, too; pointless on another kind of device than the engines' own.
    """
    report = CheckReport()
    whole = _walk(target, reference.token_ids, reference.token_ids.shape[1])
    report.figures["target_vs_original"] = _judge(report, "target", whole, reference.logits, True)
    report.figures["target_width_parity"] = _parity(report, "target", target, reference, whole)
    if draft is not None:
        # A draft's own reference is as much of the text as fits in its context.
        token_ids = (draft_reference or reference).token_ids
        drafted = _draft_logits(target, draft, shares_cache, token_ids)
        figures = _judge(report, "draft", drafted, reference.logits[: len(drafted)], False)
        report.figures["draft_vs_target"] = figures
        if draft_reference is not None:
            own = _judge(report, "draft", drafted, draft_reference.logits, False)
            report.figures["draft_vs_original"] = own
    if timed:
        report.costs.update(_costs(target, draft, shares_cache, reference.token_ids[0].tolist()))
    if draft is not None and not report.problems:
        prompt = reference.token_ids[0, : reference.token_ids.shape[1] // 2].tolist()
        report.figures["greedy_pair"] = _greedy_pair(report, target, draft, shares_cache, prompt)
    return report


def _walk(engine: Engine, token_ids: NDArray[np.int64], rows: int) -> NDArray[np.float32]:
    """Logits of every token, fed `rows` at a time into an empty cache; [T, vocab_size]."""
    return score_text(engine, token_ids[0].tolist(), rows)


def _judge(
    report: CheckReport,
    name: str,
    logits: NDArray[np.float32],
    original: NDArray[np.float32],
    must_agree: bool,
) -> dict[str, float]:
    """Differences of two sets of logits [T, vocab]; a problem is noted when they are too large."""
    if not np.isfinite(logits).all():
        report.problems.append(f"the {name} engine produces logits that are not finite")
        return {}
    log_ours, log_theirs = log_softmax(logits), log_softmax(original)
    ours, theirs = np.exp(log_ours), np.exp(log_theirs)
    kl = (theirs * (log_theirs - log_ours)).sum(axis=1)
    figures = {
        "max_logit_difference": float(np.abs(logits - original).max()),
        "kl_divergence": float(kl.mean()),
        "argmax_agreement": float((logits.argmax(axis=1) == original.argmax(axis=1)).mean()),
        "overlap": float(np.minimum(ours, theirs).sum(axis=1).mean()),
    }
    agreement, mean_kl = figures["argmax_agreement"], figures["kl_divergence"]
    if must_agree and (agreement < _MIN_AGREEMENT or mean_kl > _MAX_KL):
        report.problems.append(
            f"the {name} engine differs from the original weights: argmax agreement "
            f"{agreement:.3f} (at least {_MIN_AGREEMENT}), KL {mean_kl:.3g} (at most {_MAX_KL})"
        )
    return figures


def _parity(
    report: CheckReport,
    name: str,
    engine: Engine,
    reference: Reference,
    whole: NDArray[np.float32],
) -> dict[str, float]:
    """Largest logit difference of each width, and of a truncation, against one pass."""
    figures = {}
    margin = float(np.ptp(whole, axis=1).max())
    for rows in _WIDTHS:
        difference = float(np.abs(_walk(engine, reference.token_ids, rows) - whole).max())
        figures[f"rows_{rows}"] = difference
    half = reference.token_ids.shape[1] // 2
    engine.truncate(half)
    again = engine.forward(reference.token_ids[:, half:], whole.shape[0] - half)
    width = engine.info.vocab_size
    figures["after_truncation"] = float(np.abs(again[0, :, :width] - whole[half:]).max())
    worst = max(figures, key=lambda key: figures[key])
    if not figures[worst] <= 0.02 * margin:
        report.problems.append(
            f"the {name} engine depends on how its tokens are fed: {worst} differs by "
            f"{figures[worst]:.3g} where logits span {margin:.3g}"
        )
    return figures


def _draft_logits(
    target: Engine, draft: Engine, shares_cache: bool, token_ids: NDArray[np.int64]
) -> NDArray[np.float32]:
    """One-step draft logits after every token, over the cache it will really use."""
    ids = token_ids[0].tolist()
    score_text(target, ids)
    rows = np.empty((len(ids), draft.info.vocab_size), np.float32)
    for i, row in draft_rows(target, draft, shares_cache, ids):
        rows[i] = row
    return rows


def _costs(
    target: Engine, draft: Engine | None, shares_cache: bool, filler: list[int]
) -> dict[str, Any]:
    """Median seconds of a pass by its rows, after a short context; what `CostTable` reads."""
    context = min(_CONTEXT, len(filler) - max(_WIDTHS))
    widths = tuple(rows for rows in _WIDTHS if context > 0 or rows < len(filler))
    plan = CurvePlan((max(context, 0),), widths, _REPEATS)
    measured = measure_curves(target, draft, shares_cache, plan, filler)[0]
    costs: dict[str, Any] = {
        "verify_seconds": {str(rows): s for rows, s in measured.verify_seconds.items()}
    }
    return costs if draft is None else {**costs, "draft_seconds": measured.draft_seconds}


def _greedy_pair(
    report: CheckReport, target: Engine, draft: Engine, shares_cache: bool, prompt: list[int]
) -> dict[str, Any]:
    """The loop users run, with and without the draft, over the finished engines.

    The one place where the export uses the runtime: a check of another loop would prove less.
    """
    from specdec.runtime import SamplingParams, SpeculativeDecoder

    decoder = SpeculativeDecoder(target, draft, shares_cache=shares_cache)
    room = min(_GREEDY_TOKENS, target.info.max_length - len(prompt) - 1)

    def generate(num_draft_tokens: int) -> Any:
        params = SamplingParams(max_new_tokens=room, num_draft_tokens=num_draft_tokens)
        return decoder.generate(prompt, params)

    plain, pair = generate(0), generate(_NUM_DRAFT_TOKENS)
    equal = [a == b for a, b in zip(plain.token_ids, pair.token_ids, strict=False)]
    matching = equal.index(False) if False in equal else len(equal)
    figures: dict[str, Any] = {
        "tokens": len(plain.token_ids),
        "matching": matching,
        "acceptance_rate": pair.stats.acceptance_rate,
        "tokens_per_round": pair.stats.tokens_per_round,
    }
    if matching < len(plain.token_ids):
        noise = max(report.figures["target_width_parity"].values())
        gap = _margin(target, [*prompt, *plain.token_ids[:matching]])
        figures["margin_at_difference"] = gap
        if gap > 4 * noise:
            report.problems.append(
                f"greedy text of the pair leaves the target's after {matching} tokens where the "
                f"two best logits are {gap:.3g} apart (noise between widths is {noise:.3g})"
            )
    return figures


def _margin(target: Engine, token_ids: list[int]) -> float:
    """Distance of the two largest logits after a sequence."""
    target.truncate(0)
    logits = target.forward(np.array([token_ids], np.int64), 1)[0, 0, : target.info.vocab_size]
    second, first = np.partition(logits, -2)[-2:]
    target.truncate(0)
    return float(first - second)
