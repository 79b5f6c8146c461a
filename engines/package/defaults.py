"""The record of a model's own generation defaults: what its authors ship beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec.engines.package.fields import array_of, check_record, integer, object_of_numbers, text

__all__ = ["GenerationEntry"]

_MAX_TOKENS = 2**24


@dataclass(frozen=True)
class GenerationEntry:
    """What a `generation_config.json` says, as far as it concerns the choice of tokens.

    Raises:
        PackageError: a field has the wrong type or is out of range.
    """

    sampling: Mapping[str, float] = field(default_factory=dict, metadata=object_of_numbers())
    """Options of `SamplingParams` by name; they apply when a request asks for them."""
    suppress_tokens: tuple[int, ...] = field(
        default=(), metadata=array_of(integer(0, _MAX_TOKENS - 1))
    )
    """Ids that are never chosen."""
    begin_suppress_tokens: tuple[int, ...] = field(
        default=(), metadata=array_of(integer(0, _MAX_TOKENS - 1))
    )
    """Ids that are not chosen as the first token of an output."""
    not_honoured: tuple[str, ...] = field(default=(), metadata=array_of(text()))
    """Names of the file's other settings that would change the output."""

    def __post_init__(self) -> None:
        check_record(self)
        object.__setattr__(self, "sampling", dict(self.sampling))
        for name in ("suppress_tokens", "begin_suppress_tokens", "not_honoured"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to say."""
        return self == GenerationEntry()
