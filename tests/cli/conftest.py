"""Packages the commands are run on."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The alphabet package, with its chat template."""
    pytest.importorskip("onnx", reason="builds its graphs with the onnx package")
    from tests.cli.alphabet_package import write_alphabet_package

    return write_alphabet_package(tmp_path_factory.mktemp("cli") / "package")
