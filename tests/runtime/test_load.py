"""`SpeculativeDecoder.load` on a real package on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.runtime import (
    PackageError,
    PromptError,
    SamplingParams,
    SpeculativeDecoder,
    UnsupportedOptionError,
)

pytest.importorskip("onnxruntime", reason="the package's engines run on onnxruntime")
pytest.importorskip("onnx", reason="the package's graphs are built with onnx")

from tests.cli.alphabet_package import write_alphabet_package


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_alphabet_package(tmp_path_factory.mktemp("load") / "package")


@pytest.mark.parametrize("drafter", ["auto", "model", "ngram", "hybrid", "none"])
def test_every_drafter_recites_the_alphabet(package: Path, drafter: str) -> None:
    with SpeculativeDecoder.load(package, drafter=drafter, num_threads=1) as decoder:
        result = decoder.generate("xyzabc", SamplingParams(num_draft_tokens="auto"))
        assert result.text == "defghijklmnopqrstuvwxyz"
        assert result.finish_reason == "stop"
        assert len(result.token_ids) == 24
        if drafter in ("auto", "model", "hybrid"):
            assert result.stats.accepted > 0
        if drafter == "none":
            with pytest.raises(UnsupportedOptionError):
                decoder.generate("a", SamplingParams(num_draft_tokens=2))
        chat = decoder.generate([{"role": "user", "content": "wx"}])
        assert chat.text == "yz"


def test_sampling_with_the_coupled_rule_is_reproducible(package: Path) -> None:
    with SpeculativeDecoder.load(package) as decoder:
        texts = {
            decoder.generate(
                "a",
                SamplingParams(
                    temperature=3.0, seed=7, verify="coupled", num_draft_tokens=k, max_new_tokens=24
                ),
            ).token_ids
            for k in (0, 1, 4, "auto")
        }
    assert len(texts) == 1


def test_a_package_without_template_takes_no_messages(tmp_path: Path) -> None:
    path = write_alphabet_package(tmp_path / "package", chat_template=False)
    with (
        SpeculativeDecoder.load(path) as decoder,
        pytest.raises(PromptError, match="no chat template"),
    ):
        decoder.generate([{"role": "user", "content": "a"}])


def test_a_missing_package(tmp_path: Path) -> None:
    with pytest.raises(PackageError):
        SpeculativeDecoder.load(tmp_path / "nothing")
