"""Base class of objects with a `close`, which makes `with` blocks close them."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

__all__ = ["Closing"]

_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """Base of classes whose `with` block ends with `close`."""

    def close(self) -> None:
        """Release what is held. Idempotent."""
        raise NotImplementedError

    def described(self) -> str:
        """A few words on what it is and holds, for `repr`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.described()}>"

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
