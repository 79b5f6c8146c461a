"""The runtime inside a host program: a C library for C and C++, and buffers for Python.

    python -m specdec.runtime.embed build --out DIR     libspecdec.so, headers, CMake package

`TokenDecoder` is the loop for hosts that bring their own engines (docs/embedding.md). Hosts use
this folder and nothing else imports it; it may use the rest of the runtime and cffi.
"""

from specdec.runtime.embed.buffers import view
from specdec.runtime.embed.errors import (
    BadArgumentError,
    BadHandleError,
    BuildError,
    CallbackError,
    EmbedError,
)
from specdec.runtime.embed.token_decoder import BufferEngine, TokenDecoder, TokenOutcome

__all__ = [
    "BadArgumentError",
    "BadHandleError",
    "BufferEngine",
    "BuildError",
    "CallbackError",
    "EmbedError",
    "TokenDecoder",
    "TokenOutcome",
    "view",
]
