"""The demo pair's engines, built for real: an FP16 target and drafts of every precision.

No GPU is needed to build, none is there to run: a plan cannot be read back without one. So what
TensorRT understood of a graph (names, types, shapes, the profiles) is held against the manifest
by the loader's own check, over the network that its parser made.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.devices import Device
from specdec.engines.errors import DeviceError, EngineError
from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.package.manifest import EngineEntry
from specdec.engines.tensorrt import load as tensorrt_load
from specdec.engines.tensorrt.load import load_tensorrt_engine
from specdec.export.progress import SilentProgress
from specdec.export.tensorrt.build import EngineBuild, build_engine
from specdec.export.tensorrt.package import engine_profiles
from tests.engines.tensorrt.double import DoubleDriver
from tests.support.graphs import Traced

trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")

MEGABYTES = {
    ("target", "fp16"): 366,
    ("draft", "int8"): 212,
    ("draft", "int8-qdq"): 219,
    ("draft", "int4"): 183,
}
"""135 M parameters, 28 M of them in the FP16 embedding and again in the head."""


class ParsedNetwork:
    """What TensorRT's parser made of a graph, as the loader sees an engine."""

    def __init__(self, graph: Path, num_profiles: int) -> None:
        logger = trt.Logger(trt.Logger.ERROR)
        builder = trt.Builder(logger)
        typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(typed)
        self._kept = (logger, builder, network, trt.OnnxParser(network, logger))
        assert self._kept[-1].parse_from_file(str(graph))
        inputs = [network.get_input(index) for index in range(network.num_inputs)]
        outputs = [network.get_output(index) for index in range(network.num_outputs)]
        self.tensors = {tensor.name: tensor for tensor in (*inputs, *outputs)}
        self.num_io_tensors = len(self.tensors)
        self.num_optimization_profiles = num_profiles

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_dtype(self, name: str) -> Any:
        return self.tensors[name].dtype

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)


@pytest.mark.parametrize(("name", "precision"), MEGABYTES)
def test_an_engine_of_the_demo_pair(
    demo_graph: Traced, tmp_path: Path, name: str, precision: str
) -> None:
    graph, described = demo_graph.write(precision)
    profiles = engine_profiles(described, name)
    if precision.startswith("int8"):  # the slowest to build: one profile instead of three
        profiles = profiles[1:2]
    out = tmp_path / "model.engine"
    options = EngineBuild("tensorrt-rtx", profiles, ("8.9",))
    built = build_engine(graph, out, options, SilentProgress())
    entry = as_built(described, built.version, profiles)
    tensorrt_load._check_interface(trt, ParsedNetwork(graph, len(profiles)), entry, name)
    check_refusals(out, entry, name)
    plan = out.read_bytes()
    out.unlink()
    graph.with_name(f"{graph.name}.data").unlink()
    assert len(plan) / 1e6 == pytest.approx(MEGABYTES[name, precision], rel=0.1)
    for tensor in ("input_ids", "seqlens_k", "logit_rows", "logits", "past_key_values.29.value"):
        assert tensor.encode() in plan


def as_built(entry: EngineEntry, version: str, profiles: Any) -> EngineEntry:
    record = TensorRTEntry(
        version=version,
        compute_capabilities=("8.9",),
        profiles=tuple((p.lowest, p.tuned, p.highest) for p in profiles),
        scored_rows=tuple(p.scored for p in profiles),
        precisions={},
        build_seconds=1.0,
    )
    return replace(entry, graph="model.engine", backend="tensorrt-rtx", tensorrt=record)


def check_refusals(path: Path, entry: EngineEntry, name: str) -> None:
    """Another library version, another GPU, an entry of another model."""
    assert entry.tensorrt is not None
    older = replace(entry, tensorrt=replace(entry.tensorrt, version="1.2.3.4"))
    driver = DoubleDriver(capability="9.0", free=2**40)

    def load(entry: EngineEntry) -> None:
        opened = lambda index: CudaDevice(index, driver)  # noqa: E731
        load_tensorrt_engine(path, entry, name=name, device=Device("cuda"), open_device=opened)

    with pytest.raises(EngineError, match=r"built by tensorrt_rtx 1\.2\.3\.4, but 1\.\S+ is"):
        load(older)
    with pytest.raises(DeviceError, match=r"capability 9\.0; .* built for 8\.9; export"):
        load(entry)
    assert driver.contexts == 0
