"""`TensorRTEngine` with real numbers: ONNX Runtime computes behind doubles of the device calls."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.devices import Device
from specdec.engines.errors import (
    ContextOverflowError,
    DeviceError,
    EngineError,
    MissingDependencyError,
)
from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.package.manifest import EngineEntry
from specdec.engines.tensorrt.contexts import make_context
from specdec.engines.tensorrt.engine import TensorRTEngine
from specdec.engines.tensorrt.load import load_tensorrt_engine
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.engines.tensorrt.double import DoubleDriver, make_module
from tests.export.tiny_models import VOCABULARY
from tests.support.graphs import Traced, logits, trace_tiny

VERSION = "1.7.1.116"
IDS = np.random.default_rng(3).integers(2, VOCABULARY, (1, 70))
NOISE = 5e-3
"""FP16 rounding between widths, in logits that span about 10."""
BUILT = TensorRTEntry(
    version=VERSION,
    compute_capabilities=("8.6", "8.9"),
    profiles=((1, 1, 1), (1, 5, 9), (1, 32, 32)),
    scored_rows=(1, 9, 1),
    precisions={"projections": "fp16"},
    build_seconds=1.5,
)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    found = trace_tiny("gpt2", tmp_path_factory.mktemp("engine"))  # reads position_ids, too
    assert found is not None
    found.write("fp16")
    found.write("int8")
    return found


@dataclass
class Machine:
    """A machine with one GPU, by the doubles."""

    traced: Traced
    driver: DoubleDriver
    module: Any
    folder: Path

    def entry(self, precision: str = "fp16") -> tuple[Path, EngineEntry]:
        graph, entry = self.traced.write(precision)
        path = self.folder / f"{precision}.engine"
        path.write_text(str(graph))
        changes = {"backend": "tensorrt-rtx", "graph": path.name, "tensorrt": BUILT}
        return path, replace(entry, prefill_chunk=32, **changes)

    def load(self, precision: str = "fp16", **options: Any) -> TensorRTEngine:
        path, entry = self.entry(precision)
        entry = replace(entry, **options.pop("changes", {}))
        options = {"name": "target", "device": Device("cuda")} | options
        opened = lambda index: CudaDevice(index, self.driver)  # noqa: E731
        return load_tensorrt_engine(path, entry, open_device=opened, **options)


@pytest.fixture
def machine(traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    driver = DoubleDriver()
    module = make_module(driver, VERSION, BUILT)
    monkeypatch.setitem(__import__("sys").modules, "tensorrt_rtx", module)
    yield Machine(traced, driver, module, tmp_path)
    gc.collect()
    assert driver.live == {}, "device or pinned memory leaks"
    assert driver.queues == {0: []}, "a stream leaks, or zeros were not waited for"
    assert driver.current == 0, "a context that was given back is still current"
    assert driver.contexts == 0, "the GPU's context leaks"


def test_logits_are_those_of_the_graph(machine: Machine) -> None:
    expected = logits(machine.traced.standard("fp16"), IDS, 70)
    engine = machine.load()
    for rows in (70, 32, 9, 5, 1):
        assert np.abs(logits(engine, IDS, rows) - expected).max() < NOISE, rows
    engine.truncate(20)
    assert engine.length == 20
    assert np.abs(engine.forward(IDS[:, 20:29], 4)[0] - expected[25:29]).max() < NOISE
    engine.close()
    engine.close()


def test_a_pass_without_logits_is_not_waited_for(machine: Machine) -> None:
    engine = machine.load()
    machine.driver.calls.clear()
    engine.forward(IDS[:, :30], 0)
    assert "cuStreamSynchronize" not in machine.driver.calls
    assert "cuMemcpyDtoHAsync_v2" not in machine.driver.calls
    engine.forward(IDS[:, 30:31], 1)
    assert machine.driver.calls.count("cuStreamSynchronize") == 2
    assert machine.module.executed == [(2, 30), (0, 1)]
    engine.close()


def test_one_copy_brings_all_inputs(machine: Machine) -> None:
    engine = machine.load()
    machine.driver.calls.clear()
    engine.forward(IDS[:, :5], 2)
    assert machine.driver.calls.count("cuMemcpyHtoDAsync_v2") == 1
    assert machine.driver.calls.count("cuMemcpyDtoHAsync_v2") == 1
    engine.close()


def test_contexts_share_scratch_and_say_how_they_compile(machine: Machine) -> None:
    engine = machine.load()
    [plan] = machine.module.engines
    assert {context.scratch for context, _ in plan.contexts} == {
        (plan.contexts[0][0].scratch[0], 3000)
    }
    told = [
        (how.dynamic_shapes_kernel_specialization_strategy.name, how.cuda_graph_strategy.name)
        for _, how in plan.contexts
    ]
    narrow = ("EAGER", "WHOLE_GRAPH_CAPTURE")
    assert told == [narrow, narrow, narrow], "no profile is wider than a verification"
    engine.close()


def test_the_profile_for_prompts_compiles_for_any_shape(machine: Machine) -> None:
    engine = machine.load()
    [plan] = machine.module.engines
    make_context(machine.module, plan, 256, None, "target")
    how = plan.contexts[-1][1]
    assert how.dynamic_shapes_kernel_specialization_strategy.name == "NONE"
    assert how.cuda_graph_strategy.name == "DISABLED"
    engine.close()


def test_tensorrt_proper_has_no_kernels_to_compile(machine: Machine) -> None:
    del machine.module.IRuntimeCache
    engine = machine.load()
    managed = machine.module.ExecutionContextAllocationStrategy.USER_MANAGED
    assert [how for _, how in machine.module.engines[0].contexts] == [managed] * 3
    engine.close()


def test_compiled_kernels_are_kept(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    path = machine.folder / "kernels.bin"
    engine = machine.load(kernels=path)
    caches = {id(how.cache) for _, how in machine.module.engines[0].contexts}
    assert len(caches) == 1, "one for all contexts"
    machine.module.engines[0].contexts[0][1].cache.blob = b"compiled more"
    engine.close()
    assert path.read_bytes() == b"compiled more"
    again = machine.load(kernels=path)
    assert machine.module.engines[1].contexts[0][1].cache.blob == b"compiled more"
    again.close()
    path.write_bytes(b"of another GPU")
    machine.load(kernels=path).close()
    assert "are of another GPU, driver or library; they are compiled again" in caplog.text
    assert path.read_bytes() == b"compiled"
    machine.load(kernels=machine.folder / "missing" / "kernels.bin").close()
    assert "cannot keep compiled kernels in" in caplog.text


def test_scratch_counts(machine: Machine) -> None:
    path, entry = machine.entry()
    machine.driver.free_bytes = path.stat().st_size + entry.kv_cache_bytes
    with pytest.raises(DeviceError, match="the target engine, loaded, needs at least"):
        machine.load()


def test_nothing_is_allocated_after_loading(machine: Machine) -> None:
    engine = machine.load()
    machine.driver.calls.clear()
    logits(engine, IDS, 9)
    assert not any("Alloc" in call or "Free" in call for call in machine.driver.calls)
    engine.close()


def test_a_self_draft_shares_the_cache_and_the_text_is_the_targets(machine: Machine) -> None:
    target = machine.load()
    before = len(machine.driver.live)
    draft = machine.load("int8", name="draft", share_cache_with=target)
    assert draft.cache is target.cache
    assert len(machine.driver.live) - before == 2 * 2 + 1, "inputs, logits, scratch are its own"
    decoder = SpeculativeDecoder(target, draft, shares_cache=True)
    plain, pair = (
        decoder.generate(
            IDS[0, :40].tolist(),
            SamplingParams(max_new_tokens=40, num_draft_tokens=count, ignore_eos=True),
        )
        for count in (0, 4)
    )
    assert pair.token_ids == plain.token_ids
    assert pair.stats.acceptance_rate > 0.3
    draft.close()
    target.close()


def test_a_failure_leaves_the_length_and_is_one_line(machine: Machine) -> None:
    engine = machine.load()
    engine.forward(IDS[:, :7], 1)
    machine.driver.fail["cuStreamSynchronize"] = 2
    with pytest.raises(
        EngineError, match=r"target engine failed on 3 rows at position 7: .*out of"
    ):
        engine.forward(IDS[:, 7:10], 3)
    machine.driver.fail.clear()
    assert engine.length == 7
    machine.module.engines[0].refuses = True
    with pytest.raises(EngineError, match="could not queue the pass"):
        engine.forward(IDS[:, 7:10], 3)
    assert engine.length == 7
    with pytest.raises(ContextOverflowError):
        engine.forward(np.tile(IDS, (1, 2)), 1)
    engine.close()
    with pytest.raises(EngineError, match="is closed"):
        engine.forward(IDS[:, :1], 1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device": Device("cpu")}, DeviceError, "device cpu cannot run the target"),
        ({"device": Device("cuda", 3)}, DeviceError, "cuDeviceGet failed: invalid device"),
        (
            {"changes": {"tensorrt": replace(BUILT, version="1.6.0.1")}},
            EngineError,
            r"built by tensorrt_rtx 1\.6\.0\.1, but 1\.7\.1\.116 is installed; install",
        ),
        (
            {"changes": {"tensorrt": replace(BUILT, compute_capabilities=("12.0",))}},
            DeviceError,
            r"capability 8\.9; the target engine was built for 12\.0; export with --compute-cap",
        ),
        ({"changes": {"num_layers": 1}}, EngineError, r"past_key_values\.1\.key of the target"),
        ({"changes": {"kv_dtype": "float32"}}, EngineError, "is HALF .* entry says FLOAT"),
        ({"changes": {"head_size": 32}}, EngineError, "export the package again"),
        (
            {"changes": {"tensorrt": replace(BUILT, profiles=((1, 5, 9),), scored_rows=(9,))}},
            EngineError,
            "has 3 profiles; its manifest entry says 1",
        ),
    ],
)
def test_refusals(
    machine: Machine, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        machine.load(**options)
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_said_before_the_file_is_read(machine: Machine) -> None:
    machine.driver.free_bytes = 10**4
    with pytest.raises(DeviceError, match=r"at least 0\.00 GB of cuda:0, which has 0\.00 GB free"):
        machine.load()
    assert machine.module.engines == []


def test_allocation_that_fails_midway_leaves_nothing(machine: Machine) -> None:
    machine.driver.fail["cuMemHostAlloc"] = 2
    with pytest.raises(DeviceError, match="cuMemHostAlloc failed: out of memory"):
        machine.load()


def test_a_broken_file(machine: Machine) -> None:
    path, entry = machine.entry()
    path.write_bytes(b"no engine")
    opened = lambda index: CudaDevice(index, machine.driver)  # noqa: E731
    with pytest.raises(EngineError, match=r"cannot load the draft engine .*magic tag"):
        load_tensorrt_engine(path, entry, name="draft", device=Device("cuda"), open_device=opened)


def test_a_missing_library(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorrt_rtx", None)
    with pytest.raises(MissingDependencyError, match="pip install tensorrt-rtx"):
        machine.load()
