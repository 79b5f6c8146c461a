"""The public names, the error tree, and what importing the runtime must not pull in."""

from __future__ import annotations

import subprocess
import sys

import specdec.runtime
from specdec.runtime import errors

HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "optimum", "jinja2", "click", "rich")


def test_importing_the_runtime_is_light() -> None:
    program = (
        f"import sys, specdec.runtime; print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_names_are_sorted_and_there() -> None:
    names = specdec.runtime.__all__
    assert names == sorted(names)
    assert all(hasattr(specdec.runtime, name) for name in names)


def test_the_error_tree_is_drawn_in_full_with_unique_codes() -> None:
    classes = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(cls, errors.SpecdecError) for cls in classes)
    codes = {cls.__name__: cls.code for cls in classes}
    assert len(set(codes.values())) == len(codes)
    drawn = {}
    for line in errors.__doc__.splitlines():
        words = line.replace("|", " ").replace("+--", " ").split()
        if len(words) >= 2 and words[0].endswith("Error") and words[1].isdigit():
            drawn[words[0]] = int(words[1])
    assert drawn == codes
    assert issubclass(errors.PromptError, ValueError)
    assert issubclass(errors.InvalidParameterError, ValueError)
