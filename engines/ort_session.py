"""Create ONNX Runtime sessions that run well beside each other.

Each session has its own thread pool, and idle pool threads spin for the next piece of work.
Spinning between the operators of one pass pays; spinning after a pass steals cores from the
other engine of a pair (on 2 cores it turned a 1.9x pair into a 0.9x one). So threads spin
during a run and are told to stop when it ends.
"""

from __future__ import annotations

import io
from collections import Counter
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from specdec.engines.devices import Device, require_provider
from specdec.engines.errors import EngineError
from specdec.engines.ort_cache import mapped_graph
from specdec.engines.ort_options import DEFAULT_ORT_OPTIONS, OrtOptions

__all__ = ["check_assignment", "create_session", "one_line", "provider_options"]

_RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
_WEIGHTS_OUTSIDE_ARENA = "session.use_device_allocator_for_initializers"
_COSTLY = {
    *("MatMul", "Gemm", "MatMulNBits", "MatMulInteger", "DynamicQuantizeMatMul", "FusedMatMul"),
    *("GroupQueryAttention", "Attention", "MultiHeadAttention"),
}


def create_session(
    graph: Path,
    *,
    name: str,
    device: Device,
    num_threads: int | None = None,
    options: OrtOptions = DEFAULT_ORT_OPTIONS,
    content: str | None = None,
) -> Any:
    """Load an ONNX file.

    Args:
        graph: the `.onnx` file; external data lies beside it.
        name: "target" or "draft", for messages.
        device: where to run.
        num_threads: threads of the CPU pool; None lets ONNX Runtime use the physical cores.
        options: all but `reduce_logits` count here.
        content: identifies the file and its weights in `options.load_cache`; None does not use it.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        MissingDependencyError: no ONNX Runtime, or one without the device's provider.
        DeviceError: the device is not on this machine.
        EngineError: the file cannot be loaded, or another provider would run it or, unless
            allowed, the parts of it that take the time.
    """
    require_provider(device)
    if device.kind == "cpu" and options.cuda_graphs:
        raise EngineError(
            f"cuda_graphs is True and the {name} engine runs on {device}; allowed is a GPU: leave "
            'it out, or choose device="cuda"'
        )
    if num_threads is not None and (type(num_threads) is not int or num_threads < 1):
        raise EngineError(f"num_threads is {num_threads!r}; allowed is None or at least 1")
    import onnxruntime

    session_options = _session_options(num_threads)
    path = graph
    if device.kind == "cuda":
        _find_cuda_libraries(onnxruntime)
        session_options.add_session_config_entry(_RECORD_ASSIGNMENT, "1")
        session_options.add_session_config_entry(_WEIGHTS_OUTSIDE_ARENA, "1")
    elif options.load_cache is not None and content is not None:
        path = mapped_graph(graph, options.load_cache, content, partial(_save, graph, name), name)
        session_options.graph_optimization_level = (
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        )
    try:
        session = onnxruntime.InferenceSession(
            str(path), session_options, providers=_providers(device, options)
        )
    except Exception as error:  # the binding raises a dozen unrelated classes
        if options.cuda_graphs and "graph capture" in str(error):
            raise EngineError(
                f"the {name} engine cannot be captured as CUDA graphs, since parts of it run on "
                f"the CPU; load without cuda_graphs ({one_line(error)})"
            ) from error
        raise _cannot_load(path, name, error) from error
    got = session.get_providers()[0]
    if got != device.provider:
        raise EngineError(
            f"the {name} engine would run on {got}, not on {device.provider} as device {device} "
            "asks; check the driver and the CUDA libraries, which "
            'pip install "onnxruntime-gpu[cuda,cudnn]" brings, or choose device="cpu"'
        )
    if device.kind == "cuda" and not options.allow_cpu_fallback:
        check_assignment(session, device, name)
    return session


def check_assignment(session: Any, device: Device, name: str) -> None:
    """Refuse a session that runs attention or products beside its device.

    Small operators on the CPU (shapes, the look-up of a row) cost little and are common.

    Args:
        session: made with the assignment recorded.
        device: where its nodes should run.
        name: "target" or "draft", for messages.

    Raises:
        EngineError: some nodes of these kinds run elsewhere.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):  # before ONNX Runtime 1.24
        return
    elsewhere = Counter(
        f"{node.op_type} on {part.ep_name}"
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name != device.provider
        for node in part.get_nodes()
        if node.op_type in _COSTLY
    )
    if elsewhere:
        found = ", ".join(f"{count} {what}" for what, count in sorted(elsewhere.items()))
        raise EngineError(
            f"the {name} engine would run partly beside {device}: {found}; export it for that "
            "device (--device), or allow it with allow_cpu_fallback"
        )


def one_line(error: BaseException, limit: int = 300) -> str:
    """The message of a backend's exception, white space collapsed, at most `limit` long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _save(graph: Path, name: str, out: Path) -> None:
    """Write the graph as this ONNX Runtime optimizes it for this CPU, its weights packed."""
    import onnxruntime

    options = _session_options(None)
    options.optimized_model_filepath = str(out)
    for entry, value in (
        ("optimized_model_external_initializers_file_name", f"{out.name}.data"),
        ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{entry}", value)
    try:
        onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the binding raises a dozen unrelated classes
        raise _cannot_load(graph, name, error) from error


def _cannot_load(graph: Path, name: str, error: Exception) -> EngineError:
    import onnxruntime

    return EngineError(
        f"ONNX Runtime {onnxruntime.__version__} cannot load the {name} engine "
        f"{graph.name}: {one_line(error)}"
    )


def _session_options(num_threads: int | None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # A graph with DequantizeLinear computes what it says, as TensorRT does: no integer kernels.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def _find_cuda_libraries(onnxruntime: Any) -> None:
    """Load CUDA and cuDNN from NVIDIA's Python packages, where those are installed."""
    if hasattr(onnxruntime, "preload_dlls"):
        with redirect_stdout(io.StringIO()):  # it prints what it does not find
            onnxruntime.preload_dlls()


def _providers(device: Device, options: OrtOptions) -> list[Any]:
    if device.kind == "cpu":
        return [device.provider]
    return [(device.provider, provider_options(device, options)), "CPUExecutionProvider"]


def provider_options(device: Device, options: OrtOptions) -> dict[str, str]:
    """What the CUDA provider is asked for.

    FP32 products stay FP32 (TF32 keeps 10 bits of 23), and the arena grows by what is asked for:
    doubling it would waste an edge device's memory.
    """
    chosen = {
        "device_id": str(device.index),
        "use_tf32": "0",
        "arena_extend_strategy": "kSameAsRequested",
    }
    if options.cuda_graphs:
        chosen["enable_cuda_graph"] = "1"
    if options.gpu_memory_limit is not None:
        chosen["gpu_mem_limit"] = str(options.gpu_memory_limit)
    return chosen
