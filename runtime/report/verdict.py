"""Form the verdict: worth it, not worth it, or unsafe, and what would change it.

Only a measured speed-up makes a pair worth it; the model behind it says why not, and which
single figure would have to change: the draft's acceptance, or the time of its step.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.runtime.report.contents import Alternative, Measured, Prediction, Verdict
from specdec.runtime.report.measuring.acceptance import ALL
from specdec.runtime.report.model import SpeedModel

__all__ = ["AUTO", "best_measured", "judge"]

AUTO = "auto"
"""Of `Measured.num_draft_tokens`: the runtime's own choice."""
_WORTH = 1.05
"""A smaller gain is not worth a second model."""


def judge(
    problems: Sequence[str],
    measured: Sequence[Measured],
    predictions: Sequence[Prediction],
    model: SpeedModel | None,
    alternatives: Sequence[Alternative],
) -> Verdict:
    """Decide.

    Args:
        problems: what makes the pair unsafe, if anything.
        measured: speed-ups; the greedy ones over all prompts decide.
        predictions: of the same.
        model: greedy costs, None without a draft.
        alternatives: named beside the verdict.
    """
    if problems:
        return Verdict(
            decision="unsafe",
            headline="Unsafe: the text of this package is not the target's own.",
            reasons=tuple(problems),
            changes=("Export it again; if this repeats, report the model and the machine.",),
        )
    if model is None:
        return _without_draft(measured, alternatives)
    best = best_measured(measured)
    prediction = next(p for p in predictions if p.category == ALL and p.temperature == 0.0)
    if best.speedup >= _WORTH:
        return _worth(best, measured, prediction, alternatives)
    return _not_worth(best, measured, prediction, model)


def best_measured(measured: Sequence[Measured]) -> Measured:
    """The pair's greedy speed over all prompts: with the draft model alone, where there is one.

    What the runtime does by itself may be faster, by looking up in the text: no merit of a draft.
    """
    own = [m for m in measured if m.category == ALL and m.temperature == 0.0]
    modelled = [m for m in own if m.num_draft_tokens != AUTO]
    return max(modelled if any(m.predicted for m in own) else own, key=lambda m: m.speedup)


def _worth(
    best: Measured,
    measured: Sequence[Measured],
    prediction: Prediction,
    alternatives: Sequence[Alternative],
) -> Verdict:
    reasons = [
        f"{best.tokens_per_second:.1f} tokens/s against {best.plain_tokens_per_second:.1f} plain, "
        f"greedy, {_name(best)}; 95 % interval {best.low:.2f} to {best.high:.2f}.",
        f"{prediction.acceptance_rate:.0%} of the drafted tokens are accepted; "
        + _break_even(prediction),
    ]
    reasons += _by_default(measured)
    sampled = [m for m in measured if m.category == ALL and m.temperature > 0.0]
    if sampled:
        top = max(sampled, key=lambda m: m.speedup)
        reasons.append(f"Sampling at temperature {top.temperature:g}: {top.speedup:.2f} times.")
    slow = [
        m
        for m in measured
        if m.category != ALL and m.num_draft_tokens == best.num_draft_tokens and m.speedup < 1.0
    ]
    reasons += [
        f"Slower than plain for {m.category} at temperature {m.temperature:g}: "
        f"{m.speedup:.2f} times."
        for m in slow
    ]
    return Verdict(
        decision="worth it",
        headline=f"Worth it: {best.speedup:.2f} times the speed of the target alone, "
        "with the target's own text.",
        reasons=tuple(reasons),
        changes=_honest_alternatives(alternatives),
    )


def _not_worth(
    best: Measured, measured: Sequence[Measured], prediction: Prediction, model: SpeedModel
) -> Verdict:
    k = prediction.best
    plain = model.round_seconds[0]
    tokens = prediction.speedup[k] * model.round_seconds[k] / plain
    reasons = [
        f"{best.tokens_per_second:.1f} tokens/s against {best.plain_tokens_per_second:.1f} plain, "
        f"greedy, {_name(best)}; 95 % interval {best.low:.2f} to {best.high:.2f}.",
        f"A round of K = {k} takes {model.round_seconds[k] / plain:.2f} plain steps and gives "
        f"{tokens:.2f} tokens.",
        f"{prediction.acceptance_rate:.0%} of the drafted tokens are accepted; "
        + _break_even(prediction),
        *_by_default(measured),
    ]
    return Verdict(
        decision="not worth it",
        headline=f"Not worth it: {best.speedup:.2f} times the speed of the target alone "
        f"(worth it from {_WORTH:.2f}).",
        reasons=tuple(reasons),
        changes=tuple(_changes(prediction, model, tokens)),
    )


def _changes(prediction: Prediction, model: SpeedModel, tokens: float) -> list[str]:
    """What would make the pair pay: acceptance at this cost, or cost at this acceptance."""
    k, plain = prediction.best, model.round_seconds[0]
    changes = []
    if prediction.break_even is not None:
        changes.append(
            f"A draft of this speed pays once it is accepted more than {prediction.break_even:.0%} "
            "of the time: train it on the target's own answers, or give it more bits."
        )
    gap = (model.round_seconds[k] - tokens * plain) / k
    if 0.0 < gap < model.draft_seconds:
        changes.append(
            f"A draft of this quality pays once its step takes "
            f"{(model.draft_seconds - gap) * 1e3:.2f} ms instead of "
            f"{model.draft_seconds * 1e3:.2f}: a smaller draft, fewer bits, or "
            "--draft-precision auto."
        )
    elif gap > 0.0:
        changes.append(
            "At this acceptance no draft is fast enough: the rows to verify alone cost more than "
            "they bring."
        )
    changes.append(
        "Until then the runtime falls back to plain decoding by itself "
        "(--num-draft-tokens auto), and --drafter ngram costs no draft at all."
    )
    return changes


def _without_draft(measured: Sequence[Measured], alternatives: Sequence[Alternative]) -> Verdict:
    plain = alternatives[0].tokens_per_second
    best = best_measured(measured)
    return Verdict(
        decision="no draft",
        headline=f"No draft model: plain decoding at {plain:.1f} tokens/s.",
        reasons=(
            f"Drafting from the text itself (--drafter ngram) measured {best.speedup:.2f} times "
            f"that; 95 % interval {best.low:.2f} to {best.high:.2f}.",
        ),
        changes=("Export with --draft self to try the target's own weights, quantized.",),
    )


def _by_default(measured: Sequence[Measured]) -> list[str]:
    """What a user gets who sets nothing."""
    own = [m for m in measured if m.category == ALL and m.temperature == 0.0]
    return [
        f"As the runtime drafts by itself, by model or by looking up in the text: {m.speedup:.2f} "
        f"times, {m.tokens_per_second:.1f} tokens/s."
        for m in own
        if m.num_draft_tokens == AUTO
    ]


def _honest_alternatives(alternatives: Sequence[Alternative]) -> tuple[str, ...]:
    return tuple(
        f"If text that differs from the target's is acceptable, {a.name} runs at "
        f"{a.tokens_per_second:.1f} tokens/s; its greedy text is the target's for the first "
        f"{a.same_tokens:.0f} of {a.of_tokens:.0f} tokens."
        for a in alternatives[1:]
    )


def _break_even(prediction: Prediction) -> str:
    if prediction.break_even is None:
        return f"at K = {prediction.best} not even full acceptance would pay."
    return f"K = {prediction.best} breaks even at {prediction.break_even:.0%}."


def _name(measured: Measured) -> str:
    if measured.num_draft_tokens == AUTO:
        return "K chosen by the runtime"
    return f"K = {measured.num_draft_tokens}"
