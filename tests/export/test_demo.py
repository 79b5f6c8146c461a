"""The real demo pair: greedy text of the package against the original model in torch.

The reference is the GGUF's FP32 model with its matrices rounded to FP16, as the package stores
them. A text is greedy when every token is the argmax of the reference after all tokens before
it, so one torch pass judges a whole text. A token may be another where the reference's two best
logits are nearer than the noise between the two systems, measured on the same texts; such places
are counted and reported (junit property `demo_near_ties`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specdec.engines.engine import Engine
from specdec.engines.load import load_package, read_package
from specdec.export.sources.source import resolve_source
from specdec.export.sources.weights import load_model
from specdec.runtime import SamplingParams, SpeculativeDecoder
from tests.export.exporting import round_to_fp16
from tests.support.demo_package import DemoExport

NEW_TOKENS = 64
MAX_NEAR_TIES = 4
FP32_BYTES = 134_515_008 * 4
"""The weights of SmolLM2-135M in FP32."""
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS: list[Any] = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "import numpy as np\n\ndef softmax(x):\n",
    "SELECT name, COUNT(*) FROM orders",
    '{"name": "Ada", "age": 36, "languages": [',
    "# Installation\n\nRun the following command:\n\n```bash\n",
    "<html>\n<head>\n<title>",
    "今天天气很好我们一起去",
    "人工智能是",
    "日本の首都は",
    "Привет, как дела?",
    "La vie est belle quand",
    "I ❤️ pizza 🍕 and 🎉",
    "👩‍👩‍👧‍👦",
    " ",
    "\n",
    "a",
    "1, 2, 3, 4, 5,",
    "7 * 8 = 56, 8 * 8 = 64, 9 * 8 =",
    "the the the the the the the",
    "Q: Why is the sky blue?\nA:",
    "Zażółć gęślą jaźń — naïve café",
    CHAT,
    [*CHAT, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "And Peru?"}],
    [{"role": "user", "content": "写一首关于春天的短诗"}],
    [{"role": "user", "content": "Write a Python function that reverses a string. 🐍"}],
]


@pytest.fixture(scope="module")
def reference() -> Any:
    """The torch model with the package's weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    model = round_to_fp16(load_model(resolve_source("demo")))
    model.generation_config.eos_token_id = None  # text goes on past the end token
    yield model
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def decoder(demo_package: Path) -> Iterator[SpeculativeDecoder]:
    with SpeculativeDecoder.load(demo_package, verify_checksums=False) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def target(demo_package: Path) -> Iterator[Engine]:
    with load_package(demo_package, load_draft=False, verify_checksums=False) as loaded:
        yield loaded.target


@pytest.fixture(scope="module")
def texts(decoder: SpeculativeDecoder) -> list[tuple[list[int], list[int]]]:
    """(prompt, speculative greedy continuation) of every prompt."""
    params = SamplingParams(max_new_tokens=NEW_TOKENS, ignore_eos=True, num_draft_tokens=4)
    results = [decoder.generate(prompt, params) for prompt in PROMPTS]
    return [(list(r.prompt_token_ids), list(r.token_ids)) for r in results]


def reference_logits(model: Any, prompt: list[int], text: list[int]) -> NDArray[np.float32]:
    """The reference's logits before each token of `text`; float32 [len(text), vocabulary]."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + text])).logits
    found: NDArray[np.float32] = logits[0, len(prompt) - 1 : -1].numpy()
    return found


def engine_logits(engine: Engine, prompt: list[int], text: list[int]) -> NDArray[np.float32]:
    """As `reference_logits`, by an engine in one pass."""
    engine.truncate(0)
    ids = np.array([prompt + text], np.int64)
    return np.asarray(engine.forward(ids, len(text) + 1)[0, :-1], np.float32)


def test_greedy_text_is_that_of_the_original_model(
    reference: Any,
    target: Engine,
    texts: list[tuple[list[int], list[int]]],
    record_testsuite_property: Any,
) -> None:
    assert len(texts) >= 20
    noise, margins = 0.0, []
    for prompt, text in texts:
        assert len(text) == NEW_TOKENS
        expected = reference_logits(reference, prompt, text)
        noise = max(noise, float(np.abs(engine_logits(target, prompt, text) - expected).max()))
        chosen = expected[np.arange(NEW_TOKENS), text]
        margins += [float(m) for m in expected.max(axis=1) - chosen if m > 0.0]
    record_testsuite_property("demo_largest_logit_difference", noise)
    record_testsuite_property("demo_near_ties", len(margins))
    assert noise < 2e-3, "the weights are not those of the package"
    assert all(margin < noise for margin in margins), (noise, margins)
    assert len(margins) <= MAX_NEAR_TIES


def test_generate_of_transformers_agrees(
    reference: Any, texts: list[tuple[list[int], list[int]]]
) -> None:
    """The method above against the real thing, on a text, code and a chat."""
    for prompt, text in (texts[0], texts[2], texts[PROMPTS.index(CHAT)]):
        with torch.no_grad():
            ids = reference.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=24,
                do_sample=False,
                pad_token_id=0,
            )
        assert ids[0, len(prompt) :].tolist() == text[:24]


def test_speculation_changes_nothing(
    decoder: SpeculativeDecoder, texts: list[tuple[list[int], list[int]]]
) -> None:
    for index in (0, 2, 8, 15, PROMPTS.index(CHAT)):
        prompt, text = texts[index]
        for number in (0, "auto"):
            params = SamplingParams(max_new_tokens=24, ignore_eos=True, num_draft_tokens=number)
            assert list(decoder.generate(prompt, params).token_ids) == text[:24], index


def test_the_package_says_what_it_holds(demo_package: Path) -> None:
    manifest = read_package(demo_package).manifest
    target, draft = manifest.target, manifest.draft
    assert (target.layout, target.storage, target.compute) == ("in_place", "fp16", "fp32")
    assert draft is not None
    assert draft.shares_target_cache
    assert draft.storage == "int8"
    assert manifest.checks["problems"] == []
    assert manifest.checks["target_vs_original"]["argmax_agreement"] > 0.96
    assert manifest.checks["draft_vs_target"]["argmax_agreement"] > 0.9
    assert manifest.tokenizer.eos_token_ids == (2,)
    sizes = {
        name: sum(f.size for n, f in manifest.files.items() if n.startswith(name))
        for name in ("target", "draft")
    }
    assert sizes["target"] < 1.02 * FP32_BYTES / 2
    assert sizes["draft"] < 0.37 * FP32_BYTES


def test_a_path_to_the_file_is_the_same_source(demo_package: Path) -> None:
    demo = resolve_source("demo")
    assert demo.gguf_file is not None
    by_path = resolve_source(str(Path(demo.location) / demo.gguf_file))
    assert (by_path.location, by_path.gguf_file) == (demo.location, demo.gguf_file)


def test_an_export_needs_little_memory(demo_export: DemoExport) -> None:
    assert demo_export.peak_bytes - demo_export.imported_bytes < 3 * FP32_BYTES
