"""Measure one draft recipe beside its target, for the comparison of recipes."""

from __future__ import annotations

from specdec.engines.engine import Engine
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.report.contents import Candidate
from specdec.runtime.report.measuring.acceptance import count_acceptance
from specdec.runtime.report.measuring.curves import CurvePlan, measure_curves, plan_curves
from specdec.runtime.report.measuring.prompt_set import load_prompts, one_per_category
from specdec.runtime.report.measuring.runs import Variant, play_interleaved
from specdec.runtime.report.plan import encode_prompts
from specdec.runtime.report.speeds import host_costs, predict, speed_model
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["measure_candidate"]

_WIDTHS = (1, 2, 3, 5, 9, 13)
_PROBE = 8
_NEW_TOKENS = 32
_FEW = 2


def measure_candidate(
    recipe: str,
    size: int,
    decoder: SpeculativeDecoder,
    target: Engine,
    draft: Engine,
    shares_cache: bool,
) -> Candidate:
    """Time a draft beside its target and count what is accepted, greedy, on our prompts.

    The verify curve is timed anew for every draft, so that a machine that drifts favours none:
    only ratios of one draft's own session are compared.

    Args:
        recipe: its name.
        size: bytes of the draft on disk.
        decoder: over both engines.
        target: the target engine.
        draft: the draft engine.
        shares_cache: whether the draft uses the target's cache.
    """
    context = min(target.info.max_length, draft.info.max_length)
    new_tokens = min(_NEW_TOKENS, context // 2)
    passages = [(p.category, p.text) for p in one_per_category(load_prompts())]
    prompts = encode_prompts(decoder, passages, context - new_tokens)
    filler = [token for prompt in prompts for token in prompt.token_ids]
    room = plan_curves("short", target.info.max_length, 0.0)
    plan = CurvePlan(room.contexts[:1], tuple(m for m in _WIDTHS if m <= max(room.widths)), 5)
    curves = measure_curves(target, draft, shares_cache, plan, filler)
    draft_seconds = curves[0].draft_seconds
    assert draft_seconds is not None, "curves of a pair have draft steps"

    def variant(name: str, num_draft_tokens: int) -> Variant:
        params = SamplingParams(max_new_tokens=new_tokens, num_draft_tokens=num_draft_tokens)
        return Variant(name, decoder, params)

    plain = play_interleaved(prompts[:1], [variant("plain", 0)])
    if draft_seconds > curves[0].verify_seconds[1]:
        prompts = prompts[:_FEW]  # it cannot pay, and would take long to show how much
    probes = play_interleaved(prompts, [variant("probe", _PROBE)])
    model = speed_model(curves, probes, host_costs(plain, probes))
    prediction = predict(model, count_acceptance(probes, 0.0)[0])
    speedup = prediction.speedup[prediction.best]
    return Candidate(
        recipe=recipe,
        bytes=size,
        draft_seconds=draft_seconds,
        acceptance_rate=prediction.acceptance_rate,
        num_draft_tokens=prediction.best,
        speedup=speedup,
        tokens_per_second=speedup / model.round_seconds[0],
        problem=None,
    )
