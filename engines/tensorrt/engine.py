"""`Engine` over TensorRT: the graph contract of `engines.onnxruntime`, on device buffers.

    input_ids     int64 [1, M]          seqlens_k    int32 [1], length + M - 1
    position_ids  int64 [1, M]          logit_rows   int64 [N]
    past_key_values.<i>.key|value and present.<i>.key|value: one device buffer each
    logits        float32 [1, N, width]

Everything is allocated once: device buffers for the widest pass, pinned host arrays beside them,
one execution context a profile, scratch memory that all contexts use, one stream. A pass queues one
copy of all its inputs, which lie in one block, and its execution on the stream; only a pass whose
logits are wanted is waited for, so that a prompt is prefilled, and a draft catches up, while the
host goes on. Truncation changes one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.engine import EngineInfo, check_forward
from specdec.engines.errors import DeviceError, EngineError, one_line
from specdec.engines.in_place import PAST, PRESENT, InPlaceEngine
from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.tensorrt.contexts import RuntimeCache, make_context, scratch_bytes
from specdec.engines.tensorrt.passes import Pass, plan_passes

__all__ = ["DeviceCache", "TensorRTEngine", "free_cache"]


@dataclass
class DeviceCache:
    """Keys and values of one model on a GPU, and the stream that orders who touches them."""

    device: CudaDevice
    stream: int
    buffers: dict[str, int]
    """Device address by "<layer>.key" and "<layer>.value"."""
    length: int = 0


@dataclass(frozen=True)
class _Buffer:
    """One input or output: its device memory and the pinned host array of the same size."""

    address: int
    host: NDArray[Any]


_ALIGNMENT = 256
"""Of the addresses that TensorRT takes."""


@dataclass
class _Buffers:
    """The buffers of an engine; freed together.

    Attributes:
        inputs: the block that holds all inputs.
        scratch: address of the memory that contexts compute in.
    """

    device: CudaDevice
    by_name: dict[str, _Buffer] = field(default_factory=dict)
    blocks: list[_Buffer] = field(default_factory=list)
    scratch: int = 0

    @property
    def inputs(self) -> _Buffer:
        return self.blocks[0]

    def add(self, parts: dict[str, tuple[int, Any]]) -> None:
        """Allocate a block on both sides that holds (elements, dtype) by name."""
        places: dict[str, int] = {}
        end = 0
        for name, (size, dtype) in parts.items():
            places[name] = end
            num_bytes = size * np.dtype(dtype).itemsize
            end += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        address = self.device.allocate(end)
        try:
            block = _Buffer(address, self.device.pinned((end,), np.uint8))
        except BaseException:
            self.device.free(address)
            raise
        self.blocks.append(block)
        for name, (size, dtype) in parts.items():
            place = places[name]
            host = block.host[place : place + size * np.dtype(dtype).itemsize].view(dtype)
            self.by_name[name] = _Buffer(address + place, host)

    def free(self) -> None:
        """Free everything, once."""
        self.by_name.clear()
        while self.blocks:
            block = self.blocks.pop()
            self.device.free(block.address)
            self.device.free_pinned(block.host)
        if self.scratch:
            self.device.free(self.scratch)
            self.scratch = 0


class TensorRTEngine(InPlaceEngine[DeviceCache]):
    """One TensorRT engine behind the `Engine` protocol; see `specdec.engines.engine`."""

    def __init__(
        self,
        engine: Any,
        info: EngineInfo,
        profiles: TensorRTEntry,
        cache: DeviceCache,
        prefill_chunk: int,
        *,
        owns_cache: bool,
        trt: Any,
        kernels: RuntimeCache | None = None,
    ) -> None:
        """Make contexts and buffers for a deserialized engine.

        Args:
            engine: a TensorRT `ICudaEngine` whose interface has been checked.
            info: static facts.
            profiles: the record of its build.
            cache: the key and value buffers.
            prefill_chunk: rows per pass that suit a long prompt.
            owns_cache: free the cache, its stream and the GPU on `close`.
            trt: the module of the library.
            kernels: what TensorRT-RTX compiled; it is saved on `close`.
        """
        super().__init__(info, cache, prefill_chunk)
        self._entry = profiles
        self._owns_cache = owns_cache
        self._engine = engine
        self._trt, self._kernels = trt, kernels
        self._buffers = _Buffers(cache.device)
        self._contexts: list[Any] = []
        self._shapes: list[tuple[int, int]] = []
        self._busy = False
        try:
            self._allocate()
            for index in range(len(profiles.profiles)):
                self._contexts.append(self._make_context(index))
                self._shapes.append((0, 0))
        except BaseException:
            self._buffers.free()
            raise

    def forward(self, token_ids: NDArray[np.int64], num_logits: int) -> NDArray[np.float32]:
        """See `Engine.forward`; logits of one pass are a view of the pinned output array.

        A failure of a pass that was not waited for shows at the next one that is.
        """
        if not self._contexts:
            raise EngineError(f"the {self._info.name} engine is closed; load the package again")
        past = self._cache.length
        rows = check_forward(self._info, past, token_ids, num_logits)
        passes = plan_passes(self._entry, rows, num_logits)
        scored: list[NDArray[np.float32]] = []
        start = 0
        try:
            self._cache.device.activate()
            for step in passes:
                logits = self._run(step, token_ids[0, start : start + step.rows], past + start)
                start += step.rows
                if step.scored:
                    scored.append(logits if step is passes[-1] and not scored else logits.copy())
        except (DeviceError, RuntimeError, TypeError, ValueError) as error:
            raise EngineError(
                f"the {self._info.name} engine failed on {rows} rows at position {past}: "
                f"{one_line(error)}"
            ) from error
        self._cache.length = past + rows
        if not scored:
            return np.zeros((1, 0, self._info.logits_width), np.float32)
        return scored[0] if len(scored) == 1 else np.concatenate(scored, axis=1)

    def close(self) -> None:
        """Free contexts, buffers and, unless shared, the cache. Idempotent."""
        if not self._contexts:
            return
        device = self._cache.device
        device.activate()
        device.synchronize(self._cache.stream)
        if self._kernels is not None:
            self._kernels.save()
        self._contexts.clear()
        self._engine = None
        self._buffers.free()
        if self._owns_cache:
            free_cache(self._cache)

    def _allocate(self) -> None:
        rows = max(highest for _, _, highest in self._entry.profiles)
        scored = max(self._entry.scored_rows)
        names = {
            self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)
        }
        inputs: dict[str, tuple[int, Any]] = {
            "seqlens_k": (1, np.int32),
            "input_ids": (rows, np.int64),
            "position_ids": (rows, np.int64),
            "logit_rows": (scored, np.int64),
        }
        self._buffers.add({name: part for name, part in inputs.items() if name in names})
        self._buffers.add({"logits": (scored * self._info.logits_width, np.float32)})
        self._scratch_bytes = scratch_bytes(self._engine, len(self._entry.profiles))
        self._buffers.scratch = self._cache.device.allocate(max(self._scratch_bytes, 1))

    def _make_context(self, profile: int) -> Any:
        highest = self._entry.profiles[profile][2]
        context = make_context(self._trt, self._engine, highest, self._kernels, self._info.name)
        if context is None:
            raise EngineError(
                f"TensorRT cannot make a context for the {self._info.name} engine, most likely "
                "for lack of device memory; free some, or export with a smaller --max-length"
            )
        context.set_device_memory(self._buffers.scratch, self._scratch_bytes)
        accepted = context.set_optimization_profile_async(profile, self._cache.stream)
        self._cache.device.synchronize(self._cache.stream)
        for name, buffer in self._buffers.by_name.items():
            accepted = context.set_tensor_address(name, buffer.address) and accepted
        for name, address in self._cache.buffers.items():
            for prefix in (PAST, PRESENT):
                accepted = context.set_tensor_address(prefix + name, address) and accepted
        if not accepted:
            raise EngineError(
                f"TensorRT refuses the buffers of the {self._info.name} engine; export it again"
            )
        return context

    def _run(self, step: Pass, token_ids: NDArray[np.int64], past: int) -> NDArray[np.float32]:
        """Queue one pass; wait for it and return its logits [1, scored, width] if it scores."""
        device, stream = self._cache.device, self._cache.stream
        if self._busy:  # the pinned inputs may still be read by the last pass
            device.synchronize(stream)
            self._busy = False
        outputs = max(step.scored, 1)
        inputs: dict[str, NDArray[Any]] = {
            "input_ids": token_ids,
            "position_ids": np.arange(past, past + step.rows),
            "seqlens_k": np.array([past + step.rows - 1], np.int32),
            "logit_rows": np.arange(step.rows - outputs, step.rows),
        }
        self._busy = True
        for name, values in inputs.items():
            buffer = self._buffers.by_name.get(name)
            if buffer is not None:
                host = buffer.host[: values.shape[0]]
                host[:] = values
        block = self._buffers.inputs
        device.to_device(block.address, block.host, stream)
        self._set_shapes(step.profile, step.rows, outputs)
        if not self._contexts[step.profile].execute_async_v3(stream):
            raise RuntimeError("TensorRT could not queue the pass")
        if not step.scored:
            return np.zeros((1, 0, self._info.logits_width), np.float32)
        output = self._buffers.by_name["logits"]
        logits: NDArray[np.float32] = output.host[: step.scored * self._info.logits_width]
        device.to_host(logits, output.address, stream)
        device.synchronize(stream)
        self._busy = False
        return logits.reshape(1, step.scored, self._info.logits_width)

    def _set_shapes(self, profile: int, rows: int, outputs: int) -> None:
        """Tell a context the dynamic sizes, if they changed."""
        if self._shapes[profile] == (rows, outputs):
            return
        self._shapes[profile] = (0, 0)
        context = self._contexts[profile]
        accepted = context.set_input_shape("input_ids", (1, rows))
        if "position_ids" in self._buffers.by_name:
            accepted = context.set_input_shape("position_ids", (1, rows)) and accepted
        if not (context.set_input_shape("logit_rows", (outputs,)) and accepted):
            raise RuntimeError(f"TensorRT refuses {rows} rows in profile {profile}")
        self._shapes[profile] = (rows, outputs)


def free_cache(cache: DeviceCache) -> None:
    """Free the buffers and the stream of a cache, and give the GPU back."""
    while cache.buffers:
        _, address = cache.buffers.popitem()
        cache.device.free(address)
    cache.device.destroy_stream(cache.stream)
    cache.device.leave()
