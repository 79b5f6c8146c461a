"""Engines, tokenizer and settings that a decoder shares between generations, validated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, get_args

from specdec.engines.engine import Engine
from specdec.runtime.decoding.caches import Caches
from specdec.runtime.drafting.acceptance import AcceptanceTable
from specdec.runtime.drafting.costs import DEFAULT_COSTS, Costs, CostTable
from specdec.runtime.drafting.draft_length import Savings
from specdec.runtime.drafting.drafter import Drafter, ModelDrafter, NoDrafter
from specdec.runtime.drafting.ngram import HybridDrafter, NgramDrafter
from specdec.runtime.errors import InvalidParameterError, UnsupportedOptionError
from specdec.runtime.sampling.defaults import ModelDefaults
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.sampling.randomness import CounterRandom, CoupledRandom, RoundRandom
from specdec.runtime.text.codec import TextCodec

__all__ = ["DRAFTERS", "DrafterName", "Parts"]

DrafterName = Literal["auto", "model", "ngram", "hybrid", "none"]
DRAFTERS = get_args(DrafterName)


@dataclass
class Parts:
    """Engines, tokenizer and settings shared by all generations of a decoder."""

    target: Engine
    drafter: Drafter
    has_drafter: bool
    has_draft_model: bool
    caches: Caches
    codec: TextCodec | None
    eos_token_ids: frozenset[int]
    defaults: ModelDefaults
    make_random: Callable[[SamplingParams], RoundRandom]
    seed_costs: CostTable
    """Costs a generation with frozen costs uses; measured costs start from them."""
    costs: Costs = field(init=False)
    acceptance: AcceptanceTable = field(default_factory=AcceptanceTable)
    savings: Savings = field(default_factory=Savings)

    def __post_init__(self) -> None:
        self.costs = self.seed_costs.fresh()

    @classmethod
    def assemble(
        cls,
        target: Engine,
        draft: Engine | None,
        *,
        drafter: DrafterName | Drafter,
        shares_cache: bool,
        codec: TextCodec | None,
        eos_token_ids: Iterable[int],
        defaults: ModelDefaults,
        costs: Mapping[str, Any] | None,
        make_random: Callable[[SamplingParams], RoundRandom] | None,
    ) -> Parts:
        """Check and combine; arguments and errors as `SpeculativeDecoder`."""
        if isinstance(target, (str, PathLike)):
            raise InvalidParameterError(
                f"target is the path {str(target)!r}; an engine is needed here: "
                "SpeculativeDecoder.load(path) loads a package"
            )
        if drafter not in get_args(DrafterName) and not hasattr(drafter, "propose"):
            allowed = ", ".join(get_args(DrafterName))
            raise InvalidParameterError(f"drafter is {drafter!r}; allowed is {allowed}")
        _check_pair(target, draft, shares_cache)
        ends = frozenset(eos_token_ids)
        if any(not 0 <= token < target.info.vocab_size for token in ends):
            raise InvalidParameterError(
                f"eos_token_ids is {sorted(ends)}; allowed is 0 .. {target.info.vocab_size - 1}"
            )
        if drafter == "auto":
            drafter = "ngram" if draft is None else drafter
        if isinstance(drafter, str):
            drafter = _make_drafter(drafter, draft, shares_cache)
        return cls(
            target=target,
            drafter=drafter,
            has_drafter=not isinstance(drafter, NoDrafter),
            has_draft_model=draft is not None
            and not isinstance(drafter, (NoDrafter, NgramDrafter)),
            caches=Caches(target, None if shares_cache else draft),
            codec=codec,
            eos_token_ids=ends,
            defaults=defaults,
            make_random=make_random or _make_random,
            seed_costs=CostTable.from_mapping(costs or {}) or DEFAULT_COSTS,
        )

    def described(self) -> str:
        """The target, its context, and who drafts."""
        info = self.target.info
        return (
            f"target {info.name!r} of {info.vocab_size} tokens, {info.max_length} of context, "
            f"{type(self.drafter).__name__}"
        )

    def check_supported(self, params: SamplingParams) -> None:
        """Raise `UnsupportedOptionError` for an option this decoder cannot honour."""
        wanted = params.num_draft_tokens
        if wanted != "auto" and wanted > 0 and not self.has_drafter:
            raise UnsupportedOptionError(
                f"num_draft_tokens is {wanted} and this decoder has no drafter; "
                "use 0 or 'auto', or load it with a draft or drafter='ngram'"
            )
        if params.draft_temperature is not None and not self.has_draft_model:
            raise UnsupportedOptionError(
                f"draft_temperature is {params.draft_temperature} and this decoder has no "
                "draft model; leave it out"
            )
        if params.stop and self.codec is None:
            raise UnsupportedOptionError(
                f"stop is {list(params.stop)} and this decoder has no tokenizer; use stop_token_ids"
            )


def _make_random(params: SamplingParams) -> RoundRandom:
    return (CoupledRandom if params.verify == "coupled" else CounterRandom)(params.seed)


def _make_drafter(name: str, draft: Engine | None, shares_cache: bool) -> Drafter:
    if name == "none":
        return NoDrafter()
    if name == "ngram":
        return NgramDrafter()
    if draft is None:
        raise InvalidParameterError(
            f"drafter is {name!r} and there is no draft model; allowed is 'ngram' or 'none'"
        )
    model = ModelDrafter(draft, shares_cache=shares_cache)
    if name == "model":
        return model
    return HybridDrafter(NgramDrafter(), model, prefer_lookup=name == "hybrid")


def _check_pair(target: Engine, draft: Engine | None, shares_cache: bool) -> None:
    if draft is None:
        if shares_cache:
            raise InvalidParameterError(
                "shares_cache is True and there is no draft model; pass a draft or leave it out"
            )
    elif draft.info.vocab_size != target.info.vocab_size:
        raise InvalidParameterError(
            f"the draft has {draft.info.vocab_size} tokens and the target has "
            f"{target.info.vocab_size}; a pair needs the same tokenizer"
        )
