"""Keeps the libraries under the export off the screen."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

__all__ = ["quiet_libraries"]

_NOISY = ("transformers", "optimum", "torch", "onnx", "onnx_ir", "onnxruntime", "onnxscript")


@contextlib.contextmanager
def quiet_libraries(verbose: bool) -> Iterator[None]:
    """Keep stdout for results, and the libraries' own chatter off the screen.

    Args:
        verbose: let them write to stderr.
    """
    with contextlib.redirect_stdout(sys.stderr):
        if verbose:
            yield
            return
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("TQDM_DISABLE", "1")
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
