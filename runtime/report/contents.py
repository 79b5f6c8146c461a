"""Records of a report: figures with their units, and a verdict in words.

Everything is measured on one machine, from the finished engines; only `target_vs_original`
needs what the export noted of the original weights. Times are seconds, sizes are bytes,
speed-ups are relative to plain decoding with the same target on the same machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Acceptance",
    "Agreement",
    "Alternative",
    "Candidate",
    "ContextCosts",
    "ContextMemory",
    "Costs",
    "Decision",
    "GreedyPair",
    "Level",
    "Machine",
    "Measured",
    "Memory",
    "Parity",
    "Prediction",
    "Quality",
    "Report",
    "RoundSplit",
    "Verdict",
]

Level = Literal["short", "full"]
Decision = Literal["worth it", "not worth it", "unsafe", "no draft"]


@dataclass(frozen=True)
class Machine:
    """The machine on which the figures were measured."""

    cpu: str
    cores: int
    """Logical CPUs this process may use."""
    memory_bytes: int | None
    system: str
    python: str
    onnxruntime: str
    device: str
    """Where the target ran."""
    draft_device: str | None
    num_threads: int | None
    """CPU threads of each engine; null is ONNX Runtime's own choice."""
    copy_bytes_per_second: float
    """Speed of copying memory with all cores, bytes read plus bytes written."""


@dataclass(frozen=True)
class ContextCosts:
    """Medians of engine passes after a number of cached tokens."""

    context: int
    draft_seconds: float | None
    """One drafted token, inside the draft engine."""
    verify_seconds: dict[int, float]
    """The verify curve: a pass of the target by its rows; one row is a plain step."""


@dataclass(frozen=True)
class ContextMemory:
    """Memory of weights and used cache at one context length."""

    context: int
    bytes: int


@dataclass(frozen=True)
class Memory:
    """What the pair needs once loaded, computed from the package; caches are allocated whole."""

    target_weights: int
    draft_weights: int
    kv_per_token: int
    """Keys and values of one token, of every cache."""
    capacity: int
    """Tokens the target's cache holds."""
    by_context: tuple[ContextMemory, ...]
    resident: int | None
    """Memory of the measuring process with both engines loaded; null where unknown."""


@dataclass(frozen=True)
class Costs:
    """The measured cost model."""

    contexts: tuple[ContextCosts, ...]
    host_seconds_plain: float
    """Work outside the engines per plain step, greedy."""
    host_seconds_round: float | None
    """Work outside the engines per speculative round at the measured K, greedy."""
    load_seconds: float
    memory: Memory
    target_bytes_per_pass: int
    """Weights a plain step reads, in the precision of the arithmetic."""
    target_bytes_per_second: float
    """The same over the time of a plain step: compare with `copy_bytes_per_second`."""


@dataclass(frozen=True)
class Agreement:
    """How far one distribution of the next token is from another, over our own texts."""

    tokens: int
    kl_divergence: float
    """Mean KL(reference || engine) in nats."""
    argmax_agreement: float
    """Share of positions with the same likeliest token."""
    overlap: float
    """Mean of sum min(P, Q): the acceptance of one sampled token."""
    perplexity: float
    reference_perplexity: float


@dataclass(frozen=True)
class Parity:
    """One row a pass against several rows a pass, of the same target."""

    rows: int
    tokens: int
    max_logit_difference: float
    logit_span: float
    """Largest minus smallest logit, for scale."""
    argmax_agreement: float


@dataclass(frozen=True)
class GreedyPair:
    """Greedy texts of the pair against the target alone."""

    texts: int
    equal: int
    tokens: int
    largest_margin: float | None
    """Where texts differ: distance of the target's two best logits there, the largest."""


@dataclass(frozen=True)
class Acceptance:
    """Drafted tokens that were accepted, by position in the round."""

    category: str
    """A category of the prompts, or "all"."""
    temperature: float
    rounds: int
    by_position: tuple[tuple[int, int], ...]
    """(evaluated, accepted) of the first, second, ... drafted token."""


@dataclass(frozen=True)
class Quality:
    """Comparisons of what the engines compute."""

    target_vs_original: Agreement | None
    """The target engine against the original weights; null when the package does not hold them."""
    draft_vs_target: Agreement | None
    """The draft, on the cache it really uses, against the target."""
    draft_alone_vs_target: Agreement | None
    """The draft on a cache of its own, as a model by itself."""
    parity: Parity
    greedy: GreedyPair | None
    acceptance: tuple[Acceptance, ...]


@dataclass(frozen=True)
class Prediction:
    """Speed-up by K, from costs and acceptance."""

    category: str
    temperature: float
    speedup: dict[int, float]
    """By number of drafted tokens, for long texts."""
    best: int
    """The smallest K within 1 % of the largest speed-up."""
    acceptance_rate: float
    break_even: float | None
    """Acceptance per token at which the best K only equals plain decoding; null is never."""


@dataclass(frozen=True)
class Measured:
    """Speed-up in paired, interleaved runs of the whole loop."""

    category: str
    temperature: float
    num_draft_tokens: str
    """The number, or "auto"."""
    runs: int
    tokens: int
    plain_tokens_per_second: float
    tokens_per_second: float
    speedup: float
    low: float
    """95 % bootstrap interval of the speed-up."""
    high: float
    predicted: float | None
    """From costs and acceptance, for texts as long as these; null for "auto"."""


@dataclass(frozen=True)
class RoundSplit:
    """Where the time of a greedy round goes."""

    num_draft_tokens: int
    tokens: float
    """Committed per round."""
    draft_seconds: float
    verify_seconds: float
    host_seconds: float


@dataclass(frozen=True)
class Alternative:
    """A configuration that a user could run instead."""

    name: str
    tokens_per_second: float
    relative_speed: float
    """To the target alone."""
    overlap: float
    """Mean sum min(P, Q) with the target's distribution; 1 is the same distribution."""
    kl_divergence: float
    same_tokens: float
    """Median number of tokens after which its greedy text leaves the target's."""
    of_tokens: float
    """Median length of those texts."""


@dataclass(frozen=True)
class Candidate:
    """One draft recipe that `--draft-precision auto` tried."""

    recipe: str
    bytes: int
    """Of the draft on disk."""
    draft_seconds: float
    acceptance_rate: float
    num_draft_tokens: int
    """Its best K."""
    speedup: float
    """Predicted, greedy."""
    tokens_per_second: float
    problem: str | None
    """Why it could not be measured; its figures are then 0."""


@dataclass(frozen=True)
class Verdict:
    """The answer."""

    decision: Decision
    headline: str
    """One sentence."""
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    """Changes that would lead to another verdict, or what to do."""


@dataclass(frozen=True)
class Report:
    """Is this pair safe, and is it worth it on this machine?"""

    format: Literal[1]
    created: str
    """ISO 8601, UTC."""
    level: Level
    specdec_version: str
    machine: Machine
    costs: Costs
    quality: Quality
    predictions: tuple[Prediction, ...]
    measured: tuple[Measured, ...]
    split: RoundSplit | None
    alternatives: tuple[Alternative, ...]
    candidates: tuple[Candidate, ...]
    """The recipes tried for the draft, the best first; empty when the caller chose one."""
    verdict: Verdict
