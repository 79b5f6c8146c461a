"""Read what a PyTorch `.bin` file holds, without running code that it might bring.

torch's weights-only loading accepts tensors and plain containers. A file in the zip format is
mapped, so that shapes cost no reading.
"""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.export.errors import SourceError
from specdec.export.sources.stored import check_is_fetched

__all__ = ["PickledTensor", "read_pickled"]

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, eq=False)
class PickledTensor:
    """A tensor of a `.bin` file, mapped."""

    name: str
    file: Path
    tensor: Any

    @property
    def dtype(self) -> str:
        """As `StoredTensor.dtype`."""
        name = str(self.tensor.dtype).removeprefix("torch.")
        return _NAMES.get(name, name)

    @property
    def shape(self) -> tuple[int, ...]:
        """As `StoredTensor.shape`."""
        return tuple(self.tensor.shape)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """As `StoredTensor.at`."""
        import torch

        picked = torch.take(self.tensor, torch.from_numpy(positions))
        found: NDArray[np.float32] = picked.float().numpy()
        return found


def read_pickled(path: Path) -> dict[str, PickledTensor]:
    """All tensors of a file by name.

    Raises:
        SourceError: the file is torn, or holds more than tensors.
    """
    import torch

    check_is_fetched(path)
    try:
        state = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"{path} holds more than tensors, which could run code when it is loaded; save the "
            "model as .safetensors (save_pretrained does)"
        ) from error
    except Exception as error:  # torch raises whatever its readers raise
        raise SourceError(
            f"the weights of {path.parent} cannot be read: {path.name} is no PyTorch file, or is "
            "torn; download it again"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(t, torch.Tensor) for t in state.values()):
        raise SourceError(
            f"{path} holds something else than a table of tensors (a training state?); save the "
            "model alone with save_pretrained"
        )
    return {name: PickledTensor(name, path, tensor) for name, tensor in state.items()}
