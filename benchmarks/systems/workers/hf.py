"""transformers in PyTorch, eager. Models: "plain", "assisted" and "lookup".

The assistant is the same model with its linear layers in INT8, PyTorch's own dynamic
quantization, so that the draft is what it is elsewhere: the target's weights in 8 bits.
"""

from __future__ import annotations

from typing import Any

import protocol
import torch
import transformers


def prepare(settings: protocol.Settings) -> None:
    """Nothing to write: the Hugging Face folder is what transformers reads."""


def load(settings: protocol.Settings, model: str) -> protocol.Generate:
    """Load the model, and the assistant when it is used."""
    torch.set_num_threads(settings.threads)
    target = _read(settings)
    extra: dict[str, Any] = {}
    if model == "assisted":
        assistant = torch.ao.quantization.quantize_dynamic(
            _read(settings), {torch.nn.Linear}, dtype=torch.qint8
        )
        extra["assistant_model"] = assistant

    def generate(request: protocol.Request) -> list[int]:
        torch.manual_seed(request.seed)
        prompt = torch.tensor([request.prompt])
        if model == "lookup":
            extra["prompt_lookup_num_tokens"] = request.num_draft_tokens
        elif model == "assisted":
            settings_of_draft = extra["assistant_model"].generation_config
            settings_of_draft.num_assistant_tokens = request.num_draft_tokens
            settings_of_draft.num_assistant_tokens_schedule = "constant"
            settings_of_draft.assistant_confidence_threshold = 0.0
        sampling = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        output = target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=request.max_new_tokens,
            do_sample=request.temperature > 0,
            **(sampling if request.temperature > 0 else {}),
            **extra,
        )
        tokens: list[int] = output[0, prompt.shape[1] :].tolist()
        return tokens

    return generate


def _read(settings: protocol.Settings) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        settings.weights / "hf", dtype=torch.float32
    )
    model.generation_config.eos_token_id = protocol.END_TOKEN
    model.generation_config.pad_token_id = protocol.END_TOKEN
    return model.eval()


if __name__ == "__main__":
    protocol.run(prepare, load, ["transformers", "torch"])
