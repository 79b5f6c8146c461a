"""Everything that can be refused before weights are read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.engines.onnxruntime.gpu import find_cuda_libraries
from specdec.engines.storage.writing import readable_size
from specdec.export.calibration.texts import CalibrationTexts, load_calibration
from specdec.export.checks.device import CPU_NOTE, check_device, is_measured_here
from specdec.export.errors import (
    ExportError,
    ExportOptionError,
    SourceError,
    UnsupportedModelError,
)
from specdec.export.options import ExportOptions
from specdec.export.sources.accounting import Accounting
from specdec.export.sources.skeleton import Skeleton, build_skeleton
from specdec.export.sources.source import ModelSource, load_config, resolve_source
from specdec.export.sources.tokenizers import SourceTokenizer, check_same_tokenizer, load_tokenizer
from specdec.export.sources.weights import account_for
from specdec.export.staging import check_destination

__all__ = ["Plan", "preflight"]

_DEFAULT_LENGTH = 4096
_BYTES_PER_WEIGHT = 11
"""Disk an export needs at its peak: two float32 graphs, a target and a draft."""


_GENAI_NOTE = (
    "the target is the folder's own engine, its weights as they are: outputs are lossless to that "
    "engine, not to the weights it was made from; --target-precision does not apply"
)


@dataclass(frozen=True)
class Plan:
    """A checked export: what to read and how long the caches are."""

    options: ExportOptions
    target: ModelSource
    target_config: Any
    draft: ModelSource | None
    """None without a draft; equal to `target` for a self-draft."""
    draft_config: Any | None
    tokenizer: SourceTokenizer
    target_weights: Accounting | None
    """None for a model whose own code says only while it loads what it needs."""
    draft_weights: Accounting | None
    """None also without a draft that is a model of its own."""
    max_length: int
    draft_max_length: int
    calibration: CalibrationTexts | None = None
    """For a draft whose activations are quantized."""
    notes: tuple[str, ...] = ()
    """What the user should know of the models although they can be exported."""

    @property
    def self_draft(self) -> bool:
        """Whether the draft is the target's own weights."""
        return self.draft is self.target


def preflight(options: ExportOptions) -> Plan:
    """Check an export as far as possible without weights.

    Raises:
        ExportError: a subclass that says what was got, what is allowed, what to do.
        DeviceError: the GPU that would check the engines lacks a library of CUDA.
    """
    _check_destination(options)
    _check_device(options)
    target = resolve_source(options.target, trust_remote_code=options.trust_remote_code)
    config = load_config(target)
    _check_genai(options, target)
    if not target.is_genai:
        _check_decoder(config, target.name)
    draft, draft_config = _resolve_draft(options, target, config)
    tokenizer = load_tokenizer(target, config)
    _check_ends(tokenizer, config)
    if draft is not None and draft is not target:
        check_same_tokenizer(tokenizer, load_tokenizer(draft, draft_config))
    calibration = None
    if options.is_calibrated:
        calibration = load_calibration(options.calibration, tokenizer)
    max_length = _max_length(config, options.max_length, target.name)
    draft_length = max_length
    if draft_config is not None:
        limit = _context(draft_config)
        draft_length = min(max_length, limit) if limit else max_length
    skeleton = build_skeleton(config, trust_remote_code=options.trust_remote_code)
    notes = [] if is_measured_here(options) else [CPU_NOTE]
    if target.is_genai:
        notes.append(_GENAI_NOTE)
    notes += [*tokenizer.notes, *_notes(config, "target")]
    weights, draft_weights, skeletons = _accounted(target, config, skeleton), None, [skeleton]
    if draft is not None and draft is not target:
        notes += _notes(draft_config, "draft")
        skeletons.append(build_skeleton(draft_config, trust_remote_code=draft.trust_remote_code))
        draft_weights = _accounted(draft, draft_config, skeletons[1])
    _check_disk(options.out, [s.num_weights for s in skeletons if s is not None])
    for found in (weights, draft_weights):
        notes += found.notes if found is not None else ()
    return Plan(
        options,
        target,
        config,
        draft,
        draft_config,
        tokenizer,
        weights,
        draft_weights,
        max_length,
        draft_length,
        calibration,
        tuple(notes),
    )


def _accounted(source: ModelSource, config: Any, skeleton: Skeleton | None) -> Accounting | None:
    """Match every tensor of a source; a GenAI folder's engine brings its own graph."""
    return None if source.is_genai else account_for(source, config, skeleton)


def _check_destination(options: ExportOptions) -> None:
    out = options.out
    check_destination(out, overwrite=options.overwrite)
    parent = out.absolute().parent
    if not parent.is_dir():
        raise ExportOptionError(f"there is no directory {parent}; create it first")


def _check_device(options: ExportOptions) -> None:
    """Refuse a GPU that cannot be used, and to measure what only an absent one could show."""
    device = check_device(options)
    if device.kind == "cuda":
        find_cuda_libraries(device)
    if options.device != "cuda" or is_measured_here(options):
        return
    wanted = {"--draft-precision auto": options.draft_precision == "auto"}
    wanted["--require-speedup"] = options.require_speedup is not None
    for name in (name for name, given in wanted.items() if given):
        raise ExportOptionError(
            f"{name} is measured on the device, and ONNX Runtime has no CUDA device here; leave "
            "it out, or export on the GPU's machine with onnxruntime-gpu"
        )


def _check_genai(options: ExportOptions, target: ModelSource) -> None:
    """Refuse what the weights of a GenAI folder, which are taken as they are, cannot give."""
    if not target.is_genai:
        return
    if options.draft == "self":
        raise ExportOptionError(
            f"{target.name} is a folder of ONNX Runtime GenAI, whose weights are taken as they are "
            "and not quantized again; choose --draft none, or a folder of a smaller precision"
        )
    if options.backend != "onnxruntime" or options.is_for_gpu:
        raise ExportOptionError(
            f"{target.name} is a folder of ONNX Runtime GenAI; allowed is --backend onnxruntime "
            "on the CPU"
        )


def _resolve_draft(
    options: ExportOptions, target: ModelSource, config: Any
) -> tuple[ModelSource | None, Any | None]:
    if options.draft == "none":
        return None, None
    if options.draft == "self":
        return target, config
    draft = resolve_source(options.draft, trust_remote_code=options.trust_remote_code)
    draft_config = load_config(draft)
    if not draft.is_genai:
        _check_decoder(draft_config, draft.name)
    return draft, draft_config


def _check_decoder(config: Any, name: str) -> None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{name} is an encoder-decoder model ({kind}); allowed are decoder-only models"
        )
    remote = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not remote:
        raise UnsupportedModelError(
            f"{name} has architecture {kind!r}, which is not a causal language model; allowed "
            "are decoder-only models"
        )
    if getattr(config, "quantization_config", None):
        raise UnsupportedModelError(
            f"{name} is quantized already ({_method(config.quantization_config)}); allowed are "
            "full-precision weights (the export quantizes the draft itself)"
        )
    _check_optimum(kind, name)


def _method(quantization: Any) -> str:
    """Name of the method a checkpoint is quantized by."""
    if isinstance(quantization, dict):
        return str(quantization.get("quant_method", "quantization_config"))
    return str(getattr(quantization, "quant_method", "quantization_config"))


def _check_optimum(kind: str, name: str) -> None:
    import optimum.exporters.onnx.model_configs  # noqa: F401  (registers the architectures)
    from optimum.exporters.tasks import TasksManager

    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(
            kind, exporter="onnx", library_name="transformers"
        )
    except (KeyError, ValueError):
        tasks = {}
    if "text-generation-with-past" not in tasks:
        raise UnsupportedModelError(
            f"{name} has architecture {kind!r}, which Optimum does not export for text "
            "generation; see docs/architectures.md for those it does"
        )


def _context(config: Any) -> int | None:
    nominal = _nominal_context(config)
    if nominal is None:
        return None
    return min(nominal, _static_rope_limit(config.get_text_config(), nominal))


def _nominal_context(config: Any) -> int | None:
    text = config.get_text_config()
    for attribute in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        limit = getattr(text, attribute, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def _notes(config: Any, name: str) -> Iterator[str]:
    """What the user should know of a model although it can be exported."""
    nominal, limit = _nominal_context(config), _context(config)
    if nominal is not None and limit is not None and limit < nominal:
        yield (
            f"the {name} is limited to its original context of {limit} tokens (its configuration "
            f"says {nominal}): beyond it, its rotary scaling changes with the length of the text"
        )


def _static_rope_limit(config: Any, limit: int) -> int:
    """Positions up to which a length-dependent rotary embedding does not depend on it.

    Tables cannot follow frequencies that change with the length of the text ("dynamic" and
    "longrope" scaling), so such models are exported for their original context.
    """
    scaling = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) not in ("dynamic", "longrope"):
        return limit
    original = getattr(config, "original_max_position_embeddings", None)
    return int(original or scaling.get("original_max_position_embeddings") or limit)


def _max_length(config: Any, asked: int | None, name: str) -> int:
    limit = _context(config)
    if asked is None:
        return min(limit or _DEFAULT_LENGTH, _DEFAULT_LENGTH)
    if limit is not None and asked > limit:
        raise ExportOptionError(
            f"--max-length is {asked}; {name} allows at most {limit} tokens of context"
        )
    return asked


def _check_ends(tokenizer: SourceTokenizer, config: Any) -> None:
    """Refuse an end that the model has no logit for."""
    width = int(config.get_text_config().vocab_size)
    for index in tokenizer.eos_token_ids:
        if index >= width:
            raise SourceError(
                f"{tokenizer.source} ends its texts with id {index}, and the model has {width} "
                "logits; correct eos_token_id in its configuration, or take the model's own "
                "tokenizer"
            )


def _check_disk(out: Path, num_weights: list[int]) -> None:
    needed = _BYTES_PER_WEIGHT * sum(num_weights)
    free = shutil.disk_usage(out.absolute().parent).free
    if free < needed:
        raise ExportError(
            f"the export needs about {readable_size(needed)} of disk beside {out}, but "
            f"{readable_size(free)} are free; free some or choose another --out"
        )
