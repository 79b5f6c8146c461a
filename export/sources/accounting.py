"""Account for every tensor of a checkpoint and every parameter of its model, before any is read.

Each tensor becomes a parameter, or is known to be left over, or is an error; each parameter comes
from a tensor, or is another one's twin, or is an error. transformers fills what a file lacks with
random numbers, and no comparison with a model so filled would ever notice.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from specdec.export.errors import SourceError
from specdec.export.sources.skeleton import Skeleton
from specdec.export.sources.stored import StoredTensor, spots

__all__ = ["Accounting", "account", "check_full_precision", "check_ties"]

_INSIDE = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Names that torch's own wrappers put before the module they wrap, anywhere."""
_BEFORE = ("module.", "_forward_module.", "base_model.model.", "pretrained_model.")
"""Names of an outermost module that a training library wraps a model in."""
_OWN_NAME = "model."
"""What a wrapper of one's own most often calls the model, and a decoder is called in its model."""
_LEFT_OVER = re.compile(
    r"(rotary_emb|rotary_embeddings|attention|attn|self_attention)\."
    r"(inv_freq|bias|masked_bias)$"
)
"""Tables and masks that older releases of transformers saved; the model computes its own."""
_FLOATS = ("F64", "F32", "F16", "BF16")
_PACKED = {
    "qweight": "GPTQ or AWQ",
    "qzeros": "GPTQ or AWQ",
    "g_idx": "GPTQ",
    "weight_packed": "compressed-tensors",
    "weight_scale": "compressed-tensors or FP8",
    "weight_scale_inv": "FP8",
    "absmax": "bitsandbytes",
    "quant_map": "bitsandbytes",
    "SCB": "bitsandbytes",
    "weight_format": "bitsandbytes",
}
_NAMED = 2
"""Names that a message gives."""
_TIE_SPOTS = 1000


@dataclass(frozen=True)
class Accounting:
    """Where each parameter comes from, and what became of each tensor."""

    parameters: dict[str, StoredTensor]
    """By the model's own names; of twins, those that the file has."""
    num_tensors: int
    """In the files."""
    left_over: tuple[str, ...] = ()
    """Tensors that are no part of the model, known as such."""
    tied: tuple[str, ...] = ()
    """Parameters that are another one's twin and not in the files."""
    ties: tuple[frozenset[str], ...] = ()
    """Names of one and the same parameter."""
    stripped: str = ""
    """What was taken off the names, "" for nothing."""
    num_tables: int = 0
    """Tensors that are read and are no parameters (rotary factors)."""
    notes: tuple[str, ...] = ()

    def twins(self, name: str) -> frozenset[str]:
        """All names of the parameter called `name`."""
        return next((tie for tie in self.ties if name in tie), frozenset((name,)))

    def record(self) -> dict[str, int]:
        """Counts for the manifest."""
        return {
            "in_source": self.num_tensors,
            "loaded": len(self.parameters),
            "tied": len(self.tied),
            "left_over": len(self.left_over),
            "tables": self.num_tables,
        }


def account(name: str, stored: Mapping[str, StoredTensor], needs: Skeleton) -> Accounting:
    """Match the tensors of a checkpoint with the parameters of its model.

    Args:
        name: of the source, for messages.
        stored: its tensors by their names in the files.
        needs: the model.

    Raises:
        SourceError: tensors are missing, unexpected, of another shape or quantized; the message
            names the first of them.
    """
    stripped, renamed = _unwrapped(stored, needs)
    parameters = {to: stored[key] for key, to in renamed.items() if to in needs.shapes}
    others = [key for key, to in renamed.items() if to not in needs.shapes]
    left_over = [
        key for key in others if _LEFT_OVER.search(key) or needs.is_known_unread(renamed[key])
    ]
    unexpected = [key for key in others if key not in set(left_over)]
    absent = [key for key in needs.shapes if key not in parameters]
    tied = [key for key in absent if needs.twins(key) & parameters.keys()]
    missing = [key for key in absent if key not in set(tied)]
    _refuse_packed(name, unexpected)
    if missing or unexpected:
        raise SourceError(_mismatch(name, missing, unexpected))
    for key, tensor in parameters.items():
        _check_shape(key, tensor, needs.shapes[key])
    notes = []
    if stripped:
        notes.append(f"{name} names its tensors with {stripped!r}, which was taken off")
    if left_over:
        notes.append(
            f"{len(left_over)} tensors of {name} are no part of the model and are left out "
            f"({left_over[0]} is the first)"
        )
    return Accounting(
        parameters,
        len(stored),
        tuple(left_over),
        tuple(tied),
        needs.ties,
        stripped,
        notes=tuple(notes),
    )


def _unwrapped(stored: Mapping[str, StoredTensor], needs: Skeleton) -> tuple[str, dict[str, str]]:
    """What to take off, and the model's name for each name: the first way that fits best."""
    ways = list(_ways(stored, needs.prefix))
    return max(ways, key=lambda way: len(needs.shapes.keys() & way[1].values()))


def _ways(stored: Mapping[str, StoredTensor], prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Ways of reading the names, the plainest first."""
    names, taken = {key: key for key in stored}, ""
    while True:
        yield taken, dict(names)
        if prefix:  # saved from the decoder without its head
            yield taken, {key: f"{prefix}.{to}" for key, to in names.items()}
        before = _common(_BEFORE, names)
        found = next((m for to in names.values() if (m := _INSIDE.search(to))), None)
        if before is None and found is not None:
            names = {key: _INSIDE.sub("", to) for key, to in names.items()}
            taken += found.group(0)
            continue
        before = before or _common((_OWN_NAME,), names)
        if before is None:
            return
        names = {key: to.removeprefix(before) for key, to in names.items()}
        taken += before


def _common(prefixes: Iterable[str], names: Mapping[str, str]) -> str | None:
    """The first of `prefixes` that every name begins with."""
    if not names:
        return None
    return next((p for p in prefixes if all(to.startswith(p) for to in names.values())), None)


def _refuse_packed(name: str, unexpected: list[str]) -> None:
    for key in unexpected:
        method = _PACKED.get(key.rsplit(".", 1)[-1])
        if method is not None:
            raise SourceError(
                f"{name} is quantized already ({key} looks like {method}); allowed are "
                "full-precision weights (the export quantizes the draft itself)"
            )


def _mismatch(name: str, missing: list[str], unexpected: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"lacks {len(missing)} tensors of the model ({_first(missing)})")
    if unexpected:
        parts.append(
            f"holds {len(unexpected)} that the model has no place for ({_first(unexpected)})"
        )
    return (
        f"{name} {' and '.join(parts)}: its weights and its config.json do not belong together, "
        "or the download is not complete"
    )


def _first(names: list[str]) -> str:
    more = ", ..." if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _check_shape(key: str, tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise SourceError(
            f"{tensor.file} holds {tensor.name} with shape {list(tensor.shape)}, and the "
            f"configuration needs {list(shape)} (for {key}); its config is another model's"
        )


def check_ties(name: str, found: Accounting) -> None:
    """Refuse files that hold two different tensors where the configuration ties them to one.

    Raises:
        SourceError: they differ in one of some values; the message names both.
    """
    for tie in found.ties:
        held = [found.parameters[key] for key in sorted(tie) if key in found.parameters]
        for first, other in itertools.pairwise(held):
            places = spots(math.prod(first.shape), _TIE_SPOTS)
            if not np.array_equal(first.at(places), other.at(places), equal_nan=True):
                raise SourceError(
                    f"the configuration of {name} ties {first.name} and {other.name}, and its "
                    "files hold different values for them; correct tie_word_embeddings"
                )


def check_full_precision(found: Accounting) -> None:
    """Refuse parameters that are stored as anything but floating-point numbers.

    Raises:
        SourceError: one is; the message names it.
    """
    for tensor in found.parameters.values():
        if tensor.dtype not in _FLOATS:
            raise SourceError(
                f"{tensor.file} stores {tensor.name} as {tensor.dtype}; allowed are "
                f"{', '.join(_FLOATS)}: widen quantized weights first"
            )
