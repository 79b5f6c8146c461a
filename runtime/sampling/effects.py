"""Finds the sampling options of a request that can have no effect beside its others."""

from __future__ import annotations

from specdec.runtime.sampling.params import SamplingParams

__all__ = ["options_without_effect"]

_DEFAULTS = SamplingParams()
_GREEDY = "at temperature 0, which takes the likeliest token"
_OF_SAMPLING = ("top_k", "top_p", "min_p", "seed", "draft_temperature", "verify")
_PLAIN = "with num_draft_tokens 0, which is plain decoding"


def options_without_effect(params: SamplingParams) -> dict[str, str]:
    """Name the options that cannot change what these parameters do.

    The commands refuse such an option. `SamplingParams` itself accepts it, because one set of
    parameters is often varied by one field alone; a host that takes options from people should
    pass on what this finds.

    Returns:
        for each field that differs from its default and has no effect, the reason as a phrase:
        {"top_p": "at temperature 0, which takes the likeliest token"}. Empty when all is well.
    """
    found: dict[str, str] = {}
    if params.greedy:
        found |= {name: _GREEDY for name in _OF_SAMPLING if _is_set(params, name)}
    if params.num_draft_tokens == 0:
        # "coupled" stays: it decides which text a seed gives, with and without drafting.
        if _is_set(params, "draft_temperature"):
            found.setdefault("draft_temperature", _PLAIN)
        if params.verify == "token":
            found.setdefault("verify", _PLAIN)
    if params.min_new_tokens and params.ignore_eos and not params.stop_token_ids:
        found["min_new_tokens"] = "with ignore_eos, which leaves no end token to hold back"
    return found


def _is_set(params: SamplingParams, name: str) -> bool:
    return bool(getattr(params, name) != getattr(_DEFAULTS, name))
