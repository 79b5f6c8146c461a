"""Build a TensorRT engine from a standard ONNX graph; one path for both TensorRT libraries.

The graph states every type (strongly typed network), so building only chooses kernels. The rows
of a pass are the one dynamic size. A profile is a range of rows that is tuned at one point of it:

    rows 1 .. 33         verification of K drafted tokens (K + 1 rows) and plain steps, tuned at 1
    rows 1 .. chunk      a prompt, tuned at the chunk

An own profile for M = 1 would give every weight matrix a second layout in the engine (a 135M
FP16 engine grows from 346 to 592 MB), so single rows belong to the first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.storage.writing import write_file
from specdec.engines.tensorrt.library import collecting_logger, import_tensorrt
from specdec.export.errors import EngineBuildError, ExportOptionError
from specdec.export.progress import StepHandle
from specdec.export.tensorrt.build_progress import BuildProgress

__all__ = ["BuiltEngine", "EngineBuild", "Profile", "build_engine", "known_capabilities"]

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Profile:
    """A range of rows that the builder tunes for."""

    lowest: int
    tuned: int
    highest: int
    scored: int
    """Most rows whose logits one pass gives."""


@dataclass(frozen=True)
class EngineBuild:
    """How to build."""

    backend: str
    """"tensorrt" or "tensorrt-rtx"."""
    profiles: tuple[Profile, ...]
    compute_capabilities: tuple[str, ...] = ()
    """Such as ("8.6", "8.9"); for "tensorrt" none: it builds for the GPU it runs on."""
    timing_cache: Path | None = None
    """Measured kernel times, read if the file exists and written after the build ("tensorrt")."""


@dataclass(frozen=True)
class BuiltEngine:
    """What was built."""

    version: str
    compute_capabilities: tuple[str, ...]
    seconds: float


def build_engine(graph: Path, out: Path, build: EngineBuild, step: StepHandle) -> BuiltEngine:
    """Build `graph` and write the engine to `out`.

    Args:
        graph: a standard ONNX graph, its weights beside it.
        out: the file to write; it appears only when the engine is complete.
        build: how to build.
        step: is advanced from 0 to 1.

    Raises:
        MissingDependencyError: the TensorRT library is not installed.
        ExportOptionError: a compute capability that the library does not know.
        EngineBuildError: the graph is not accepted, or the build fails.
        KeyboardInterrupt: Ctrl-C; the build has ended.
    """
    trt = import_tensorrt(build.backend)
    capabilities = known_capabilities(trt, build)
    logger = collecting_logger(trt)
    with _explained(graph, logger, trt):
        builder = trt.Builder(logger)
        typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(typed)
        parser = trt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(graph)):
            raise EngineBuildError(_parser_problem(parser, graph, trt))
        config = builder.create_builder_config()
        for profile in build.profiles:
            config.add_optimization_profile(_profile(builder, network, profile))
        names = _set_capabilities(trt, config, capabilities)
        cache = _load_timing_cache(config, build.timing_cache)
        progress = BuildProgress(step.advance)
        config.progress_monitor = _monitor(trt, progress)
        started = time.perf_counter()
        plan = _interruptibly(lambda: builder.build_serialized_network(network, config), progress)
        seconds = time.perf_counter() - started
    if plan is None:
        raise EngineBuildError(
            f"{trt.__name__} {trt.__version__} cannot build {graph.name}: {logger.reason()}"
        )
    write_file(out, memoryview(plan))
    if cache is not None and build.timing_cache is not None:
        write_file(build.timing_cache, memoryview(cache.serialize()))
    return BuiltEngine(trt.__version__, names, seconds)


def known_capabilities(trt: Any, build: EngineBuild) -> list[Any]:
    """The library's own values for the capabilities of `build`; none for "tensorrt".

    Raises:
        ExportOptionError: it does not know one.
    """
    if build.backend == "tensorrt":
        return []
    known = {
        f"{name[2:-1]}.{name[-1]}": value
        for name, value in trt.ComputeCapability.__members__.items()
        if name.startswith("SM")
    }
    allowed = ", ".join(sorted(known, key=float))
    unknown = [name for name in build.compute_capabilities if name not in known]
    if unknown:
        raise ExportOptionError(
            f"compute capability {', '.join(unknown)} is not known to {trt.__name__} "
            f"{trt.__version__}; allowed are {allowed}"
        )
    return [known[name] for name in build.compute_capabilities]


def _set_capabilities(trt: Any, config: Any, capabilities: list[Any]) -> tuple[str, ...]:
    if not capabilities:
        from specdec.engines.cuda_driver import CudaDevice

        return (CudaDevice(0).compute_capability,)
    config.num_compute_capabilities = len(capabilities)
    for index, capability in enumerate(capabilities):
        config.set_compute_capability(capability, index)
    return tuple(f"{c.name[2:-1]}.{c.name[-1]}" for c in capabilities)


def _profile(builder: Any, network: Any, profile: Profile) -> Any:
    made = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        value = network.get_input(index)
        shape = tuple(value.shape)
        if -1 not in shape:
            continue
        if value.name == "logit_rows":
            sizes = (1, min(profile.tuned, profile.scored), profile.scored)
        else:
            sizes = (profile.lowest, profile.tuned, profile.highest)
        filled = [tuple(size if axis == -1 else axis for axis in shape) for size in sizes]
        made.set_shape(value.name, *filled)
    return made


def _load_timing_cache(config: Any, path: Path | None) -> Any:
    if path is None:
        return None
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    config.set_timing_cache(cache, ignore_mismatch=True)
    return cache


def _monitor(trt: Any, progress: BuildProgress) -> Any:
    """TensorRT's progress monitor over `progress`; it is called by the building thread."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            super().__init__()

        def phase_start(self, phase: str, parent: str | None, num_steps: int) -> None:
            progress.start(phase, parent, num_steps)

        def step_complete(self, phase: str, step: int) -> bool:
            return progress.complete(phase, step)

        def phase_finish(self, phase: str) -> None:
            progress.finish(phase)

    return Monitor()


def _interruptibly(build: Callable[[], Any], progress: BuildProgress) -> Any:
    """Run `build` in a thread, so that Ctrl-C reaches this one and can stop it."""
    results: list[Any] = []
    failures: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            results.append(build())
        except BaseException as error:  # handed to the caller's thread
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, name="tensorrt-build")
    thread.start()
    try:
        # Not Thread.join: one that is interrupted takes the thread for finished (Python < 3.13).
        while not ended.wait(_POLL_SECONDS):
            pass
    except BaseException:
        progress.stop()
        ended.wait()
        raise
    finally:
        thread.join()
    if failures:
        raise failures[0]
    return results[0]


@contextmanager
def _explained(graph: Path, logger: Any, trt: Any) -> Iterator[None]:
    """Turn what the binding raises (TypeError for "no device", for one) into one line."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, MemoryError) as error:
        raise EngineBuildError(
            f"{trt.__name__} {trt.__version__} cannot build {graph.name} here: {logger.reason()} "
            f"({' '.join(str(error).split())[:120]})"
        ) from error


def _parser_problem(parser: Any, graph: Path, trt: Any) -> str:
    reasons = [parser.get_error(index) for index in range(parser.num_errors)]
    first = reasons[0]
    where = f"{first.node_operator()} {first.node_name()}" if first.node_operator() else "the file"
    return (
        f"{trt.__name__} {trt.__version__} does not accept {graph.name}: {where}: "
        f"{' '.join(first.desc().split())[:200]}"
    )
