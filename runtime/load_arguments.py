"""The arguments of `SpeculativeDecoder.load`, looked at before a file is."""

from __future__ import annotations

from specdec.engines.onnxruntime.options import MAX_THREADS, OrtOptions
from specdec.runtime.checks import check_bool, check_choice, check_integer, shown
from specdec.runtime.decoding.parts import DRAFTERS
from specdec.runtime.errors import InvalidParameterError

__all__ = ["check_load_arguments"]


def check_load_arguments(
    verify_checksums: object, num_threads: object, drafter: object, ort: object
) -> None:
    """Refuse arguments of the wrong kind or out of range.

    Raises:
        InvalidParameterError: names the argument, what was got and what is allowed.
    """
    check_bool("verify_checksums", verify_checksums)
    check_choice("drafter", drafter, DRAFTERS)
    if num_threads is not None:
        check_integer("num_threads", num_threads, 1, MAX_THREADS)
    if not isinstance(ort, OrtOptions):
        raise InvalidParameterError(f"ort is {shown(ort)}; allowed is OrtOptions")
