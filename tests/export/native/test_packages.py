"""Packages with native graphs: which engine is chosen, the same texts, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from specdec.engines import (
    EngineError,
    OrtOptions,
    PackageError,
    PackageVersionError,
    load_package,
    read_package,
    write_manifest,
)
from specdec.engines.native import library as native
from specdec.engines.native import load as native_load
from specdec.engines.native.engine import NativeEngine
from specdec.engines.native.library import NativeLibrary, inspect_library, native_library
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.package.manifest import SCHEMA_VERSION, inventory
from specdec.runtime import SpeculativeDecoder
from specdec.runtime.report.inspection import inspect_package
from tests.export.exporting import export, speculative_text
from tests.export.tiny_models import write_model
from tests.support.native import needs_library

PROMPT = [5, 9, 31, 7, 200, 44]
ABSENT = "this installation has no compiled native operators"


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FP16 target and INT8 self-draft of a tiny Llama; never changed."""
    root = tmp_path_factory.mktemp("native")
    source = write_model(root / "source", "llama-tied", hidden_size=128, intermediate_size=192)
    export(source, root / "package", target_precision="fp16", draft_precision="int8")
    return root / "package"


@pytest.fixture
def copy(package: Path, tmp_path: Path) -> Path:
    """A package to change."""
    return Path(shutil.copytree(package, tmp_path / "package"))


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation whose library was never built."""
    found = inspect_library(tmp_path / "nothing.so")
    for module in (native, native_load):
        monkeypatch.setattr(module, "native_library", lambda: found)


def rewrite(package: Path) -> None:
    """List the files as they are now."""
    manifest = read_package(package, verify_checksums=False).manifest
    write_manifest(package, replace(manifest, files=inventory(package)))


def change_native(package: Path, change: object) -> None:
    """Change the target's native graph and list the result."""
    path = package / "target" / "model.native.onnx"
    model = ir.load(path)
    change(model)  # type: ignore[operator]
    ir.save(model, path)
    tree = json.loads((package / "specdec.json").read_text())
    for name, entry in inventory(package).items():
        tree["files"][name] = {"size": entry.size, "sha256": entry.sha256}
    (package / "specdec.json").write_text(json.dumps(tree))


@needs_library
def test_native_is_chosen_and_said(package: Path) -> None:
    name = f"native {native_library().isa}"
    with SpeculativeDecoder.load(package, num_threads=1) as decoder:
        result = decoder.generate(PROMPT)
        assert result.stats.engine == name
        assert result.stats.to_dict()["engine"] == name
    with load_package(package, num_threads=1) as loaded:
        assert isinstance(loaded.target, NativeEngine)
        assert isinstance(loaded.draft, NativeEngine)
        assert loaded.draft.cache is loaded.target.cache
        assert loaded.target.info.engine == loaded.draft.info.engine == name
    assert inspect_package(read_package(package)).engines == {"target": name, "draft": name}


@needs_library
def test_greedy_texts_are_those_of_plain_onnx_runtime(package: Path) -> None:
    texts = {}
    for engine in ("native", "onnxruntime"):
        ort = OrtOptions(engine=engine)
        with SpeculativeDecoder.load(package, num_threads=1, ort=ort) as decoder:
            for k in (0, 4):
                texts[engine, k] = speculative_text(decoder, PROMPT, 64, k)
    assert len(set(texts["native", 0])) > 8
    assert all(text == texts["native", 0] for text in texts.values())


def test_without_the_library_the_standard_graphs_run(package: Path, no_library: None) -> None:
    with load_package(package, num_threads=1) as loaded:
        assert type(loaded.target) is type(loaded.draft) is OrtEngine
        assert loaded.target.info.engine == "onnxruntime"
    engines = inspect_package(read_package(package)).engines
    assert engines["target"] == f"onnxruntime ({ABSENT})"
    with pytest.raises(EngineError, match=f"target engine cannot run over native .*: {ABSENT}"):
        load_package(package, ort=OrtOptions(engine="native"))


@needs_library
def test_a_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "VERSION", 99)
    found = inspect_library(native.FILE)
    assert found.path is None
    assert "has version 1, this package needs 99: reinstall" in found.reason


def test_a_graph_of_newer_operators_runs_on_onnx_runtime(copy: Path) -> None:
    tree = json.loads((copy / "specdec.json").read_text())
    for entry in tree["engines"].values():
        entry["native"]["operators"] = 99
    (copy / "specdec.json").write_text(json.dumps(tree))
    with load_package(copy, num_threads=1) as loaded:
        assert loaded.target.info.engine == "onnxruntime"
    here = inspect_package(read_package(copy)).engines["draft"]
    assert here.startswith("onnxruntime (")


@needs_library
@pytest.mark.parametrize(
    "wish", ["off", "avx1024", "neon" if os.uname().machine != "aarch64" else "avx2"]
)
def test_a_processor_without_the_instructions_takes_the_standard_graphs(
    package: Path, wish: str
) -> None:
    code = (
        "import sys; from specdec.engines import load_package; "
        "p = load_package(sys.argv[1], num_threads=1); "
        "print(p.target.info.engine, '|', p.draft.info.engine)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(package)],
        env={**os.environ, "SPECDEC_NATIVE": wish},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["onnxruntime", "|", "onnxruntime"]


@needs_library
@pytest.mark.parametrize("attribute", ["N", "K"])
def test_planted_sizes_of_a_weight_are_refused(copy: Path, attribute: str) -> None:
    def plant(model: ir.Model) -> None:
        node = next(n for n in model.graph if n.op_type == "MatMulFp16")
        size = node.attributes.get_int(attribute) + 64
        node.attributes[attribute] = ir.AttrInt64(attribute, size)

    change_native(copy, plant)
    with pytest.raises(EngineError, match=r"cannot load the target engine model\.native\.onnx"):
        load_package(copy, num_threads=1)


@needs_library
def test_planted_cache_shapes_are_refused(copy: Path) -> None:
    def plant(model: ir.Model) -> None:
        for value in model.graph.inputs:
            if value.name == "past_key_values.1.value":
                value.shape = ir.Shape(["slots", 2, "capacity", 8])

    change_native(copy, plant)
    with pytest.raises(EngineError, match=r"past_key_values\.1\.value of the target engine is"):
        load_package(copy, num_threads=1)


@needs_library
def test_a_graph_that_misses_an_input_is_refused(copy: Path) -> None:
    def plant(model: ir.Model) -> None:
        value = next(v for v in model.graph.inputs if v.name == "slots")
        value.name = "places"

    change_native(copy, plant)
    with pytest.raises(EngineError, match="lacks slots"):
        load_package(copy, num_threads=1)


def test_external_data_of_the_native_graph_stays_inside(copy: Path) -> None:
    path = copy / "target" / "model.native.onnx"
    path.write_bytes(path.read_bytes().replace(b"model.onnx.data", b"../../../passwd"))
    tree = json.loads((copy / "specdec.json").read_text())
    for name, entry in inventory(copy).items():
        tree["files"][name] = {"size": entry.size, "sha256": entry.sha256}
    (copy / "specdec.json").write_text(json.dumps(tree))
    with pytest.raises(PackageError, match=r"keeps weights in .*\.\./\.\./\.\./passwd"):
        read_package(copy)


def test_a_native_graph_is_listed_and_asks_for_its_schema_version(copy: Path) -> None:
    path = copy / "specdec.json"
    tree = json.loads(path.read_text())
    assert tree["schema_version"] == SCHEMA_VERSION == 2
    assert tree["engines"]["draft"]["native"] == {
        "graph": "draft/model.native.onnx",
        "operators": 1,
    }
    path.write_text(json.dumps(tree | {"schema_version": 1}))
    with pytest.raises(
        PackageError, match=r"engines\.target\.native is present; allowed is no such"
    ):
        read_package(copy)
    path.write_text(json.dumps(tree | {"schema_version": 3}))
    with pytest.raises(PackageVersionError, match="has schema_version 3; this release reads 1 and"):
        read_package(copy)
    del tree["files"]["draft/model.native.onnx"]
    path.write_text(json.dumps(tree))
    with pytest.raises(PackageError, match=r"engines\.draft\.native\.graph"):
        read_package(copy)


def test_a_package_without_native_graphs_stays_version_1(copy: Path) -> None:
    manifest = read_package(copy).manifest
    assert manifest.draft is not None
    for name in ("target", "draft"):
        (copy / name / "model.native.onnx").unlink()
    plain = replace(
        manifest,
        target=replace(manifest.target, native=None),
        draft=replace(manifest.draft, native=None),
        files=inventory(copy),
    )
    write_manifest(copy, plain)
    assert json.loads((copy / "specdec.json").read_text())["schema_version"] == 1
    with load_package(copy, num_threads=1) as loaded:
        assert loaded.target.info.engine == "onnxruntime"


@needs_library
def test_slots_are_asked_for_when_loading(package: Path) -> None:
    with load_package(package, num_threads=1, ort=OrtOptions(num_slots=3)) as loaded:
        assert isinstance(loaded.target, NativeEngine)
        assert loaded.target.num_slots == 3
    with pytest.raises(EngineError, match="num_slots is 3, and the target engine runs on plain"):
        load_package(package, ort=OrtOptions(num_slots=3, engine="onnxruntime"))
    with pytest.raises(EngineError, match="engine is 'fast'; allowed is auto, native, onnxruntime"):
        OrtOptions(engine="fast")


def test_the_library_is_never_one_of_a_package(copy: Path, no_library: None) -> None:
    if native.FILE.is_file():
        shutil.copy(native.FILE, copy / native.FILE.name)
        shutil.copy(native.FILE, copy / "target" / native.FILE.name)
    rewrite(copy)
    with load_package(copy, num_threads=1) as loaded:
        assert loaded.target.info.engine == "onnxruntime"
    assert isinstance(native_library(), NativeLibrary)
