"""Sources that several tests change copies of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.tiny_models import write_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama") / "source", "llama")
