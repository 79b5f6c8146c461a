"""Doubles of what TensorRT's contexts are configured with: strategies, and the kernel cache."""

from __future__ import annotations

import enum

__all__ = ["Allocation", "Graphs", "RuntimeCache", "RuntimeConfig", "Specialization"]


class Allocation(enum.Enum):
    STATIC = 0
    USER_MANAGED = 2


class Specialization(enum.Enum):
    LAZY = 0
    EAGER = 1
    NONE = 2


class Graphs(enum.Enum):
    DISABLED = 0
    WHOLE_GRAPH_CAPTURE = 1


class RuntimeCache:
    def __init__(self) -> None:
        self.blob = b"compiled"

    def deserialize(self, blob: bytes) -> bool:
        if not blob.startswith(b"compiled"):
            return False
        self.blob = blob
        return True

    def serialize(self) -> bytes:
        return self.blob


class RuntimeConfig:
    def __init__(self) -> None:
        self.allocation = Allocation.STATIC
        self.dynamic_shapes_kernel_specialization_strategy = Specialization.LAZY
        self.cuda_graph_strategy = Graphs.DISABLED
        self.cache: RuntimeCache | None = None

    def set_execution_context_allocation_strategy(self, strategy: Allocation) -> None:
        self.allocation = strategy

    def create_runtime_cache(self) -> RuntimeCache:
        return RuntimeCache()

    def set_runtime_cache(self, cache: RuntimeCache) -> bool:
        self.cache = cache
        return True
