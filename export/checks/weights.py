"""Hold the weights of a written engine against the bytes of the files they came from.

A few values of every parameter are picked in the source (`StoredTensor.at`), found again in the
graph (transposed, packed beside others, in FP16, or quantized) and compared:

    float32, float16     equal after the same rounding
    quantized by s       |s (q - z) - w| <= 1.5 s

Neither the loaded model nor anything that made the graph has a part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from specdec.export.checks.stored_values import Found, values_at
from specdec.export.editing.model import TRANSPOSED
from specdec.export.sources.accounting import Accounting
from specdec.export.sources.stored import StoredTensor, spots

__all__ = ["ComparedWeights", "compare_weights", "source_record"]

_SPOTS = 16
_STEPS = 1.5
"""Quantization steps a value may be off: half a step, and one more where the range was clipped or
the scale was searched for."""
_TURNED = (TRANSPOSED, "_Transposed")
"""What follows the name of a matrix whose axes are exchanged: our own mark, and the one of ONNX
Runtime's quantizer."""
_PACKED = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class ComparedWeights:
    """What the comparison found."""

    num_parameters: int
    """Parameters of the source that were found in the graph and compared."""
    num_values: int
    not_found: tuple[str, ...] = ()
    """Parameters that the graph holds under no name of theirs."""
    different: tuple[str, ...] = ()
    """Parameters with a value that is another one in the graph."""

    def record(self) -> dict[str, int]:
        """Counts for the manifest."""
        return {
            "parameters_compared": self.num_parameters,
            "values_compared": self.num_values,
            "not_found": len(self.not_found),
        }

    def problems(self, name: str) -> list[str]:
        """What is wrong with the engine called `name`, a line each."""
        if not self.different:
            return []
        return [
            f"the {name} engine holds other weights than its source: {len(self.different)} "
            f"parameters differ ({self.different[0]} is the first)"
        ]


def source_record(
    accounted: Mapping[str, Accounting], compared: Mapping[str, ComparedWeights]
) -> tuple[dict[str, dict[str, int]], list[str]]:
    """What is known of where the weights come from.

    Args:
        accounted: "target" and "draft" to their sources, as far as those could be accounted for.
        compared: the same names to what comparing the engines found, where they could be.

    Returns:
        Counts by name for the manifest, and what is wrong.
    """
    record = {}
    for name, source in accounted.items():
        found = compared.get(name)
        record[name] = source.record() | ({} if found is None else found.record())
    return record, [line for name, found in compared.items() for line in found.problems(name)]


def compare_weights(graph: Path, accounted: Accounting) -> ComparedWeights:
    """Compare spot values of every parameter.

    Args:
        graph: the engine's `.onnx` file, its weights beside it.
        accounted: of the source.
    """
    weights = dict(ir.load(graph).graph.initializers)
    held = _held(weights, accounted)
    different, not_found, compared = [], [], 0
    for name, stored in accounted.parameters.items():
        place = held.get(name)
        if place is None:
            if not any(twin in held for twin in accounted.twins(name)):
                not_found.append(name)
            continue
        positions = spots(int(np.prod(stored.shape)), _SPOTS)
        compared += len(positions)
        if not _agree(stored, positions, place):
            different.append(name)
    count = len(accounted.parameters) - len(not_found)
    return ComparedWeights(count, compared, tuple(not_found), tuple(different))


@dataclass(frozen=True)
class _Place:
    """Where a parameter is in the graph."""

    weight: ir.Value
    turned: bool
    """Whether rows and columns are exchanged."""
    first_column: int = 0
    """Of a packed matrix or vector, where this parameter begins."""


def _held(weights: dict[str, ir.Value], accounted: Accounting) -> dict[str, _Place]:
    """For each parameter the initializer whose name begins with its own."""
    named = {name: tensor.shape for name, tensor in accounted.parameters.items()}
    found: dict[str, _Place] = {}
    for key, weight in weights.items():
        name = next((n for n in _beginnings(key) if n in named), None)
        if name is None or weight.const_value is None or _is_other(key[len(name) :]):
            continue
        after = key[len(name) :]
        turned = after.startswith(_TURNED)
        if not after.removeprefix(TRANSPOSED).startswith((".packed", "_packed")):
            found[name] = _Place(weight, turned)
            continue
        column = 0
        for part in _PACKED:
            sibling = name.replace(_PACKED[0], part)
            if sibling not in named:
                continue
            found[sibling] = _Place(weight, turned, column)
            column += named[sibling][0]
    return found


def _beginnings(key: str) -> list[str]:
    """What a name may begin with, the longest first."""
    cuts = [index for index, letter in enumerate(key) if letter in "._"]
    return [key, *(key[:cut] for cut in reversed(cuts))]


def _is_other(after: str) -> bool:
    """Whether the rest of a name tells of a scale, a zero point, or another order of the values."""
    return any(word in after for word in ("scale", "zero_point", "_zp", ".panels"))


def _agree(stored: StoredTensor, positions: NDArray[np.int64], place: _Place) -> bool:
    index = [np.asarray(axis, np.int64) for axis in np.unravel_index(positions, stored.shape)]
    if place.turned:
        index = index[::-1]
    index[-1] = index[-1] + place.first_column
    found: Found = values_at(place.weight, tuple(index))
    wanted = stored.at(positions)
    if found.steps is None:
        rounded = wanted.astype(found.values.dtype)
        return bool(np.array_equal(found.values, rounded, equal_nan=True))
    off = np.abs(found.values.astype(np.float32) - wanted)
    return bool((off <= _STEPS * found.steps + 1e-6).all())
