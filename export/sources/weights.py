"""Account for the weights of a source, and load them.

Accounting reads tables of tensors only; it comes before anything heavy. What transformers reports
while it loads is checked again: it must have found no more and no less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec.export.errors import SourceError
from specdec.export.sources.accounting import Accounting, account, check_full_precision, check_ties
from specdec.export.sources.checkpoint import open_checkpoint
from specdec.export.sources.gguf.load import fill_from_gguf
from specdec.export.sources.gguf.tensors import GgufTensor, account_gguf
from specdec.export.sources.skeleton import Skeleton, build_skeleton
from specdec.export.sources.source import ModelSource, load_config, open_source_gguf, reading

__all__ = ["account_for", "load_model"]


def account_for(
    source: ModelSource, config: Any, needs: Skeleton | None = None
) -> Accounting | None:
    """Match every tensor of a source with the model it is for; see `accounting`.

    Args:
        source: of the weights.
        config: its transformers configuration.
        needs: the model's skeleton, when it is built already.

    Returns:
        None for a model whose own code cannot be built without memory: `load_model` then relies
        on what transformers reports.

    Raises:
        SourceError: a tensor is missing, unexpected, torn, quantized or of another shape.
    """
    needs = needs or build_skeleton(config, trust_remote_code=source.trust_remote_code)
    if source.gguf_file is not None:
        assert needs is not None  # transformers' own models only
        return account_gguf(open_source_gguf(source), needs, config)
    stored = open_checkpoint(source.name, lambda name: _find(source, name))
    if needs is None:
        return None
    found = account(source.name, stored, needs)
    check_full_precision(found)
    check_ties(source.name, found)
    return found


def load_model(source: ModelSource, accounted: Accounting | None = None) -> Any:
    """The model in float32, in evaluation mode.

    Args:
        source: of the weights.
        accounted: of `account_for`, when that was called already.

    Raises:
        SourceError: the weights cannot be read, or are not the model's.
    """
    config = load_config(source)
    accounted = accounted or account_for(source, config)
    if accounted is not None and (source.gguf_file is not None or accounted.stripped):
        model = _empty_model(source, config)
        with reading(source, "weights"):
            _fill(model, source, accounted)
    else:
        model = _from_pretrained(source)
    return model.eval()


def _from_pretrained(source: ModelSource) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with reading(source, "weights"):
        model, report = AutoModelForCausalLM.from_pretrained(
            source.location,
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
            **source.arguments,
        )
    for what in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report[what]:
            first = sorted(map(str, report[what]))[0]
            raise SourceError(
                f"the weights of {source.name} are not the model's: {what.replace('_', ' ')}: "
                f"{len(report[what])}, the first is {first}"
            )
    return model


def _empty_model(source: ModelSource, config: Any) -> Any:
    """The model with its memory allocated and nothing in it."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import no_init_weights

    with reading(source, "configuration"), no_init_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager"
        )
    model.tie_weights()
    return model


def _fill(model: Any, source: ModelSource, accounted: Accounting) -> None:
    """Copy every tensor to its parameter, in place."""
    import torch

    if source.gguf_file is not None:
        tensors = {n: t for n, t in accounted.parameters.items() if isinstance(t, GgufTensor)}
        assert len(tensors) == len(accounted.parameters)
        fill_from_gguf(model, open_source_gguf(source), tensors)
        return
    state = model.state_dict(keep_vars=True)
    by_file: dict[Path, list[tuple[str, str]]] = {}
    for name, tensor in accounted.parameters.items():
        by_file.setdefault(tensor.file, []).append((name, tensor.name))
    with torch.no_grad():
        for file, names in by_file.items():
            held = _library_reads(file)
            for name, stored in names:
                state[name].copy_(held(stored))


def _library_reads(file: Path) -> Any:
    """A function from a tensor's name to the tensor, by the format's own library."""
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        return safe_open(file, "pt").get_tensor
    import torch

    return torch.load(file, map_location="cpu", weights_only=True).__getitem__


def _find(source: ModelSource, name: str) -> Path | None:
    """Where a file of a folder or of a model on the hub is, fetched when it has to be."""
    folder = Path(source.location)
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from transformers.utils.hub import cached_file

    with reading(source, "weights"):
        found = cached_file(
            source.location,
            name,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=True,
        )
    return Path(found) if found else None
