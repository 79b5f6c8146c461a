"""What public objects say of themselves, and two mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.engines import load_package
from specdec.runtime import InvalidParameterError, SamplingParams, SpeculativeDecoder
from tests.support.decoders import pair


def test_a_decoder_and_its_streams() -> None:
    decoder, target, _ = pair()
    about = f"target {target.info.name!r} of 5 tokens, 64 of context, HybridDrafter"
    assert repr(decoder) == f"<SpeculativeDecoder: {about}>"
    stream = decoder.stream([1], SamplingParams(max_new_tokens=3))
    assert repr(stream) == "<GenerationStream: open>"
    stream.drain()
    assert repr(stream) == "<GenerationStream: 3 tokens, length>"
    session = decoder.session()
    session.generate([1, 2], SamplingParams(max_new_tokens=3))
    assert repr(session) == "<Session: 5 tokens>"
    session.close()
    assert repr(session) == "<Session: closed>"
    decoder.close()
    assert repr(decoder) == "<SpeculativeDecoder: closed>"


def test_a_package_and_its_engines(tiny_package: Path) -> None:
    with load_package(tiny_package) as package:
        assert repr(package) == f"<LoadedPackage: {str(package.path)!r}, target and draft>"
        assert repr(package.target).startswith(f"<{type(package.target).__name__}: 'target', ")


@pytest.mark.parametrize("path", ["my-package", Path("my-package")])
def test_a_path_is_told_about_load(path: object) -> None:
    with pytest.raises(InvalidParameterError, match=r"SpeculativeDecoder\.load\(path\)"):
        SpeculativeDecoder(path)  # type: ignore[arg-type]
