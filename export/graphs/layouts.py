"""Choose the KV layout of a model, and make the Optimum config that exports it.

`in_place` is tried first: the model's own forward runs once over the fixed-capacity cache, in
torch, and must reproduce the plain forward. What the attention node cannot express (attention
code of its own, ALiBi, keys and values of different sizes) is exported `concatenated`, the plain
Optimum way. The choice depends on what the model computes, so a new architecture needs no table.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optimum.exporters.onnx.model_configs  # noqa: F401  (registers the architectures)
import torch
from optimum.exporters.tasks import TasksManager

from specdec.export.errors import UnsupportedModelError
from specdec.export.graphs.in_place import in_place_config, kv_geometry

__all__ = ["concatenated_config", "export_config", "fits_in_place", "optimum_config_class"]

_ROWS = 24
_PAST = 17
_TOLERANCE = 1e-3
_HEAD_MULTIPLE = 8
"""Channels of a head come in multiples of this in the attention node."""


def optimum_config_class(model_type: str, model: Any) -> type[Any]:
    """The `OnnxConfig` class Optimum registers for text generation with this architecture.

    Raises:
        UnsupportedModelError: Optimum does not export it for text generation with a cache.
    """
    try:
        constructor = TasksManager.get_exporter_config_constructor(
            exporter="onnx",
            model=model,
            task="text-generation-with-past",
            model_type=model_type,
            library_name="transformers",
        )
    except (KeyError, ValueError) as error:
        raise UnsupportedModelError(
            f"Optimum cannot export architecture {model_type!r} for text generation; allowed are "
            "decoder-only architectures it supports, such as llama, qwen2, gemma2, phi3"
        ) from error
    config_class: type[Any] = constructor.func
    return config_class


def export_config(model: Any, layout: str, max_length: int) -> Any:
    """The Optimum config that exports `model` with a layout; see `fits_in_place`."""
    base = optimum_config_class(model.config.model_type, model)
    in_place = layout == "in_place"
    made = in_place_config(base, max_length) if in_place else concatenated_config(base, model)
    return made(model.config, task="text-generation", use_past=True, use_past_in_inputs=True)


def fits_in_place(model: Any, max_length: int) -> str | None:
    """Why `model` cannot use the in-place layout, or None when it can.

    Runs 24 tokens plainly, then the same tokens over the fixed-capacity cache in two passes
    (17 and 7 rows), and compares the logits.
    """
    capacity = min(max_length, 2 * _ROWS)
    config = export_config(model, "in_place", max_length)
    kv_heads, head_size = kv_geometry(model.config.get_text_config())
    if head_size % _HEAD_MULTIPLE:
        return f"its heads have {head_size} channels, not a multiple of {_HEAD_MULTIPLE}"
    num_layers = config._normalized_config.num_layers
    generator = torch.Generator().manual_seed(0)
    num_tokens = model.config.get_text_config().vocab_size
    token_ids = torch.randint(0, num_tokens, (1, _ROWS), generator=generator)
    shape = (1, kv_heads, capacity, head_size)
    past = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(num_layers)]
    with torch.no_grad():
        expected = model(input_ids=token_ids, use_cache=False).logits.float()
        try:
            with config.patch_model_for_export(model):
                for start, stop in ((0, _PAST), (_PAST, _ROWS)):
                    out = model.forward(
                        input_ids=token_ids[:, start:stop],
                        position_ids=torch.arange(start, stop)[None],
                        past_key_values=past,
                        seqlens_k=torch.tensor([stop - 1], dtype=torch.int32),
                        total_sequence_length=torch.tensor([stop], dtype=torch.int32),
                        logit_rows=torch.arange(stop - start),
                    )
                    past = out["present"]
        except Exception as error:  # any failure means: not expressible this way
            return " ".join(str(error).split())[:200] or type(error).__name__
    difference = float((out["logits"].float() - expected[:, _PAST:]).abs().max())
    if not difference <= _TOLERANCE * max(1.0, float(expected.abs().max())):
        return f"its attention computes something else (logits differ by {difference:.2g})"
    return None


def concatenated_config(base: type[Any], model: Any) -> type[Any]:
    """Subclass an Optimum config so that the plain graph scores only the rows asked for."""
    with torch.no_grad():
        cached = tuple(model(input_ids=torch.tensor([[0]]), use_cache=True).past_key_values)

    class ConcatenatedOnnxConfig(base):
        @property
        def inputs(self) -> dict[str, dict[int, str]]:
            return {**super().inputs, "logit_rows": {0: "num_logits"}}

        @property
        def outputs(self) -> dict[str, dict[int, str]]:
            named = dict(super().outputs)
            named["logits"] = {0: "batch_size", 1: "num_logits"}
            return named

        def generate_dummy_inputs(self, framework: str = "pt", **kwargs: Any) -> dict[str, Any]:
            plain = base(self._config, task=self.task, use_past=True, use_past_in_inputs=True)
            dummy = plain.generate_dummy_inputs(framework=framework, **kwargs)
            rows = dummy["input_ids"].shape[1]
            dummy = {name: _one_sequence(value) for name, value in dummy.items()}
            dummy["past_key_values"] = [
                tuple(_with_heads_of(*pair) for pair in zip(past, layer, strict=False))
                for past, layer in zip(dummy["past_key_values"], cached, strict=True)
            ]
            dummy["logit_rows"] = torch.arange(rows - 2, rows)
            return dummy

        def patch_model_for_export(self, model: Any, model_kwargs: Any = None) -> Any:
            patcher = super().patch_model_for_export(model, model_kwargs=model_kwargs)
            patcher.patched_forward = _scoring_rows(model, patcher.patched_forward)
            return patcher

    return ConcatenatedOnnxConfig


def _one_sequence(value: Any) -> Any:
    """Keep the first sequence of Optimum's dummy batch."""
    if isinstance(value, torch.Tensor):
        return value[:1]
    return [tuple(part[:1] for part in layer) for layer in value]


def _with_heads_of(past: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
    """Give a dummy past the heads a model really caches.

    Optimum counts the key-value heads of Falcon's new decoder, which caches every head.
    """
    if past.dim() != 4 or past.shape[1] == cached.shape[1]:
        return past
    return past[:, :1].expand(-1, cached.shape[1], -1, -1).contiguous()


def _scoring_rows(model: Any, forward: Any) -> Any:
    """Wrap a patched forward so that it takes `logit_rows`, its first parameter, as well."""

    def patched(logit_rows: Any, *args: Any, **kwargs: Any) -> Any:
        with scored_rows(model, logit_rows):
            return forward(*args, **kwargs)

    # Optimum and torch order a graph's inputs by the signature.
    signature = inspect.signature(forward)
    first = inspect.Parameter("logit_rows", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [first, *signature.parameters.values()]
    vars(patched)["__signature__"] = signature.replace(parameters=parameters)
    return patched


@contextmanager
def scored_rows(model: Any, logit_rows: torch.Tensor) -> Iterator[None]:
    """While active, the output head sees only the given rows of the hidden states."""
    head = model.get_output_embeddings()
    hook = head.register_forward_pre_hook(
        lambda _, args: (args[0].index_select(1, logit_rows), *args[1:])
    )
    try:
        yield
    finally:
        hook.remove()
