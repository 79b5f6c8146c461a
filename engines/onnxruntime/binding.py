"""I/O bindings of forward passes, with every buffer allocated once.

ONNX Runtime copies a bound input to the device that needs it when it is *bound*, not when the
graph runs. So an input that the GPU reads is a device buffer that is written before each pass,
and an input that the CPU reads is an array that the graph sees by address.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specdec.engines.devices import Device

__all__ = ["HOST", "BoundArray", "BoundPass", "Pass", "input_devices"]

HOST = Device("cpu")
"""Name of host memory."""
_HOST_INPUTS = {"total_sequence_length"}
"""Inputs that the attention node reads from host memory, on every device."""


def input_devices(session: Any, device: Device) -> dict[str, Device]:
    """Where the graph of a session reads each of its inputs.

    Args:
        session: an `onnxruntime.InferenceSession`.
        device: where it runs.
    """
    names = [node.name for node in session.get_inputs()]
    if device == HOST:
        return dict.fromkeys(names, HOST)
    places = {name: HOST if name in _HOST_INPUTS else device for name in names}
    if device.kind == "cuda" and hasattr(session, "get_input_memory_infos"):  # since 1.23
        for name, place in zip(names, session.get_input_memory_infos(), strict=True):
            places[name] = device if place.name == "Cuda" else HOST
    return places


class BoundArray:
    """A small array for the host to write and a graph to read or the other way round.

    Attributes:
        array: the host's side.
        value: the `onnxruntime.OrtValue` to bind.
        copied: bytes that one `send` moves between host and device.
    """

    def __init__(self, array: NDArray[Any], device: Device) -> None:
        """Keep `array` as it is on the host; elsewhere allocate a copy of it."""
        from onnxruntime import OrtValue

        self.array = array
        if device == HOST:
            self.value = OrtValue.ortvalue_from_numpy(array)  # shares the memory of the array
            self.copied = 0
        else:
            self.value = OrtValue.ortvalue_from_shape_and_type(
                array.shape, array.dtype, device.kind, device.index
            )
            self.value.update_inplace(array)
            self.copied = array.nbytes

    def send(self) -> int:
        """Bring the device's side up to date; returns the bytes moved."""
        if self.copied:
            self.value.update_inplace(self.array)
        return self.copied


class Pass(Protocol):
    """What an in-place engine asks of a prepared pass of M rows, N of them scored."""

    logits: Any
    """`OrtValue` float32 [1, N, logits_width] on the engine's device."""
    bytes_moved: int
    """Between host and device so far."""

    @property
    def logits_array(self) -> NDArray[np.float32] | None:
        """The memory of `logits` as an array on the CPU; None elsewhere."""
        ...

    def run(self, token_ids: NDArray[np.int64], past: int) -> None:
        """Append `token_ids` [1, M] after `past` cached tokens."""
        ...


class BoundPass:
    """A `Pass` of a graph of standard operators."""

    def __init__(
        self,
        session: Any,
        places: dict[str, Device],
        cache: dict[str, Any],
        *,
        device: Device,
        rows: int,
        num_logits: int,
        logits_width: int,
        fixed_total: int | None = None,
        run_options: Any = None,
    ) -> None:
        """Allocate and bind.

        Args:
            session: an `onnxruntime.InferenceSession` of an in-place graph.
            places: a result of `input_devices`.
            cache: `OrtValue` by full name of input or output, past and present alike.
            device: where logits are written.
            rows: M.
            num_logits: N, at least 1.
            logits_width: columns of the logits.
            fixed_total: value of `total_sequence_length` in every pass; None for the true one.
                A captured graph freezes what the CPU reads, and the attention node only plans
                its work by this number: rows past `seqlens_k` are masked.
            run_options: `onnxruntime.RunOptions` or None.
        """
        self._session, self._run_options = session, run_options
        self._fixed_total = fixed_total
        arrays: dict[str, NDArray[Any]] = {
            "input_ids": np.zeros((1, rows), np.int64),
            "position_ids": np.zeros((1, rows), np.int64),
            "seqlens_k": np.zeros(1, np.int32),
            "total_sequence_length": np.full(1, fixed_total or 0, np.int32),
            "logit_rows": np.arange(rows - num_logits, rows),
        }
        self._inputs = {
            name: BoundArray(array, places[name])
            for name, array in arrays.items()
            if name in places
        }
        self._written = [v for name, v in self._inputs.items() if name != "logit_rows"]
        self._steps = np.arange(rows)
        self.bytes_moved = 0
        self.logits_array: NDArray[np.float32] | None = None
        self.logits = self._logits((1, num_logits, logits_width), device)
        self._binding = session.io_binding()
        for name, bound in self._inputs.items():
            self._binding.bind_ortvalue_input(name, bound.value)
        self._binding.bind_ortvalue_output("logits", self.logits)
        for name, value in cache.items():
            bind = self._binding.bind_ortvalue_output
            (self._binding.bind_ortvalue_input if name in places else bind)(name, value)
        self._cache = cache  # bound by address: it lives as long as the binding

    def run(self, token_ids: NDArray[np.int64], past: int) -> None:
        """Append `token_ids` [1, M] after `past` cached tokens."""
        rows = token_ids.shape[1]
        self._write("input_ids", token_ids)
        self._write("position_ids", past + self._steps)
        self._write("seqlens_k", past + rows - 1)
        if self._fixed_total is None:
            self._write("total_sequence_length", past + rows)
        for bound in self._written:
            self.bytes_moved += bound.send()
        self._session.run_with_iobinding(self._binding, self._run_options)

    def _write(self, name: str, content: Any) -> None:
        bound = self._inputs.get(name)
        if bound is not None:
            bound.array[...] = content

    def _logits(self, shape: tuple[int, int, int], device: Device) -> Any:
        from onnxruntime import OrtValue

        if device == HOST:
            self.logits_array = np.zeros(shape, np.float32)
            return OrtValue.ortvalue_from_numpy(self.logits_array)
        return OrtValue.ortvalue_from_shape_and_type(shape, np.float32, device.kind, device.index)
