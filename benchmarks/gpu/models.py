"""Tiny random models and their packages, made by the real export for the parity part."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gpu.adapter import export_options
from gpu.ready import ReadyError, is_ready
from gpu.sections import Recorder, Setup, Steps

__all__ = [
    "MODELS_FOLDER",
    "PAIRS",
    "Pair",
    "device_package",
    "export_for",
    "export_pairs",
    "pairs_of",
    "prompts",
    "reference_package",
]

MODELS_FOLDER = "models"
"""Folder of the random models, in the work folder."""
_CONTEXT = 512
_COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": _CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
_VOCABULARY = 500
"""Tokens of the tokenizer: the models pad their heads, as real ones do."""
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "small llama": ("Llama", {"num_hidden_layers": 2}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2",
        {
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            "sliding_window": 64,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
}


@dataclass(frozen=True)
class Pair:
    """A target and a draft."""

    name: str
    target: str
    draft: str
    """A model of its own, or "self", which shares the target's cache."""
    precision: str
    """Of the draft."""


PAIRS = (
    Pair("llama-int8-self", "llama", "self", "int8"),
    Pair("llama-int4-small", "llama", "small llama", "int4"),
    Pair("qwen2-int4-self", "qwen2", "self", "int4"),
    Pair("gemma2-int8-self", "gemma2", "self", "int8"),
)


def pairs_of(setup: Setup) -> Sequence[Pair]:
    """The pairs under test."""
    return PAIRS[:2] if setup.tiny else PAIRS


def prompts(count: int, length: int) -> list[list[int]]:
    """Random token ids, the same in every run."""
    rng = np.random.default_rng(7)
    ids: list[list[int]] = rng.integers(2, _VOCABULARY, size=(count, length)).tolist()
    return ids


def device_package(setup: Setup, pair: Pair) -> Path:
    """Where the package for the device under test lies."""
    return setup.work / pair.name / setup.made_for


def reference_package(setup: Setup, pair: Pair) -> Path:
    """Where the package for the CPU lies: the same weights, FP32 arithmetic."""
    return setup.work / pair.name / "cpu"


def export_pairs(setup: Setup, pairs: Sequence[Pair], recorder: Recorder) -> None:
    """Write what is missing of the packages of `pairs`.

    Raises:
        ReadyError: they were made elsewhere, and one is not there.
    """
    if is_ready(setup):
        for pair in pairs:
            for out in (reference_package(setup, pair), device_package(setup, pair)):
                if not out.exists():
                    raise ReadyError(f"{pair.name}/{out.name} is not among the packages")
        return
    for pair in pairs:
        (setup.work / pair.name).mkdir(exist_ok=True)
        for out in {reference_package(setup, pair), device_package(setup, pair)}:
            if not out.exists():
                export_for(setup, pair, out, recorder, **export_options(out.name))


def export_for(setup: Setup, pair: Pair, out: Path, recorder: Recorder, **options: Any) -> None:
    """Write a package of `pair`; `options` are of `ExportOptions`."""
    import torch

    from specdec.export import ExportOptions, export_package

    torch.set_num_threads(1)  # at these sizes several only wait for each other
    draft = pair.draft
    export_package(
        ExportOptions(
            target=str(_folder(setup.work, pair.target)),
            draft=draft if draft == "self" else str(_folder(setup.work, draft)),
            draft_precision=pair.precision,
            out=out,
            report="none",
            **options,
        ),
        Steps(recorder),
    )


def _folder(work: Path, name: str) -> Path:
    """A Hugging Face folder of a random model, written once."""
    folder = work / MODELS_FOLDER / name.replace(" ", "-")
    if not (folder / "model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_tokenizer(folder)
        _model(name).save_pretrained(folder)
    return folder


def _model(name: str) -> Any:
    """Weights are normal, so large that the greedy text wanders.

    They depend on their names: a model of fewer layers is the beginning of a deeper one.
    """
    import torch
    import transformers

    stem, options = _MODELS[name]
    config = getattr(transformers, f"{stem}Config")(**(_COMMON | options))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for called, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(called.encode()))
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(0.08 * noise)
            else:
                parameter.add_(0.05 * noise)
        if stem == "Gemma2":  # multiplies its embeddings by 16, and ties them
            model.get_input_embeddings().weight.mul_(0.1)
    return model.float().eval()


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "</s>", *letters]
    names += [f"<unused {index}>" for index in range(_VOCABULARY - len(names))]
    tokenizer = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
