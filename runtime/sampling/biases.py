"""The biases of a request: a dict that does not change, so that parameters are a value.

It can be hashed, copied, pickled, written as JSON, and given to `dataclasses.asdict`.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["TokenBiases"]


class TokenBiases(dict[int, float]):
    """Token id -> what is added to its logit; every change raises TypeError."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenBiases, (dict(self),)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("the biases of SamplingParams do not change; make new SamplingParams")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
