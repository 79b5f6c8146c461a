"""Give freed memory back to the system between the large steps of an export."""

from __future__ import annotations

import ctypes
import gc
import sys

__all__ = ["release_memory"]


def release_memory() -> None:
    """Collect garbage and, with glibc, trim its heap.

    The GGUF reader leaves hundreds of megabytes of freed blocks in the heap, on top of which the
    next step's peak would sit.
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
