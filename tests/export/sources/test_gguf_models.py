"""A GGUF file written from a model is that model again: every weight, and greedy text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from specdec.export.sources.source import load_config, resolve_source
from specdec.export.sources.weights import account_for, load_model
from tests.export.sources.gguf_files import rounded, tokenizer_keys, write_gguf
from tests.export.sources.q4_k import pack_q4_k
from tests.export.tiny_models import make_model, write_tokenizer

_WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 256}
_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _WIDE),
    "llama-tied": ("llama-tied", _WIDE),
    "llama-biased": ("llama-biased", {}),
    "llama-linear": ("llama-linear", {}),
    "llama-yarn": ("llama-yarn", {}),
    "mistral": ("mistral", _WIDE | {"sliding_window": None}),
    "mistral-window": ("mistral", _WIDE),
    "qwen2": ("qwen2", _WIDE),
    "qwen3": ("qwen3", _WIDE),
    "qwen3_moe": ("qwen3_moe", _WIDE | {"norm_topk_prob": True, "moe_intermediate_size": 256}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", _WIDE | {"query_pre_attn_scalar": 16}),
    "gemma3_text": (
        "gemma3_text",
        _WIDE | {"num_hidden_layers": 6, "layer_types": None, "query_pre_attn_scalar": 16},
    ),
    "gemma3_text-linear": (
        "gemma3_text",
        {"num_hidden_layers": 6, "layer_types": None, "query_pre_attn_scalar": 16}
        | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "phi3": ("phi3", _WIDE),
    "granite": ("granite", {}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4}),
    "stablelm": ("stablelm", {}),
    "nemotron": ("nemotron", {}),
    "gpt2": ("gpt2", {}),
}
_ROPE = {
    "llama-linear": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    "llama-yarn": {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 64,
    },
    "gemma3_text-linear": {
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    },
}
_IN_EVERY_TYPE = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "mistral",
    "qwen3_moe",
)
PROMPT = [int(i) for i in np.random.default_rng(7).integers(2, 330, 80)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return tokenizer_keys(folder)


def greedy(model: Any, count: int = 12) -> list[int]:
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        ids = model.generate(
            torch.tensor([PROMPT]), max_new_tokens=count, do_sample=False, pad_token_id=0
        )
    return [int(i) for i in ids[0, len(PROMPT) :]]


def check_same(path: Path, expected: Any) -> Any:
    """Load `path` and compare with the torch model `expected`; return what was loaded."""
    source = resolve_source(str(path))
    accounted = account_for(source, load_config(source))
    assert accounted is not None
    loaded = load_model(source, accounted)
    ours, theirs = loaded.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        # A norm that is stored plus 1 loses its last bit.
        assert torch.allclose(ours[name], tensor, rtol=0, atol=1e-6), name
    assert set(accounted.parameters) | set(accounted.tied) == set(theirs)
    for name, stored in accounted.parameters.items():
        places = np.random.default_rng(1).integers(0, ours[name].numel(), 200)
        assert np.array_equal(stored.at(places), ours[name].numpy().ravel()[places]), name
    assert greedy(loaded) == greedy(expected)
    return loaded


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *((case, kind) for case in _IN_EVERY_TYPE for kind in ("F32", "F16", "Q8_0", "Q4_K")),
        *((case, "F32") for case in _CASES if case not in _IN_EVERY_TYPE),
    ],
)
def test_a_file_is_the_model_it_was_written_from(
    case: str, kind: str, tmp_path: Path, tokenizer: dict[str, Any]
) -> None:
    name, changes = _CASES[case]
    model = make_model(name, **changes)
    path = write_gguf(tmp_path / "model.gguf", model, tokenizer, kind, extra=_ROPE.get(case, {}))
    check_same(path, rounded(model, kind))


def test_packing_as_q4_k_keeps_what_it_can() -> None:
    rows = np.random.default_rng(3).normal(size=(40, 512)).astype(np.float32)
    rows[0] = 0.0
    back = gguf.dequantize(pack_q4_k(rows), gguf.GGMLQuantizationType.Q4_K)
    blocks = rows.reshape(-1, 32)
    step = (blocks.max(axis=1) - np.minimum(blocks.min(axis=1), 0.0)) / 15.0
    error = np.abs(back.reshape(-1, 32) - blocks).max(axis=1)
    assert (error <= step + 1e-6).all()
    assert error[16:].mean() < 0.75 * step[16:].mean()


@pytest.mark.parametrize("kind", ["BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ2_0", "MXFP4"])
def test_every_type_that_gguf_writes_is_widened(
    kind: str, tmp_path: Path, tokenizer: dict[str, Any]
) -> None:
    model = make_model("llama", **_WIDE)
    path = write_gguf(tmp_path / "model.gguf", model, tokenizer, kind)
    check_same(path, rounded(model, kind))


def llama3_factors(config: Any) -> np.ndarray:
    """As llama.cpp's converter computes `rope_freqs.weight`."""
    scaling = config.rope_scaling
    base, size = config.rope_theta, config.head_dim
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    factors = []
    for frequency in 1.0 / base ** (np.arange(0, size, 2) / size):
        length = 2 * np.pi / frequency
        if length < high:
            factors.append(1.0)
        elif length > low:
            factors.append(scaling["factor"])
        else:
            smooth = scaling["original_max_position_embeddings"] / length
            smooth -= scaling["low_freq_factor"]
            smooth /= scaling["high_freq_factor"] - scaling["low_freq_factor"]
            factors.append(1.0 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, np.float32)


def test_the_rotary_factors_of_llama_3_are_honoured(
    tmp_path: Path, tokenizer: dict[str, Any]
) -> None:
    model = make_model("llama-llama3")
    tables = {"rope_freqs.weight": llama3_factors(model.config)}
    path = write_gguf(tmp_path / "model.gguf", model, tokenizer, tables=tables)
    loaded = check_same(path, model)
    ours, theirs = loaded.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq
    assert torch.allclose(ours, theirs, rtol=1e-6)
    plain = make_model("llama").state_dict()
    assert all(torch.equal(plain[k], v) for k, v in model.state_dict().items())
    assert greedy(make_model("llama")) != greedy(model), "the factors would make no difference"


def test_the_long_and_short_factors_of_phi_3_are_honoured(
    tmp_path: Path, tokenizer: dict[str, Any]
) -> None:
    model = make_model("phi3-longrope")
    scaling = model.config.rope_scaling
    path = write_gguf(
        tmp_path / "model.gguf",
        model,
        tokenizer,
        extra={
            "phi3.rope.scaling.original_context_length": 64,
            "phi3.rope.scaling.attn_factor": float(model.model.rotary_emb.attention_scaling),
        },
        tables={
            f"rope_factors_{name}.weight": np.array(scaling[f"{name}_factor"], np.float32)
            for name in ("long", "short")
        },
    )
    loaded = check_same(path, model)
    assert loaded.config.rope_scaling == scaling
    assert loaded.config.original_max_position_embeddings == 64
