"""Which parameter each tensor of a GGUF model becomes, and single values of it.

Names are mapped by the `gguf` package's own table. A value is found by turning its place in the
parameter into a place in the file, and widening the one block that holds it: another way than the
one that loads the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.export.errors import SourceError
from specdec.export.sources.accounting import Accounting, account
from specdec.export.sources.gguf.config import architecture_of
from specdec.export.sources.gguf.parts import GgufModel
from specdec.export.sources.gguf.reader import TensorInfo
from specdec.export.sources.gguf.rope import FACTORS, LONG, SHORT
from specdec.export.sources.skeleton import Skeleton

__all__ = ["GgufTensor", "account_gguf", "widen"]

_EXPERT = re.compile(r"(?P<before>.+\.experts)\.(?P<index>\d+)(?P<after>\..+)")
_TABLES = {FACTORS, LONG, SHORT}
"""Tensors that `rope.py` reads; they are no parameters."""
_TRANSFORMED = {
    "shifted": re.compile(r"norm\.weight$"),
    "turned": re.compile(r"\.(attn_qkv|attn_output|ffn_up|ffn_down)\.weight$"),
}
"""Tensors that a transform concerns."""
_OLD_TABLE = re.compile(r"blk\.\d+\.attn_rot_embd\.freqs")


@dataclass(frozen=True)
class GgufTensor:
    """One parameter, as a part of a tensor of the file."""

    info: TensorInfo
    transform: str
    """As `Architecture.transform`, where it concerns this tensor."""
    heads: int = 1
    """Heads of a "permuted" tensor."""
    expert: int | None = None
    """Index into the first axis, for a tensor that holds all experts of a layer."""

    @property
    def name(self) -> str:
        """As `StoredTensor.name`."""
        return self.info.name

    @property
    def file(self) -> Path:
        """As `StoredTensor.file`."""
        return self.info.file

    @property
    def dtype(self) -> str:
        """As `StoredTensor.dtype`."""
        return self.info.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """As `StoredTensor.shape`."""
        stored = self.info.shape if self.expert is None else self.info.shape[1:]
        return stored[::-1] if self.transform == "turned" else stored

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """As `StoredTensor.at`."""
        if not len(positions):
            return np.empty(0, np.float32)
        place = positions
        if self.transform == "turned":
            rows, columns = self.shape
            place = positions % columns * rows + positions // columns
        elif self.transform == "permuted":
            place = self._before_rotation(positions)
        if self.expert is not None:
            place = place + self.expert * int(np.prod(self.shape))
        values = _values(self.info, place)
        return values - 1 if self.transform == "shifted" else values

    def _before_rotation(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """llama.cpp keeps the two rows of a pair side by side, transformers half a head apart."""
        width = self.shape[1] if len(self.shape) == 2 else 1
        size = self.shape[0] // self.heads
        row, column = positions // width, positions % width
        head, half, pair = row // size, row % size // (size // 2), row % (size // 2)
        return (head * size + 2 * pair + half) * width + column


def widen(data: NDArray[np.uint8], info: TensorInfo) -> NDArray[np.float32]:
    """The values of whole blocks.

    Args:
        data: uint8 [N, bytes of a row]; a row is at least one block.
        info: the tensor they are of.

    Raises:
        SourceError: the `gguf` package cannot widen the type.
    """
    from gguf import GGMLQuantizationType, dequantize

    try:
        values: NDArray[np.float32] = dequantize(data, GGMLQuantizationType[info.kind])
    except NotImplementedError as error:
        raise SourceError(
            f"{info.file} stores {info.name} as {info.kind}, which the gguf package installed here "
            "cannot widen; update it, or take a file of another type"
        ) from error
    return values


def _values(info: TensorInfo, positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Values at flat positions of a tensor as the file orders it; float32 [N]."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[info.kind]]
    data = np.memmap(info.file, np.uint8, "r", info.offset, (info.num_bytes,))
    first = positions // block * size
    blocks = np.ascontiguousarray(data[first[:, None] + np.arange(size)])
    widened = widen(blocks, info).reshape(len(positions), block)
    values: NDArray[np.float32] = widened[np.arange(len(positions)), positions % block]
    return values


def account_gguf(model: GgufModel, needs: Skeleton, config: Any) -> Accounting:
    """Match the tensors of a GGUF model with the parameters of a model, as `account` does.

    Raises:
        SourceError: as `account`, or a tensor's type cannot be widened.
    """
    name, _ = architecture_of(model)
    stored: dict[str, GgufTensor] = {}
    used = set()
    names = _names(name, config.num_hidden_layers, needs.shapes)
    for parameter, (tensor, expert) in names.items():
        if tensor not in model.tensors or needs.twins(parameter) & stored.keys():
            continue
        stored[parameter] = _stored(model, tensor, parameter, expert, config)
        used.add(tensor)
    tables = [n for n in model.tensors if n in _TABLES or _OLD_TABLE.fullmatch(n)]
    for tensor in model.tensors.keys() - used - set(tables):
        stored[tensor] = GgufTensor(model.tensors[tensor], "")
    found = account(str(model.path), dict(sorted(stored.items())), needs)
    for info in {t.info.kind: t.info for t in stored.values()}.values():
        _values(info, np.zeros(1, np.int64))
    return replace(found, num_tensors=len(model.tensors), num_tables=len(tables))


def _names(
    architecture: str, layers: int, parameters: Iterable[str]
) -> dict[str, tuple[str, int | None]]:
    """For each parameter the tensor's name, and the expert it is of."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    arch = next(key for key, value in MODEL_ARCH_NAMES.items() if value == architecture)
    known = get_tensor_name_map(arch, layers)
    found: dict[str, tuple[str, int | None]] = {}
    for parameter in parameters:
        match = _EXPERT.fullmatch(parameter)
        searched = match["before"] + match["after"] if match else parameter
        tensor = known.get_name(searched, try_suffixes=(".weight", ".bias"))
        if tensor is not None:
            found[parameter] = tensor, int(match["index"]) if match else None
    return found


def _stored(
    model: GgufModel, tensor: str, parameter: str, expert: int | None, config: Any
) -> GgufTensor:
    info = model.tensors[tensor]
    if expert is not None and (len(info.shape) != 3 or expert >= info.shape[0]):
        raise SourceError(
            f"{info.file}: {tensor} has shape {list(info.shape)}, and the model needs expert "
            f"{expert} of it ({parameter})"
        )
    _, architecture = architecture_of(model)
    transform, heads = architecture.transform, 1
    if transform == "permuted":
        part = re.search(r"\.attn_(q|k)\.(weight|bias)$", tensor)
        transform = transform if part else ""
        if part:
            heads = config.num_attention_heads if part[1] == "q" else config.num_key_value_heads
    elif architecture.transform in _TRANSFORMED:
        transform = transform if _TRANSFORMED[transform].search(tensor) else ""
    return GgufTensor(info, transform, heads, expert)
