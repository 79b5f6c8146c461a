"""Create ONNX Runtime sessions that run well beside each other.

Each session has its own thread pool, and idle pool threads spin for the next piece of work.
Spinning between the operators of one pass pays; spinning after a pass steals cores from the
other engine of a pair (on 2 cores it turned a 1.9x pair into a 0.9x one). So threads spin
during a run and are told to stop when it ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec.engines.devices import Device, require_provider
from specdec.engines.errors import EngineError

__all__ = ["create_session", "one_line"]


def create_session(
    graph: Path, *, name: str, device: Device, num_threads: int | None = None
) -> Any:
    """Load an ONNX file.

    Args:
        graph: the `.onnx` file; external data lies beside it.
        name: "target" or "draft", for messages.
        device: where to run.
        num_threads: threads of the CPU pool; None lets ONNX Runtime use the physical cores.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        MissingDependencyError: no ONNX Runtime, or one without the device's provider.
        DeviceError: the device is not on this machine.
        EngineError: the file cannot be loaded, or another provider would run it.
    """
    require_provider(device)
    if num_threads is not None and (type(num_threads) is not int or num_threads < 1):
        raise EngineError(f"num_threads is {num_threads!r}; allowed is None or at least 1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # A graph with DequantizeLinear computes what it says, as TensorRT does: no integer kernels.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        session = onnxruntime.InferenceSession(str(graph), options, providers=_providers(device))
    except Exception as error:  # the binding raises a dozen unrelated classes
        raise EngineError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load the {name} engine "
            f"{graph.name}: {one_line(error)}"
        ) from error
    got = session.get_providers()[0]
    if got != device.provider:
        raise EngineError(
            f"the {name} engine would run on {got}, not on {device.provider} as device {device} "
            'asks; check the driver and CUDA libraries, or choose device="cpu"'
        )
    return session


def one_line(error: BaseException, limit: int = 300) -> str:
    """The message of a backend's exception, white space collapsed, at most `limit` long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _providers(device: Device) -> list[Any]:
    if device.kind == "cpu":
        return [device.provider]
    return [(device.provider, {"device_id": device.index}), "CPUExecutionProvider"]
