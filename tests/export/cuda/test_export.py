"""`specdec-export --device cuda` on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.engines.devices import available_devices
from specdec.engines.errors import EngineError, PackageError
from specdec.engines.load import load_package, read_package
from specdec.export import ExportOptions
from specdec.export.checks.device import CPU_NOTE
from specdec.export.errors import ExportOptionError, UnsupportedModelError
from specdec.export.weights.recipes import CUDA_RECIPES, RECIPES, find_recipe
from specdec.runtime import SpeculativeDecoder
from tests.export.exporting import export, speculative_text
from tests.export.tiny_models import write_model

NO_GPU = pytest.mark.skipif(
    any(device.kind == "cuda" for device in available_devices()), reason="this machine has a GPU"
)
SETTINGS = {"target_precision": "fp16", "device": "cuda", "report": "short"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama") / "source", "llama")


@pytest.fixture(scope="module")
def package(llama: Path) -> Path:
    return export(llama, llama.with_name("package"), **SETTINGS, draft_precision="int4").path


def edit(package: Path, **engines: dict[str, Any]) -> str:
    """Change fields of engine entries and return the manifest as it was."""
    path = package / "specdec.json"
    before = path.read_text()
    tree = json.loads(before)
    for name, changes in engines.items():
        tree["engines"][name].update(changes)
    path.write_text(json.dumps(tree))
    return before


def test_a_package_says_that_it_computes_in_fp16(package: Path) -> None:
    manifest = read_package(package).manifest
    assert manifest.draft is not None
    for entry, storage in ((manifest.target, "fp16"), (manifest.draft, "int4")):
        assert (entry.backend, entry.layout) == ("onnxruntime", "in_place")
        assert (entry.storage, entry.compute, entry.kv_dtype) == (storage, "fp16", "float16")
    assert manifest.draft.shares_target_cache
    assert manifest.source["device"] == "cuda"


def test_it_is_checked_like_any_other(package: Path) -> None:
    checks = read_package(package).manifest.checks
    assert checks["problems"] == []
    assert 1e-4 < checks["target_vs_original"]["max_logit_difference"] < 0.03
    assert checks["target_vs_original"]["argmax_agreement"] == 1.0
    assert max(checks["target_width_parity"].values()) < 0.03
    assert checks["greedy_pair"]["matching"] == checks["greedy_pair"]["tokens"] == 32


@NO_GPU
def test_times_of_the_cpu_are_not_recorded(package: Path) -> None:
    manifest = read_package(package).manifest
    assert manifest.costs == {}
    assert "report" not in manifest.checks
    assert manifest.checks["notes"] == [CPU_NOTE]


def test_it_runs_on_a_cpu_too_and_shares_its_fp16_cache(package: Path) -> None:
    with load_package(package, num_threads=1) as loaded:
        assert loaded.draft_shares_cache
        assert loaded.target.info.compute == "fp16"
    with SpeculativeDecoder.load(package, num_threads=1) as decoder:
        texts = [speculative_text(decoder, [5, 60, 200], 32, k) for k in (0, 1, 4)]
    assert texts[0] == texts[1] == texts[2]


def test_another_type_of_cache_is_refused(package: Path) -> None:
    before = edit(package, draft={"kv_dtype": "float32"})
    try:
        with pytest.raises(PackageError, match=r"draft\.kv_dtype is 'float32'.* 'float16'"):
            load_package(package)
        edit(package, target={"kv_dtype": "float32"}, draft={"kv_dtype": "float32"})
        with pytest.raises(EngineError, match=r"is tensor\(float16\).* says tensor\(float\)"):
            load_package(package)
    finally:
        (package / "specdec.json").write_text(before)


def test_a_draft_that_is_another_model(llama: Path, tmp_path: Path) -> None:
    draft = write_model(tmp_path / "draft", "qwen2", seed=1)
    report = export(llama, tmp_path / "package", draft, **SETTINGS, draft_precision="fp16")
    manifest = report.manifest
    assert manifest.draft is not None
    assert (manifest.draft.kv_dtype, manifest.draft.shares_target_cache) == ("float16", False)
    assert manifest.checks["problems"] == []
    assert 1e-4 < manifest.checks["draft_vs_original"]["max_logit_difference"] < 0.03


def test_an_architecture_without_the_in_place_cache_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "mpt")
    with pytest.raises(UnsupportedModelError, match="CUDA provider needs; use --device cpu"):
        export(source, tmp_path / "out", **SETTINGS)
    assert not (tmp_path / "out").exists()


@NO_GPU
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"draft_precision": "auto"}, "--draft-precision auto"),
        ({"require_speedup": 1.2}, "--require-speedup"),
    ],
)
def test_what_only_a_gpu_could_measure_is_refused(
    options: dict[str, Any], name: str, llama: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportOptionError, match=f"^{name} is measured on the device"):
        export(llama, tmp_path / "out", **SETTINGS, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:0"}, "device 'cuda:0' is no kind of device .* allowed are cpu, cuda"),
        (
            {"backend": "tensorrt", "device": "cuda"},
            "backend is 'tensorrt', whose engines are always for a GPU: leave it out",
        ),
        (
            {"device": "cuda", "target_precision": "fp32"},
            r"'fp32' is not known for onnxruntime on cuda \(attention has no FP32 kernel there\); "
            "allowed are int8, int4, fp16, int8-blocks",
        ),
        ({"device": "cuda", "draft_precision": "int8-dynamic"}, "would visit the CPU"),
        ({"device": "cuda", "draft_precision": "int4-hqq"}, "floating zero points"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportOptionError, match=message):
        ExportOptions("demo", "self", Path("out"), **options)


def test_recipes_of_a_gpu_are_those_of_a_cpu_in_fp16() -> None:
    assert set(RECIPES) - set(CUDA_RECIPES) == {"fp32", "int8-dynamic", "int4-hqq"}
    for name, recipe in CUDA_RECIPES.items():
        assert (recipe.name, recipe.compute, recipe.kv_dtype) == (name, "fp16", "float16")
    for name in ("int8", "int4"):
        assert find_recipe(name, device="cuda").name == find_recipe(name).name
    assert find_recipe("fp16", "tensorrt").method == "tensorrt"
