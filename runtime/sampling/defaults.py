"""A model's own generation defaults: bans that always hold, and options to start from.

`suppress_tokens` and `begin_suppress_tokens` belong to the model: an end of another modality, a
blank at the start. They are bans like `logit_bias` of `-inf`, so speculation stays exact. The
sampling options are a taste of the model's authors and apply when a request asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.runtime.sampling.params import SamplingParams

__all__ = ["NO_DEFAULTS", "ModelDefaults"]


@dataclass(frozen=True)
class ModelDefaults:
    """What the package of a model says beside its weights.

    Raises:
        InvalidParameterError: `sampling` holds what `SamplingParams` refuses.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Options of `SamplingParams`."""
    suppress_tokens: tuple[int, ...] = ()
    """Ids that are never chosen."""
    begin_suppress_tokens: tuple[int, ...] = ()
    """Ids that are not chosen as the first token of an output."""

    def __post_init__(self) -> None:
        SamplingParams.from_dict(self.sampling)

    def params(self, options: Mapping[str, Any]) -> SamplingParams:
        """The model's sampling options, with those of a request in their place.

        Raises:
            UnsupportedOptionError, InvalidParameterError: as `SamplingParams.from_dict`.
        """
        return SamplingParams.from_dict({**self.sampling, **options})


NO_DEFAULTS = ModelDefaults()
"""Of a model that says nothing."""
