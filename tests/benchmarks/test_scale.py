"""The arithmetic of the scale and copy-heavy figures, and the synthetic target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from copy_heavy import copied_share, speedups
from demo.scale_point import HEADER, formula, point
from demo.weights import _write_half_gguf

from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.report.measuring.runs import Run

STATS = GenerationStats(
    prompt_tokens=4,
    new_tokens=100,
    rounds=100,
    drafted=0,
    evaluated=0,
    accepted=0,
    tokens_per_round=1.0,
    acceptance_rate=0.0,
    acceptance_by_position=(),
    draft_lengths={0: 100},
    prefill_seconds=0.0,
    draft_seconds=0.0,
    verify_seconds=10.0,
    host_seconds=0.0,
    total_seconds=10.0,
    time_to_first_token=0.1,
    tokens_per_second=10.0,
    fallback=None,
    engine="onnxruntime",
)


def run(variant: str, repeat: int, speed: float, prompt: int = 0, **changes: object) -> Run:
    stats = replace(STATS, tokens_per_second=speed, **changes)
    return Run(variant, prompt, "scale", repeat, stats, (1, 2), ())


def test_formula_is_the_founding_one_for_even_acceptance() -> None:
    rate, k, c, v = 0.8, 4, 0.25, 1.3
    expected = (1 - rate ** (k + 1)) / (1 - rate) / (k * c + v)
    assert formula([rate] * k, c, v) == pytest.approx(expected, rel=1e-12)
    assert formula([1.0] * 4, 0.0, 1.0) == 5.0
    assert formula([0.0] * 4, 0.25, 1.0) == 0.5


def test_a_point_takes_costs_and_acceptance_from_the_runs() -> None:
    # A plain step takes 0.1 s; 25 rounds of K = 4 draft for 2.5 s and verify for 3 s: c = 0.25,
    # v = 1.2; everything is accepted, so S(4) = 5 / (4 * 0.25 + 1.2).
    plain = [run("0", 1, 10.0), run("0", 2, 20.0)]
    drafted = [
        run(
            "4",
            repeat,
            speed,
            rounds=25,
            drafted=100,
            evaluated=100,
            accepted=100,
            acceptance_rate=1.0,
            acceptance_by_position=((25, 25),) * 4,
            draft_seconds=2.5,
            verify_seconds=3.0,
        )
        for repeat, speed in ((1, 20.0), (2, 44.0))
    ]
    found = point(4, plain, drafted)
    assert found.draft_cost == pytest.approx(0.25, rel=1e-12)
    assert found.verify_cost == pytest.approx(1.2, rel=1e-12)
    assert found.predicted == pytest.approx(5 / 2.2, rel=1e-12)
    assert found.speedup == pytest.approx(2.1, rel=1e-12)  # median of 20/10 and 44/20
    assert point("auto", plain, drafted).predicted is None
    assert found.row(256).count("|") == HEADER.splitlines()[0].count("|")
    assert "| 92% |" in found.row(256)


def test_copied_share_counts_long_runs_only() -> None:
    prompt = list(range(100, 120))
    assert copied_share(prompt, prompt, 8) == 1.0
    assert copied_share(prompt, [1, *prompt[3:11], 2, 3], 8) == 8 / 11
    assert copied_share(prompt, [*prompt[:7], 1, *prompt[:7]], 8) == 0.0
    assert copied_share(prompt, [], 8) == 0.0
    assert copied_share([1, 2], [1, 2], 8) == 0.0


def test_speedups_pair_prompt_and_repeat() -> None:
    runs = [
        run("plain", 1, 10.0),
        run("plain", 2, 20.0),
        run("ngram", 1, 30.0),
        run("ngram", 2, 30.0),
        run("plain", 1, 1.0, prompt=1),
        run("plain", 2, 1.0, prompt=1),
    ]
    assert speedups(runs, 0, "ngram") == [3.0, 1.5]


@pytest.mark.slow
def test_a_deeper_model_computes_the_same_function() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from demo.deep_model import deepen

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.arange(12)[None]
    with torch.no_grad():
        before = model(ids).logits
        steps = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
        deep = deepen(model, 3)
        after = deep(ids).logits
        deep_steps = deep.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert len(deep.model.layers) == deep.config.num_hidden_layers == 9
    assert torch.equal(before, after)
    assert torch.equal(steps, deep_steps)


def test_the_gguf_copy_keeps_values_and_metadata(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    quantized = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "source.gguf", "llama")
    writer.add_block_count(2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tensor("matrix", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("vector", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _write_half_gguf(tmp_path / "source.gguf", tmp_path / "half.gguf")
    copy = gguf.GGUFReader(tmp_path / "half.gguf")
    assert copy.fields["general.architecture"].contents() == "llama"
    assert copy.fields["llama.block_count"].contents() == 2
    assert copy.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert copy.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_F16
    tensors = {tensor.name: np.asarray(tensor.data) for tensor in copy.tensors}
    wanted = gguf.dequantize(quantized, gguf.GGMLQuantizationType.Q8_0).astype(np.float16)
    np.testing.assert_array_equal(tensors["matrix"], wanted)
    np.testing.assert_array_equal(tensors["vector"], values[0])
