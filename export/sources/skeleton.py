"""What a model needs: its parameters and kept buffers by name and shape, without any memory.

The model is built from its configuration on torch's meta device, where tensors have shapes only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["Skeleton", "build_skeleton"]


@dataclass(frozen=True)
class Skeleton:
    """The tensors that a model's weights must bring."""

    shapes: dict[str, tuple[int, ...]]
    """Parameters and persistent buffers, every name of a shared one among them."""
    buffers: frozenset[str]
    """Those of them that are buffers."""
    ties: tuple[frozenset[str], ...]
    """Names of one and the same parameter, such as a tied output head."""
    prefix: str
    """Attribute of the decoder in the model with its head ("model", "transformer"), or ""."""
    unread: tuple[str, ...]
    """Patterns of names that transformers knows to be left over in checkpoints."""
    num_weights: int

    def twins(self, name: str) -> frozenset[str]:
        """All names of the parameter called `name`."""
        return next((tie for tie in self.ties if name in tie), frozenset((name,)))

    def is_known_unread(self, name: str) -> bool:
        """Whether transformers leaves `name` out on purpose."""
        return any(re.search(pattern, name) for pattern in self.unread)


def build_skeleton(config: Any, *, trust_remote_code: bool = False) -> Skeleton | None:
    """The skeleton of a causal language model; None when its own code cannot be built so.

    Args:
        config: a transformers configuration.
        trust_remote_code: as transformers' own.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception:  # code of the model's own, or a constructor that computes
        return None
    state = model.state_dict(keep_vars=True)
    by_identity: dict[int, set[str]] = {}
    for name, tensor in state.items():
        by_identity.setdefault(id(tensor), set()).add(name)
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    return Skeleton(
        shapes={name: tuple(tensor.shape) for name, tensor in state.items()},
        buffers=frozenset(buffers & set(state)),
        ties=tuple(frozenset(names) for names in by_identity.values() if len(names) > 1),
        prefix=model.base_model_prefix if hasattr(model, model.base_model_prefix) else "",
        unread=tuple(model._keys_to_ignore_on_load_unexpected or ()),
        num_weights=sum(parameter.numel() for parameter in model.parameters()),
    )
