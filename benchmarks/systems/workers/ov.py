"""OpenVINO GenAI. Models: "plain", "speculative" (INT8 draft), "lookup".

The target keeps FP16 weights and computes in FP32 (by default this backend would compute in
BF16 where the processor has AMX, which is a different model); the draft is the same model with
NNCF's 8-bit weights.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai
import protocol


def prepare(settings: protocol.Settings) -> None:
    """Convert the GGUF file to OpenVINO's format, and quantize it."""
    protocol.written_once(
        settings.models / "fp16", lambda path: _convert(settings.weights / "f16.gguf", path)
    )
    protocol.written_once(
        settings.models / "int8", lambda path: _quantize(settings.models / "fp16", path)
    )


def load(settings: protocol.Settings, model: str) -> protocol.Generate:
    """Load the target, with a draft or with look-up where that is asked for."""
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": settings.threads}
    extra: dict[str, Any] = {}
    if model == "speculative":
        extra["draft_model"] = openvino_genai.draft_model(
            str(settings.models / "int8"), "CPU", **hints
        )
    elif model == "lookup":
        extra["prompt_lookup"] = True
    pipeline = openvino_genai.LLMPipeline(str(settings.models / "fp16"), "CPU", **hints, **extra)

    def generate(request: protocol.Request) -> list[int]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = request.max_new_tokens
        config.eos_token_id = protocol.END_TOKEN
        config.stop_token_ids = {protocol.END_TOKEN}
        config.apply_chat_template = False
        if request.temperature > 0:
            config.do_sample, config.temperature = True, request.temperature
            config.rng_seed = request.seed
        if request.num_draft_tokens:
            config.num_assistant_tokens = request.num_draft_tokens
        if model == "lookup":
            config.max_ngram_size = 3
        ids = np.array([request.prompt], np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        tokens: list[int] = pipeline.generate(inputs, config).tokens[0]
        return tokens

    return generate


def _convert(gguf: Path, out: Path) -> None:
    """The pipeline itself converts a GGUF file, and saves the result beside that file."""
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        copy = Path(scratch) / gguf.name
        shutil.copyfile(gguf, copy)
        openvino_genai.LLMPipeline(str(copy), "CPU", enable_save_ov_model=True)
        copy.unlink()
        shutil.copytree(scratch, out)


def _quantize(source: Path, out: Path) -> None:
    import nncf

    shutil.copytree(source, out, ignore=shutil.ignore_patterns("openvino_model.*"))
    model = openvino.Core().read_model(source / "openvino_model.xml")
    openvino.save_model(nncf.compress_weights(model), out / "openvino_model.xml")


if __name__ == "__main__":
    protocol.run(prepare, load, ["openvino-genai", "openvino", "nncf"])
