"""Read the logits of a pass: copy them to the host, or reduce them on their device.

The graphs in `heads/` read the logits where the engine wrote them. Their results are arrays on
the host, allocated once for each shape, so a round moves kilobytes instead of megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.devices import Device
from specdec.engines.onnxruntime.binding import HOST, Pass
from specdec.engines.onnxruntime.session import create_session
from specdec.engines.reduction import ReducedRow, Reduction

__all__ = ["LogitsHead"]

_FOLDER = Path(__file__).with_name("heads")
_KEPT_CALLS = 128


class LogitsHead:
    """The reductions of one engine.

    Attributes:
        bytes_moved: from the device to the host so far.
    """

    def __init__(self, name: str, device: Device, vocab_size: int, logits_width: int) -> None:
        """Prepare; graphs are loaded when first needed.

        Args:
            name: "target" or "draft", for messages.
            device: where the logits are.
            vocab_size: real tokens: columns from there on are padding.
            logits_width: columns.
        """
        self._name, self._device = name, device
        self._vocab_size, self._padded = vocab_size, logits_width > vocab_size
        self._sessions: dict[str, Any] = {}
        self._calls: dict[tuple[int, Reduction | None], _Call] = {}
        self.bytes_moved = 0

    def full(self, bound: Pass) -> NDArray[np.float32]:
        """The logits of the last pass, float32 [1, N, logits_width]; overwritten by the next."""
        if bound.logits_array is not None:
            return bound.logits_array
        rows: NDArray[np.float32] = self._run(bound, None)["rows"]
        return rows

    def reduced(self, bound: Pass, reduction: Reduction) -> list[ReducedRow]:
        """The same, reduced; valid until the next pass."""
        found = self._run(bound, reduction)
        checks = found.get("mass", found.get("total"))
        assert checks is not None, "every reduction has one of them"
        rows = checks.shape[1]
        ids, values = (found[name].reshape(rows, -1) for name in ("ids", "values"))
        masses = found.get("mass")
        ties = found.get("ties")

        def row(index: int) -> ReducedRow:
            best = values[index]
            unique = best[:1] > best[1:2] if ties is None else ties[0, index : index + 1] == 1
            return ReducedRow(
                ids=ids[index],
                values=best,
                is_unique=bool(unique.all()),
                checksum=float(checks[0, index]),
                mass=None if masses is None else float(masses[0, index]),
                full=lambda: self.full(bound)[0, index],
            )

        return [row(index) for index in range(rows)]

    def forget(self, bound: Pass) -> None:
        """Release the bindings of a pass."""
        for key in [key for key in self._calls if key[0] == id(bound)]:
            del self._calls[key]

    def close(self) -> None:
        """Release all bindings and graphs."""
        self._calls.clear()
        self._sessions.clear()

    def _run(self, bound: Pass, reduction: Reduction | None) -> dict[str, NDArray[Any]]:
        """Reduce, or with None copy."""
        key = (id(bound), reduction)
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= _KEPT_CALLS:
                self._calls.pop(next(iter(self._calls)))
            call = self._calls[key] = self._bind(bound, reduction)
        call.session.run_with_iobinding(call.binding)
        if self._device != HOST:
            self.bytes_moved += sum(array.nbytes for array in call.outputs.values())
        return call.outputs

    def _bind(self, bound: Pass, reduction: Reduction | None) -> _Call:
        from onnxruntime import OrtValue

        shape = tuple(bound.logits.shape())
        kind, inputs, outputs = _signature(shape, reduction)
        if self._padded and kind != "full":
            kind, inputs["vocab_size"] = f"{kind}_padded", np.array([self._vocab_size])
        session = self._session(kind)
        binding = session.io_binding()
        binding.bind_ortvalue_input("logits", bound.logits)
        for name, array in inputs.items():  # constant for a call: read, or copied, once
            binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, OrtValue.ortvalue_from_numpy(array))
        return _Call(session, binding, inputs, outputs)

    def _session(self, graph: str) -> Any:
        if graph not in self._sessions:
            self._sessions[graph] = create_session(
                _FOLDER / f"{graph}.onnx", name=self._name, device=self._device, num_threads=1
            )
        return self._sessions[graph]


@dataclass(frozen=True)
class _Call:
    """One reduction of one pass, bound."""

    session: Any
    binding: Any
    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]


def _signature(
    shape: tuple[int, ...], reduction: Reduction | None
) -> tuple[str, dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """(graph, constant inputs, outputs) for logits of `shape`."""
    if reduction is None:
        return "full", {}, {"rows": np.zeros(shape, np.float32)}
    rows, count = shape[1], reduction.count
    inputs: dict[str, NDArray[Any]] = {"count": np.array([count])}
    wide: tuple[int, ...] = (1, rows, count)
    kind, check = "top", np.zeros((1, rows), np.float32)
    if reduction.temperature is not None:
        kind, check = "mass", np.zeros((1, rows), np.float64)
        inputs["inverse_temperature"] = np.array([1.0 / reduction.temperature], np.float32)
    elif count == 1:
        kind, inputs, wide = "best", {}, (1, rows)
    outputs: dict[str, NDArray[Any]] = {
        "ids": np.zeros(wide, np.int64),
        "values": np.zeros(wide, np.float32),
        "mass" if kind == "mass" else "total": check,
    }
    if kind == "best":
        outputs["ties"] = np.zeros((1, rows), np.float32)
    return kind, inputs, outputs
