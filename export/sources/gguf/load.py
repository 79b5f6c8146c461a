"""Load the weights of a GGUF model into a torch model, a tensor at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.export.sources.gguf.parts import GgufModel
from specdec.export.sources.gguf.rope import divide_frequencies
from specdec.export.sources.gguf.tensors import GgufTensor, widen

__all__ = ["fill_from_gguf"]


def fill_from_gguf(model: Any, gguf: GgufModel, parameters: Mapping[str, GgufTensor]) -> None:
    """Widen every tensor and copy it to its parameter, in place.

    Args:
        model: a torch model whose parameters are allocated, float32.
        gguf: where they come from.
        parameters: of `account_gguf`.

    Raises:
        SourceError: a tensor's type cannot be widened, or a table does not fit.
    """
    import torch

    state = model.state_dict(keep_vars=True)
    whole: tuple[str, NDArray[np.float32]] = ("", np.empty(0, np.float32))
    with torch.no_grad():
        for name, tensor in sorted(parameters.items(), key=lambda item: item[1].name):
            if whole[0] != tensor.name:  # the experts of a layer are one tensor
                whole = tensor.name, _widened(tensor)
            values = whole[1] if tensor.expert is None else whole[1][tensor.expert]
            state[name].copy_(torch.from_numpy(_as_parameter(values, tensor)))
    divide_frequencies(model, gguf)


def _widened(tensor: GgufTensor) -> NDArray[np.float32]:
    """The whole tensor as the file orders it."""
    info = tensor.info
    data = np.memmap(info.file, np.uint8, "r", info.offset, (info.num_bytes,))
    rows = max(1, math.prod(info.shape[:-1]))
    return widen(data.reshape(rows, -1), info).reshape(info.shape)


def _as_parameter(values: NDArray[np.float32], tensor: GgufTensor) -> NDArray[np.float32]:
    """Undo what the conversion to GGUF did."""
    if tensor.transform == "turned":
        values = values.T
    elif tensor.transform == "shifted":
        values = values - 1
    elif tensor.transform == "permuted":
        pairs = values.reshape(tensor.heads, -1, 2, *values.shape[1:])
        values = pairs.swapaxes(1, 2).reshape(values.shape)
    return np.ascontiguousarray(values)
