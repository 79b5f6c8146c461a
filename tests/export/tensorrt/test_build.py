"""Real builds with TensorRT-RTX, which needs no GPU for them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.errors import DeviceError, EngineError
from specdec.engines.load import load_package, read_package
from specdec.export import ExportOptions
from specdec.export.errors import EngineBuildError, ExportOptionError, UnsupportedModelError
from specdec.export.tensorrt.build import EngineBuild, Profile, build_engine
from tests.export.exporting import export
from tests.export.tiny_models import write_model
from tests.support.graphs import Traced, trace_tiny

trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")

CAPABILITIES = ("8.6", "8.9")
PROFILES = (Profile(1, 1, 1, 1), Profile(1, 5, 9, 9), Profile(1, 32, 32, 1))
SETTINGS = {"target_precision": "fp16", "backend": "tensorrt-rtx"}


class Step:
    """Adds up what a build reports."""

    def __init__(self) -> None:
        self.done: list[float] = []

    def advance(self, amount: float = 1) -> None:
        self.done.append(amount)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    found = trace_tiny("gpt2", tmp_path_factory.mktemp("build"))
    assert found is not None
    return found


def build(graph: Path, out: Path, step: Step | None = None, **options: Any) -> Any:
    settings = {"compute_capabilities": CAPABILITIES} | options
    return build_engine(
        graph, out, EngineBuild("tensorrt-rtx", PROFILES, **settings), step or Step()
    )


@pytest.mark.parametrize("precision", ["fp16", "int8", "int8-qdq", "int4"])
def test_every_precision_builds(traced: Traced, tmp_path: Path, precision: str) -> None:
    step = Step()
    built = build(traced.write(precision)[0], tmp_path / "model.engine", step)
    assert built.version == trt.__version__
    assert built.compute_capabilities == CAPABILITIES
    assert (tmp_path / "model.engine").stat().st_size > 10**5
    assert min(step.done) > 0
    assert sum(step.done) == pytest.approx(1.0)
    assert len(step.done) > 10


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "phi3"])
def test_architectures_build(name: str, tmp_path: Path) -> None:
    """Rotation, windows, soft caps and sinks, each as TensorRT is given it."""
    found = trace_tiny(name, tmp_path)
    assert found is not None
    build(found.write("fp16")[0], tmp_path / "model.engine", compute_capabilities=("8.9",))
    assert (tmp_path / "model.engine").stat().st_size > 10**5


def test_ctrl_c_ends_the_build(traced: Traced, tmp_path: Path) -> None:
    import _thread

    class Interrupting(Step):
        def advance(self, amount: float = 1) -> None:
            if not self.done:
                _thread.interrupt_main()
            super().advance(amount)
            time.sleep(0.3)  # time for the main thread to see it

    with pytest.raises(KeyboardInterrupt):
        build(traced.write("fp16")[0], tmp_path / "model.engine", Interrupting())
    assert not (tmp_path / "model.engine").exists()
    assert "tensorrt-build" not in {thread.name for thread in threading.enumerate()}


def test_an_operator_that_tensorrt_lacks_is_named(tmp_path: Path) -> None:
    found = trace_tiny("qwen3_moe", tmp_path)  # picks its experts by NonZero
    assert found is not None
    with pytest.raises(
        EngineBuildError, match=r"does not accept fp16\.onnx: NonZero /model/layers"
    ):
        build(found.write("fp16")[0], tmp_path / "model.engine")


def test_refusals_of_the_builder(traced: Traced, tmp_path: Path) -> None:
    graph = traced.write("fp16")[0]
    with pytest.raises(
        ExportOptionError, match=r"capability 5\.0 is not known .* allowed are 7\.5, 8"
    ):
        build(graph, tmp_path / "x.engine", compute_capabilities=("5.0",))
    with pytest.raises(EngineBuildError, match=r"plain\.onnx: .*GroupQueryAttention"):
        build(traced.plain, tmp_path / "x.engine")
    assert not (tmp_path / "x.engine").exists()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("package")
    source = write_model(root / "source", "llama")
    options = {"draft_precision": "int4", "compute_capabilities": CAPABILITIES, "max_length": 64}
    return export(source, root / "package", **SETTINGS, **options).path


def test_an_exported_package_says_what_it_holds(package: Path) -> None:
    manifest = read_package(package).manifest
    assert manifest.draft is not None
    for entry, storage in ((manifest.target, "fp16"), (manifest.draft, "int4")):
        assert (entry.backend, entry.layout, entry.kv_dtype) == (
            "tensorrt-rtx",
            "in_place",
            "float16",
        )
        assert (entry.storage, entry.compute) == (storage, "fp16")
        record = entry.tensorrt
        assert record is not None
        assert record.version == trt.__version__
        assert record.compute_capabilities == CAPABILITIES
        assert record.precisions["head"] == storage
        assert record.precisions["logits"] == "fp32"
        # The down projection's 96 inputs do not divide into blocks of 64.
        projections = {"fp16": "fp16", "int4": "int4, int8"}[storage]
        assert record.precisions["projections"] == projections
        assert record.build_seconds > 0
    assert manifest.target.tensorrt.profiles == ((1, 5, 33), (1, 64, 64))  # type: ignore[union-attr]
    assert manifest.draft.tensorrt.profiles == ((1, 1, 1), (1, 2, 33), (1, 64, 64))  # type: ignore[union-attr]
    assert manifest.draft.shares_target_cache
    assert manifest.checks["problems"] == []
    assert manifest.checks["greedy_pair"]["matching"] == 32
    assert manifest.costs == {}
    assert manifest.source["backend"] == "tensorrt-rtx"
    assert {path.suffix for path in package.rglob("*.*")} <= {".engine", ".json", ".jinja"}


def test_a_calibrated_draft_says_what_it_was_calibrated_on(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "llama")
    texts = tmp_path / "secret-name.txt"
    texts.write_text("a river in the valley\n" * 4 + "forty-two sacks, as yesterday\n")
    path = export(
        source,
        tmp_path / "package",
        **SETTINGS,
        draft_precision="int8-qdq",
        compute_capabilities=("8.9",),
        max_length=64,
        calibration=texts,
    ).path
    manifest = read_package(path).manifest
    assert manifest.draft is not None
    assert (manifest.draft.storage, manifest.draft.compute) == ("int8", "int8")
    assert manifest.draft.recipe == "int8-qdq"
    assert manifest.draft.tensorrt is not None
    precisions = manifest.draft.tensorrt.precisions
    # The head's rows stay FP16.
    assert (precisions["projections"], precisions["activations"]) == ("int8", "int8, fp16")
    record = manifest.source["calibration"]
    assert (record["source"], record["samples"], record["tensors"]) == ("file", 5, 8)
    assert record["tokens"] > 50
    assert record["tensors_kept_fp16"] <= 2
    assert "5 %" in record["method"]
    assert "secret-name" not in (path / "specdec.json").read_text()
    assert manifest.checks["problems"] == []
    assert manifest.checks["greedy_pair"]["matching"] == 32
    assert manifest.target.tensorrt is not None
    assert manifest.target.tensorrt.precisions["activations"] == "fp16"


def test_loading_is_refused_without_a_gpu_and_for_another_version(package: Path) -> None:
    with pytest.raises(DeviceError, match='TensorRT engine; allowed is "cuda"'):
        load_package(package)
    path = package / "specdec.json"
    document = path.read_text()
    tree = json.loads(document)
    tree["engines"]["target"]["tensorrt"]["version"] = "1.2.3.4"
    path.write_text(json.dumps(tree))
    try:
        with pytest.raises(
            EngineError, match=r"built by tensorrt_rtx 1\.2\.3\.4, but .* is installed"
        ):
            load_package(package, device="cuda")
    finally:
        path.write_text(document)


def test_an_architecture_without_the_in_place_cache_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "mpt")
    with pytest.raises(UnsupportedModelError, match="use --backend onnxruntime"):
        export(
            source,
            tmp_path / "out",
            **SETTINGS,
            draft_precision="int8",
            compute_capabilities=("8.9",),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"backend": "tensorrt", "compute_capabilities": ("8.9",)},
            "builds for the GPU of this machine",
        ),
        ({"backend": "tensorrt-rtx"}, "name their compute capabilities"),
        (
            {"compute_capabilities": ("8.9",)},
            "compute_capabilities is 8.9 and backend is 'onnxruntime'",
        ),
        ({"timing_cache": Path("x")}, "timing_cache is x and backend is 'onnxruntime'"),
        (
            {
                "backend": "tensorrt-rtx",
                "compute_capabilities": ("8.9",),
                "timing_cache": Path("x"),
            },
            "tensorrt-rtx measures no kernels",
        ),
        ({"backend": "openvino"}, "backend 'openvino' cannot be exported"),
        (
            {"backend": "tensorrt", "target_precision": "fp32"},
            "'fp32' is not known for tensorrt; allowed are fp16, int8, int8-qdq, int4",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportOptionError, match=message):
        ExportOptions("demo", "self", Path("out"), **options)
