"""Create ONNX Runtime sessions that run well beside each other.

Each session has its own thread pool, and idle pool threads spin for the next piece of work.
Spinning between the operators of one pass saves time; after a pass it takes cores from the
other engine of a pair (on 2 cores it turned a 1.9x pair into a 0.9x one). So threads spin
during a run and are told to stop when it ends.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from specdec.engines.devices import Device, require_provider
from specdec.engines.errors import DeviceError, EngineError, one_line
from specdec.engines.forking import outlive_forks
from specdec.engines.onnxruntime.gpu import (
    SESSION_ENTRIES,
    TensorRTPlan,
    check_assignment,
    cuda_advice,
    cuda_failure,
    find_cuda_libraries,
    gpu_providers,
    provider_name,
)
from specdec.engines.onnxruntime.huge_pages import on_huge_pages
from specdec.engines.onnxruntime.load_cache import discard, mapped_graph
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, MAX_THREADS, OrtOptions

__all__ = ["create_session"]

_log = logging.getLogger(__name__)


def create_session(
    graph: Path,
    *,
    name: str,
    device: Device,
    num_threads: int | None = None,
    options: OrtOptions = DEFAULT_ORT_OPTIONS,
    content: str | None = None,
    tensorrt: TensorRTPlan | None = None,
    library: Path | None = None,
) -> Any:
    """Load an ONNX file.

    Args:
        graph: the `.onnx` file; external data lies beside it.
        name: "target" or "draft", for messages.
        device: where to run.
        num_threads: threads of the CPU pool; None lets ONNX Runtime use the physical cores.
        options: all but `reduce_logits` count here.
        content: identifies the file and its weights in `options.load_cache`; None does not use it.
        tensorrt: let TensorRT's provider run it on a GPU.
        library: of native operators, for a graph over them. Its weights stay pages of the file,
            so huge pages and `options.load_cache` have nothing to do.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        MissingDependencyError: no ONNX Runtime, or one without the device's provider.
        DeviceError: the device is not on this machine, or CUDA's libraries are not.
        EngineError: the file cannot be loaded, or another provider would run it or, unless
            allowed, the parts of it that take the time.
    """
    require_provider(device)
    if num_threads is not None and (
        type(num_threads) is not int or not 1 <= num_threads <= MAX_THREADS
    ):
        raise EngineError(f"num_threads is {num_threads!r}; allowed is None or 1 .. {MAX_THREADS}")
    import onnxruntime

    session_options = _session_options(num_threads)
    providers: list[Any] = [device.provider]
    if device.kind == "cuda":
        find_cuda_libraries(device)
        for entry in SESSION_ENTRIES:
            session_options.add_session_config_entry(entry, "1")
        providers = gpu_providers(device, options, tensorrt)
    elif library is not None:
        session_options.register_custom_ops_library(str(library))
    elif options.load_cache is not None and content is not None:
        session = _load_mapped(graph, options.load_cache, content, name, num_threads)
        if session is not None:
            outlive_forks(session)
            return session
    try:
        with on_huge_pages(device.kind == "cpu" and options.huge_pages and library is None):
            session = onnxruntime.InferenceSession(
                str(graph), session_options, providers=providers, enable_fallback=0
            )
    except Exception as error:  # the binding raises a dozen unrelated classes
        if options.cuda_graphs and device.kind == "cuda" and "graph capture" in str(error):
            raise EngineError(
                f"the {name} engine cannot be captured as CUDA graphs, since parts of it run on "
                f"the CPU; load without cuda_graphs ({one_line(error)})"
            ) from error
        if device.kind == "cuda" and (failure := cuda_failure(error)):
            raise DeviceError(
                f"ONNX Runtime {onnxruntime.__version__} cannot use {device}: {failure}; "
                f"{cuda_advice(failure)}"
            ) from error
        raise _cannot_load(graph, name, error) from error
    outlive_forks(session)
    got, wanted = session.get_providers()[0], provider_name(providers[0])
    if got != wanted:
        raise EngineError(
            f"the {name} engine would run on {got}, not on {wanted} as device {device} "
            "asks; check the driver and the CUDA libraries, which "
            'pip install "onnxruntime-gpu[cuda,cudnn]" brings, or choose device="cpu"'
        )
    if device.kind == "cuda" and not options.allow_cpu_fallback:
        check_assignment(session, device, name)
    return session


def _load_mapped(graph: Path, cache: Path, content: str, name: str, num_threads: int | None) -> Any:
    """A session over the cached form of a graph; None when that form does not load."""
    import onnxruntime

    mapped = mapped_graph(graph, cache, content, partial(_save, graph, name), name)
    options = _session_options(num_threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(
            str(mapped), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # damaged on disk, whatever the binding says of it
        _log.warning("the cached %s engine does not load (%s); making none", name, one_line(error))
        discard(mapped)
        return None


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
