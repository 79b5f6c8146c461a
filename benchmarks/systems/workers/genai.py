"""ONNX Runtime GenAI. Models: "plain", "speculative" (INT8 blocks draft) and "lookup".

Its model builder writes an FP32 target and an INT8 draft; a second
configuration names both. The threads of its two sessions must not spin: by default they
fight for the cores and speculation loses to plain decoding, so `allow_spinning` is off for the
pair, and left alone for the models that run by themselves.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime_genai
import protocol

CONFIG = "genai_config.json"
FULL_VOCABULARY = 0


def prepare(settings: protocol.Settings) -> None:
    """Build both models and the configuration of the pair."""
    for precision in ("fp32", "int8"):
        protocol.written_once(settings.models / precision, partial(_build, settings, precision))
    protocol.written_once(settings.models / CONFIG, lambda path: _pair(settings.models, path))


def load(settings: protocol.Settings, model: str) -> protocol.Generate:
    """Load the target alone, or the pair."""
    folder = settings.models if model == "speculative" else settings.models / "fp32"
    config = onnxruntime_genai.Config(str(folder))
    threads = {"intra_op_num_threads": settings.threads}
    overlay: dict[str, Any] = {"decoder": {"session_options": threads}}
    if model == "speculative":
        overlay["draft"] = {"session_options": threads}
    config.overlay(json.dumps({"model": overlay}))
    loaded = onnxruntime_genai.Model(config)

    def generate(request: protocol.Request) -> list[int]:
        params = onnxruntime_genai.GeneratorParams(loaded)
        options: dict[str, Any] = {"max_length": len(request.prompt) + request.max_new_tokens}
        if request.temperature > 0:
            options |= {"temperature": request.temperature, "top_k": FULL_VOCABULARY, "top_p": 1.0}
            options["random_seed"] = request.seed
        params.set_search_options(do_sample=request.temperature > 0, **options)
        if request.num_draft_tokens:
            params.set_speculative_options(
                max_draft_tokens=request.num_draft_tokens, ngram_size=3 if model == "lookup" else 0
            )
        generator = onnxruntime_genai.Generator(loaded, params)
        generator.append_tokens(request.prompt)
        while not generator.is_done():
            generator.generate_next_token()
        tokens: list[int] = generator.get_sequence(0)[len(request.prompt) :].tolist()
        return tokens

    return generate


def _build(settings: protocol.Settings, precision: str, out: Path) -> None:
    """Run the model builder."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", str(settings.weights / "hf"), "-o", str(out)]
    command += ["-p", precision, "-e", "cpu", "-c", str(settings.models / "builder-cache")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    config = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    config["model"]["eos_token_id"] = protocol.END_TOKEN
    (out / CONFIG).write_text(json.dumps(config), encoding="utf-8")


def _pair(models: Path, config_file: Path) -> None:
    """Write a configuration that names the target and the draft, relative to its own folder."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(models / "fp32" / name, models / name)
    config = json.loads((models / "fp32" / CONFIG).read_text(encoding="utf-8"))
    draft = json.loads((models / "int8" / CONFIG).read_text(encoding="utf-8"))
    config["model"]["draft"] = draft["model"]["decoder"]
    for name, precision in (("decoder", "fp32"), ("draft", "int8")):
        config["model"][name]["filename"] = f"{precision}/model.onnx"
        config["model"][name]["session_options"]["session.intra_op.allow_spinning"] = "0"
    config_file.write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    protocol.run(prepare, load, ["onnxruntime-genai", "onnxruntime"])
