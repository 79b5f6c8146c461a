"""Write the graphs that reduce logits on their device: engines/onnxruntime/heads/*.onnx.

    python scripts/write_heads.py

They are a few hundred bytes each and kept in the repository, since the runtime that loads them
has no library to make them with. A test compares them with what this script writes.

The maximum of a row is read at the place that ArgMax or TopK found: on CUDA `ReduceMax` needs
cuDNN, which recent ONNX Runtimes do without, and reads the row once more.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import parser

from specdec.engines.storage.writing import write_file

FOLDER = Path(__file__).resolve().parent.parent / "engines" / "onnxruntime" / "heads"

_HEADER = '<ir_version: 9, opset_import: ["": 18], producer_name: "specdec">'
_REAL = """
  zero = Constant<value_ints = [0]> ()
  real = Slice (logits, zero, vocab_size, last)
"""
_BODIES = {
    "best": (
        "",
        "int64[1, N] ids, float[1, N] values, float[1, N] ties, float[1, N] total",
        """
  place = ArgMax<axis = 2, keepdims = 1> (real)
  ids = Squeeze (place, last)
  peak = GatherElements<axis = 2> (real, place)
  values = Squeeze (peak, last)
  is_best = Equal (real, peak)
  counted = Cast<to = 1> (is_best)
  ties = ReduceSum<keepdims = 0> (counted, last)
  total = ReduceSum<keepdims = 0> (real, last)
""",
    ),
    "top": (
        ", int64[1] count",
        "int64[1, N, C] ids, float[1, N, C] values, float[1, N] total",
        """
  values, ids = TopK<axis = 2> (real, count)
  total = ReduceSum<keepdims = 0> (real, last)
""",
    ),
    "mass": (
        ", int64[1] count, float[1] inverse_temperature",
        "int64[1, N, C] ids, float[1, N, C] values, double[1, N] mass",
        """
  values, ids = TopK<axis = 2> (real, count)
  first = Constant<value_ints = [0]> ()
  peak = Gather<axis = 2> (values, first)
  below = Sub (real, peak)
  scaled = Mul (below, inverse_temperature)
  weights = Exp (scaled)
  wide = Cast<to = 11> (weights)
  mass = ReduceSum<keepdims = 0> (wide, last)
""",
    ),
}


def graphs() -> dict[str, bytes]:
    """Serialized models by file name; "padded" ones leave the columns after the vocabulary out."""
    signature = "(float[1, N, W] logits) => (float[1, N, W] rows)"
    texts = {"full": f"{_HEADER} full {signature} {{ rows = Identity (logits) }}"}
    for name, (inputs, outputs, body) in _BODIES.items():
        last = "\n  last = Constant<value_ints = [2]> ()"
        plain = body.replace("real", "logits")
        texts[name] = _text(name, inputs, outputs, f"{last}{plain}")
        padded = f", int64[1] vocab_size{inputs}"
        texts[f"{name}_padded"] = _text(name, padded, outputs, f"{last}{_REAL}{body}")
    models = {}
    for name, text in texts.items():
        model = parser.parse_model(text)
        onnx.checker.check_model(model, full_check=True)
        models[f"{name}.onnx"] = model.SerializeToString(deterministic=True)
    return models


def _text(name: str, inputs: str, outputs: str, body: str) -> str:
    return f"{_HEADER} {name} (float[1, N, W] logits{inputs}) => ({outputs}) {{{body}}}"


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in graphs().items():
        write_file(FOLDER / name, content)


if __name__ == "__main__":
    main()
