"""Standard graphs of tiny models need the export."""

from __future__ import annotations

import pytest

from tests.support.torch_threads import one_torch_thread  # noqa: F401

pytest.importorskip("optimum.exporters.onnx", reason="the export is not installed")
pytest.importorskip("accelerate", reason="the export is not installed")
