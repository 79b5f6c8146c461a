"""ONNX Runtime's providers for a GPU: their options, and a check of which nodes they run."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.devices import TENSORRT, Device
from specdec.engines.errors import EngineError
from specdec.engines.onnxruntime.options import OrtOptions

__all__ = [
    "SESSION_ENTRIES",
    "TensorRTPlan",
    "check_assignment",
    "cuda_advice",
    "cuda_failure",
    "gpu_providers",
    "provider_name",
    "provider_options",
]

SESSION_ENTRIES = (
    "session.record_ep_graph_assignment_info",
    "session.use_device_allocator_for_initializers",  # weights outside the arena
)
"""Session configuration that is "1" on a GPU."""
FLASH, EFFICIENT, CUDNN, MATH = 1, 2, 8, 16
"""Attention kernels, by the bits of the provider's option `sdpa_kernel`."""
SDPA_KERNELS = str(FLASH | EFFICIENT | MATH)
"""Kernels that attention may use: all but cuDNN's. Left to itself ONNX Runtime takes cuDNN's on
compute capability 9.0 and later, which builds a plan for every number of rows it meets (55 ms to
1 s each, for each thread); any explicit value ends that choice."""
_COSTLY = {
    *("MatMul", "Gemm", "MatMulNBits", "MatMulInteger", "DynamicQuantizeMatMul", "FusedMatMul"),
    *("GroupQueryAttention", "Attention", "MultiHeadAttention"),
}
_TUNED_ROWS = 5
_FAILURE = re.compile(r"CUDA failure \d+: [^;]*")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TensorRTPlan:
    """How TensorRT's provider builds an engine from a graph of standard operators.

    Its shapes are stated, for without them the provider builds anew for every shape it meets.
    """

    inputs: Sequence[str]
    """Names of the graph's inputs."""
    most_rows: int
    """Most rows of a pass."""
    cache: Path | None
    """Where engines are kept; None builds one at every load."""

    def options(self, device: Device) -> dict[str, str]:
        """Options of the provider: a profile for 1 .. `most_rows` rows, and the cache."""
        rows = {"min": 1, "opt": min(_TUNED_ROWS, self.most_rows), "max": self.most_rows}
        chosen = {"device_id": str(device.index)}
        for bound, count in rows.items():
            shapes = {"input_ids": f"1x{count}", "position_ids": f"1x{count}", "logit_rows": count}
            chosen[f"trt_profile_{bound}_shapes"] = ",".join(
                f"{name}:{shape}" for name, shape in shapes.items() if name in self.inputs
            )
        if self.cache is not None:
            chosen |= {
                "trt_engine_cache_enable": "1",
                "trt_engine_cache_path": str(self.cache),
                "trt_timing_cache_enable": "1",
                "trt_timing_cache_path": str(self.cache),
            }
        return chosen

    def warn(self, name: str) -> None:
        """Log a warning when loading will build an engine, which takes minutes."""
        if self.cache is None:
            _log.warning(
                "building a TensorRT engine for the %s, at every load: name a load_cache "
                "to keep it",
                name,
            )
        elif not any(self.cache.glob("*.engine")):
            _log.warning("building a TensorRT engine for the %s, once, into %s", name, self.cache)


def cuda_advice(failure: str) -> str:
    """What to do about a result of `cuda_failure`."""
    if "out of memory" in failure:
        return "free some of its memory, or export with a smaller --max-length or precision"
    return "update the driver, or install an onnxruntime-gpu that was built for its CUDA version"


def cuda_failure(error: Exception) -> str | None:
    """CUDA's own words in an exception of ONNX Runtime, such as "CUDA failure 35: ..."."""
    found = _FAILURE.search(" ".join(str(error).split()))
    return None if found is None else found[0].strip()


def gpu_providers(
    device: Device, options: OrtOptions, tensorrt: TensorRTPlan | None = None
) -> list[Any]:
    """Providers in order of preference, each with its options."""
    first = [] if tensorrt is None else [(TENSORRT, tensorrt.options(device))]
    return [*first, (device.provider, provider_options(device, options)), "CPUExecutionProvider"]


def provider_name(provider: Any) -> str:
    """Name of an item of `gpu_providers`."""
    return provider if isinstance(provider, str) else str(provider[0])


def provider_options(device: Device, options: OrtOptions) -> dict[str, str]:
    """Options of the CUDA provider.

    FP32 products stay FP32 (TF32 keeps 10 bits of 23), attention is one of `SDPA_KERNELS`, and the
    arena grows by what is asked for: doubling it would waste an edge device's memory.
    """
    chosen = {
        "device_id": str(device.index),
        "use_tf32": "0",
        "arena_extend_strategy": "kSameAsRequested",
        "sdpa_kernel": SDPA_KERNELS,
    }
    if options.cuda_graphs:
        chosen["enable_cuda_graph"] = "1"
    if options.gpu_memory_limit is not None:
        chosen["gpu_mem_limit"] = str(options.gpu_memory_limit)
    return chosen


def check_assignment(session: Any, device: Device, name: str) -> None:
    """Refuse a session that runs attention or products on the CPU, beside its device.

    Small operators on the CPU (shapes, the look-up of a row) cost little and are common.

    Args:
        session: made with the assignment recorded.
        device: where its nodes should run, for messages.
        name: "target" or "draft", for messages.

    Raises:
        EngineError: some nodes of these kinds run elsewhere.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):  # before ONNX Runtime 1.24
        return
    elsewhere = Counter(
        node.op_type
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name == "CPUExecutionProvider"
        for node in part.get_nodes()
        if node.op_type in _COSTLY
    )
    if elsewhere:
        found = ", ".join(f"{count} {what}" for what, count in sorted(elsewhere.items()))
        raise EngineError(
            f"the {name} engine would leave parts of it to the CPU instead of {device}: {found}; "
            "export it for that device (--device cuda), or allow it with allow_cpu_fallback"
        )
