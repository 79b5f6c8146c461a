"""Check that the engines of a package fit on their GPUs, before the first is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec.engines.cuda_driver import CudaDevice, require_memory, visiting
from specdec.engines.devices import Device
from specdec.engines.package.entries import EngineEntry

__all__ = ["Need", "check_gpu_memory"]

_LOADED_ON: set[Device] = set()


@dataclass(frozen=True)
class Need:
    """One engine that is about to be loaded."""

    name: str
    """"target" or "draft"."""
    graph: Path
    """The `.onnx` file; external data lies beside it."""
    entry: EngineEntry
    device: Device
    own_cache: bool = True
    """False when it uses another engine's KV cache."""

    @property
    def num_bytes(self) -> int:
        """What it takes at least: weights, cache, and one row of logits."""
        weights = sum(path.stat().st_size for path in self.graph.parent.glob(f"{self.graph.name}*"))
        if self.entry.storage == "fp16" and self.entry.compute == "fp32":
            weights *= 2  # cast once, when the graph is loaded
        cache = self.entry.kv_cache_bytes if self.own_cache else 0
        return weights + cache + 4 * self.entry.logits_width


def check_gpu_memory(
    needs: Sequence[Need], open_device: Callable[[int], CudaDevice] = CudaDevice
) -> None:
    """Compare what ONNX Runtime engines need with what each GPU has free.

    TensorRT engines check for themselves: their size is known only to their own loader.

    Args:
        needs: engines that will be loaded together.
        open_device: opens GPU number N.

    Raises:
        DeviceError: a GPU has less free than its engines need.
    """
    # What ONNX Runtime keeps of engines that were closed it will use again, but nobody can ask how
    # much that is: only the first load of a process on a GPU can be judged.
    on_gpus = [
        need
        for need in needs
        if need.device.kind == "cuda"
        and need.entry.backend.startswith("onnxruntime")
        and need.device not in _LOADED_ON
    ]
    for device in sorted({need.device for need in on_gpus}):
        here = [need for need in on_gpus if need.device == device]
        names = " and ".join(need.name for need in here)
        who = f"the {names} {'engine needs' if len(here) == 1 else 'engines need'}"
        with visiting(device.index, open_device) as gpu:
            require_memory(gpu, sum(need.num_bytes for need in here), who, device)
        _LOADED_ON.add(device)
