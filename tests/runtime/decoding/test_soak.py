"""A short soak; the long one, with its figure, is `benchmarks/soak.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import soak
from specdec.runtime import SpeculativeDecoder
from specdec.runtime.report.measuring.memory import resident_memory

pytestmark = pytest.mark.slow

pytest.importorskip("onnx", reason="the package's graphs are built with onnx")
pytest.importorskip("onnxruntime", reason="the package's engines run on onnxruntime")

MIB = 2**20


@pytest.mark.skipif(resident_memory() is None, reason="this system does not say its memory")
def test_memory_is_flat_over_mixed_requests(tmp_path: Path) -> None:
    from tests.cli.alphabet_package import write_alphabet_package

    package = write_alphabet_package(tmp_path / "package")
    with SpeculativeDecoder.load(package, num_threads=1) as decoder:
        result = soak(decoder, requests=400, max_new_tokens=12)
        assert set(result.outcomes) == {"length", "stop", "cancelled", "refused"}
        assert sum(result.outcomes.values()) == 400
        assert result.new_tokens > 1500
        assert result.after - result.before < 2 * MIB
