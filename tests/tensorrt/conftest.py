"""Standard graphs of tiny models need the export."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
