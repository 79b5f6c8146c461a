"""Packages whose standard graphs ONNX Runtime's TensorRT provider builds when it loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.engines.errors import SpecdecError
from specdec.engines.load import load_package, read_package
from specdec.export import ExportOptions
from specdec.export.errors import ExportOptionError
from specdec.runtime import SpeculativeDecoder
from tests.engines.packages import assert_one_line
from tests.export.exporting import export, speculative_text
from tests.export.tiny_models import write_model

pytestmark = pytest.mark.slow

SETTINGS = {"target_precision": "fp16", "backend": "onnxruntime-tensorrt", "report": "short"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = write_model(tmp_path_factory.mktemp("provider") / "source", "llama")
    return export(source, source.with_name("package"), **SETTINGS, draft_precision="int4").path


def test_the_graphs_stay(package: Path) -> None:
    manifest = read_package(package).manifest
    assert manifest.draft is not None
    for entry, storage in ((manifest.target, "fp16"), (manifest.draft, "int4")):
        assert (entry.backend, entry.graph[-5:]) == ("onnxruntime-tensorrt", ".onnx")
        assert (entry.storage, entry.compute, entry.kv_dtype) == (storage, "fp16", "float16")
        assert entry.tensorrt is None
    assert manifest.costs == {}
    assert manifest.source["device"] == "cuda"


def test_a_cpu_runs_the_very_graphs(package: Path) -> None:
    with load_package(package, num_threads=1) as loaded:
        assert loaded.draft_shares_cache
        assert loaded.target.info.backend == "onnxruntime-tensorrt"
    with SpeculativeDecoder.load(package, num_threads=1) as decoder:
        plain, drafted = (speculative_text(decoder, [5, 3, 9, 1], 24, k) for k in (0, 3))
    assert plain == drafted


def test_a_gpu_needs_the_provider(package: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has providers for a GPU")
    with pytest.raises(SpecdecError, match="ExecutionProvider") as caught:
        load_package(package, device="cuda")
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"compute_capabilities": ("8.9",)},
            "compute_capabilities is 8.9 and backend is 'onnxruntime-tensorrt'; it belongs to "
            "tensorrt and tensorrt-rtx",
        ),
        ({"device": "cuda"}, "device is 'cuda' and backend is 'onnxruntime-tensorrt'"),
        ({"draft_precision": "auto"}, "precision 'auto' is not known for onnxruntime-tensorrt"),
        ({"require_speedup": 1.2}, "require_speedup is 1.2 and backend is 'onnxruntime-tensorrt'"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(ExportOptionError) as caught:
        ExportOptions("source", "self", Path("out"), **{**SETTINGS, **options})  # type: ignore[arg-type]
    assert message in assert_one_line(caught.value)
