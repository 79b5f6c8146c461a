"""How a server behaves, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.runtime.errors import InvalidParameterError

__all__ = ["ServerSettings", "read_keys"]


@dataclass(frozen=True)
class ServerSettings:
    """Limits and rights of a server."""

    model: str
    """The name under which requests ask for the model."""
    api_keys: frozenset[str] = frozenset()
    """One of them must come as a bearer token; none lets everybody in."""
    max_body_bytes: int = 2_000_000
    """Bytes of a request."""
    max_seconds: float = 600.0
    """Longest time of a request, waiting included; requests may ask for less."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the server from a browser; none by default."""

    def __post_init__(self) -> None:
        if not self.model or not self.model.isprintable():
            raise InvalidParameterError(f"model is {self.model!r}; allowed is a printable name")
        if self.max_body_bytes < 1000:
            raise InvalidParameterError(
                f"max_body_bytes is {self.max_body_bytes}; allowed is 1000 or more"
            )
        if not self.max_seconds > 0:
            raise InvalidParameterError(f"max_seconds is {self.max_seconds}; allowed is above 0")
        for key in self.api_keys:
            if not key.isascii() or not key.isprintable() or not key.strip() or " " in key:
                raise InvalidParameterError(
                    "an API key is empty or has spaces or other than printable ASCII characters; "
                    "allowed is one key a line"
                )


def read_keys(path: Path) -> frozenset[str]:
    """The keys of a file, one a line; empty lines do not count.

    Raises:
        InvalidParameterError: it cannot be read, or holds no key.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameterError(
            f"{path} cannot be read as a file of API keys ({error}); allowed is UTF-8 text with "
            "one key a line"
        ) from error
    keys = frozenset(line.strip() for line in lines if line.strip())
    if not keys:
        raise InvalidParameterError(f"{path} holds no key; allowed is one key a line")
    return keys
