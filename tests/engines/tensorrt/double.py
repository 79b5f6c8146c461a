"""Doubles of the device calls alone: CUDA's driver over host memory, TensorRT over ONNX Runtime.

The driver queues what is asynchronous and runs it only when the stream is waited for, so that a
pinned array that is reused too early, or read before a wait, gives wrong numbers here as it would
on a GPU. The execution context computes the standard graph for real, through the addresses it was
given. Everything between is the code under test.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from tests.engines.tensorrt.double_config import (
    Allocation,
    Graphs,
    RuntimeCache,
    RuntimeConfig,
    Specialization,
)

__all__ = ["DoubleDriver", "make_module"]


class DataType(enum.Enum):
    FLOAT = np.float32
    HALF = np.float16
    INT32 = np.int32
    INT64 = np.int64


_TYPES = {
    "tensor(float)": DataType.FLOAT,
    "tensor(float16)": DataType.HALF,
    "tensor(int32)": DataType.INT32,
    "tensor(int64)": DataType.INT64,
}


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


class DoubleDriver:
    """`libcuda` as `CudaDevice` uses it; addresses are host addresses."""

    def __init__(self, *, capability: str = "8.9", free: int = 2**30, gpus: int = 1) -> None:
        self.capability, self.free_bytes, self.gpus = capability, free, gpus
        self.calls: list[str] = []
        self.live: dict[int, Any] = {}
        self.queues: dict[int, list[Callable[[], None]]] = {0: []}
        """Work by stream; 0 is the default stream, for which no other waits."""
        self.contexts = self.current = 0
        self.integrated = False
        self.fail: dict[str, int] = {}
        """Name of a call -> error code that it returns from now on."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)
        work = getattr(type(self), f"do_{name.removesuffix('_v2')}")

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.fail:
                return self.fail[name]
            return work(self, *arguments) or 0

        return call

    def do_cuInit(self, flags: int) -> None:  # noqa: N802
        assert flags == 0

    def do_cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count._obj.value = self.gpus

    def do_cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = index
        return 0 if index < self.gpus else 101

    def do_cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:  # noqa: N802
        self.contexts += 1
        context._obj.value = 7

    def do_cuDevicePrimaryCtxRelease(self, device: Any) -> None:  # noqa: N802
        self.contexts -= 1

    def do_cuCtxGetCurrent(self, context: Any) -> None:  # noqa: N802
        context._obj.value = self.current

    def do_cuCtxSetCurrent(self, context: Any) -> None:  # noqa: N802
        self.current = _number(context)
        assert self.current in (0, 7, 11)

    def do_cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> None:  # noqa: N802
        if attribute == 18:
            value._obj.value = int(self.integrated)
            return
        value._obj.value = int(self.capability.split(".")[{75: 0, 76: 1}[attribute]])

    def do_cuMemGetInfo(self, free: Any, total: Any) -> None:  # noqa: N802
        free._obj.value, total._obj.value = self.free_bytes, 2**33

    def _allocate(self, pointer: Any, size: Any) -> None:
        wanted = max(_number(size), 1)
        memory = ctypes.create_string_buffer(b"\xff" * (wanted + 255))
        address = -(-ctypes.addressof(memory) // 256) * 256  # as the driver's are
        pointer._obj.value = address
        self.live[address] = memory

    def do_cuMemAlloc(self, pointer: Any, size: Any) -> None:  # noqa: N802
        self._allocate(pointer, size)

    def do_cuMemHostAlloc(self, pointer: Any, size: Any, flags: int) -> None:  # noqa: N802
        self._allocate(pointer, size)

    def do_cuMemsetD8(self, address: Any, value: Any, size: Any) -> None:  # noqa: N802
        numbers = (_number(address), _number(value), _number(size))
        self.queues[0].append(lambda: ctypes.memset(*numbers) and None)

    def do_cuMemFree(self, address: Any) -> None:  # noqa: N802
        del self.live[_number(address)]

    def do_cuMemFreeHost(self, address: Any) -> None:  # noqa: N802
        del self.live[_number(address)]

    def do_cuStreamCreate(self, stream: Any, flags: int) -> None:  # noqa: N802
        stream._obj.value = 1000 + len(self.queues)
        self.queues[stream._obj.value] = []

    def do_cuStreamDestroy(self, stream: Any) -> None:  # noqa: N802
        assert self.queues.pop(_number(stream)) == []

    def do_cuStreamSynchronize(self, stream: Any) -> None:  # noqa: N802
        queue = self.queues[_number(stream)]
        while queue:
            queue.pop(0)()

    def do_cuMemcpyHtoDAsync(self, to: Any, source: Any, size: Any, stream: Any) -> None:  # noqa: N802
        self._copy(to, source, size, stream)

    def do_cuMemcpyDtoHAsync(self, to: Any, source: Any, size: Any, stream: Any) -> None:  # noqa: N802
        self._copy(to, source, size, stream)

    def _copy(self, to: Any, source: Any, size: Any, stream: Any) -> None:
        numbers = (_number(to), _number(source), _number(size))
        self.queues[_number(stream)].append(lambda: ctypes.memmove(*numbers) and None)

    def do_cuGetErrorString(self, code: int, text: Any) -> None:  # noqa: N802
        text._obj.value = b"out of memory" if code == 2 else b"invalid device ordinal"


class _Context:
    def __init__(self, engine: _Engine) -> None:
        self.engine, self.profile = engine, -1
        self.addresses: dict[str, int] = {}
        self.scratch = (0, 0)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        assert stream in self.engine.driver.queues
        self.profile = profile
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        assert memory in self.engine.driver.live
        self.scratch = (memory, size)

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address % 256 == 0
        self.addresses[name] = address
        return name in self.engine.nodes

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        lowest, _, highest = self.engine.profiles[self.profile]
        if name == "logit_rows":
            lowest, highest = 1, self.engine.scored[self.profile]
        self.shapes[name] = shape
        return lowest <= shape[-1] <= highest

    def execute_async_v3(self, stream: int) -> bool:
        shapes = dict(self.shapes)
        assert self.scratch[1] >= self.engine.scratch_sizes[self.profile]
        assert self.addresses.keys() == self.engine.nodes.keys()
        self.engine.driver.queues[stream].append(lambda: self._execute(shapes))
        self.engine.executed.append((self.profile, shapes["input_ids"][1]))
        return not self.engine.refuses

    def _execute(self, shapes: dict[str, tuple[int, ...]]) -> None:
        session = self.engine.session
        feeds = {node.name: self._array(node, shapes).copy() for node in session.get_inputs()}
        names = [node.name for node in session.get_outputs()]
        for node, value in zip(session.get_outputs(), session.run(names, feeds), strict=True):
            self._array(node, {"logits": value.shape})[...] = value

    def _array(self, node: Any, shapes: dict[str, tuple[int, ...]]) -> np.ndarray:
        shape = shapes.get(node.name, tuple(node.shape))
        dtype = np.dtype(_TYPES[node.type].value)
        size = int(np.prod(shape)) * dtype.itemsize
        memory = (ctypes.c_ubyte * size).from_address(self.addresses[node.name])
        return np.frombuffer(memory, dtype).reshape(shape)


class _Engine:
    """An `ICudaEngine` whose file holds the path of its ONNX graph."""

    def __init__(self, graph: str, module: Any) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        self.session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )
        self.nodes = {n.name: n for n in (*self.session.get_inputs(), *self.session.get_outputs())}
        self.names = list(self.nodes)
        self.num_io_tensors = len(self.names)
        self.driver, self.profiles, self.scored = module.driver, module.profiles, module.scored
        self.num_optimization_profiles = len(self.profiles)
        self.executed = module.executed
        self.refuses = False
        self.scratch_sizes = [1000 * (index + 1) for index in range(len(self.profiles))]
        self.contexts: list[tuple[_Context, Any]] = []
        """With the strategy or configuration that each was made with."""
        module.engines.append(self)

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_dtype(self, name: str) -> DataType:
        return _TYPES[self.nodes[name].type]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(size if isinstance(size, int) else -1 for size in self.nodes[name].shape)

    def get_device_memory_size_for_profile_v2(self, index: int) -> int:
        return self.scratch_sizes[index]

    def create_runtime_config(self) -> RuntimeConfig:
        return RuntimeConfig()

    def create_execution_context(self, how: Any) -> _Context | None:
        managed = getattr(how, "allocation", how)
        assert managed is Allocation.USER_MANAGED
        self.contexts.append((_Context(self), how))
        return self.contexts[-1][0]


class _Logger:
    class Severity(enum.IntEnum):
        ERROR = 1

    def __init__(self) -> None:
        pass


def make_module(driver: DoubleDriver, version: str, entry: Any) -> Any:
    """A `tensorrt_rtx` whose engines have the profiles of the manifest record `entry`."""
    module = SimpleNamespace(__name__="tensorrt_rtx", __version__=version, DataType=DataType)
    module.ILogger = _Logger
    module.ExecutionContextAllocationStrategy = Allocation
    module.DynamicShapesKernelSpecializationStrategy = Specialization
    module.CudaGraphStrategy, module.IRuntimeCache = Graphs, RuntimeCache
    module.driver, module.profiles, module.scored = driver, entry.profiles, entry.scored_rows
    module.executed, module.engines = [], []

    class Runtime:
        def __init__(self, logger: Any) -> None:
            self.logger = logger

        def deserialize_cuda_engine(self, plan: bytes) -> _Engine | None:
            if not Path(plan.decode()).is_file():
                self.logger.log(_Logger.Severity.ERROR, "magic tag does not match")
                return None
            return _Engine(plan.decode(), module)

    module.Runtime = Runtime
    return module
