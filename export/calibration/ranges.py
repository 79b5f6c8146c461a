"""Measure the ranges of activations by running a traced float graph over texts.

The graph is run by ONNX Runtime on the CPU with one more output for each tensor that a weight
multiplies, a few rows at a time. Of each such tensor two things are kept: the largest magnitude
of every channel, and a fixed number of rows evenly spread over the texts. Weights are read where
they lie, the graph beside them is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from specdec.engines.devices import Device
from specdec.engines.onnxruntime.session import create_session
from specdec.export.calibration.scales import METHOD, ActivationScale, choose_scale
from specdec.export.calibration.texts import CalibrationTexts
from specdec.export.editing.model import MAX_LENGTH, is_weight_product
from specdec.export.graphs.attention import IN_PLACE_ADVICE, require_cached_attention
from specdec.export.memory import release_memory
from specdec.export.progress import Progress, StepHandle

__all__ = ["calibrate", "calibrate_draft"]

_WINDOW = 256
"""Tokens of a sample that are run as one text."""
_ROWS = 64
"""Tokens of a pass."""
_KEPT_ROWS = 256
"""Of a tensor, at least, where the texts have so many; and below twice as many."""
_PAST, _PRESENT = "past_key_values.", "present."


class _Seen:
    """What is kept of one tensor [..., in]."""

    def __init__(self) -> None:
        self.largest: NDArray[np.float32] | None = None
        self.rows: list[NDArray[np.float32]] = []

    def add(self, rows: NDArray[np.float32], kept: NDArray[np.bool_]) -> None:
        """Add a pass; `kept` says which rows to keep of a tensor with a row a token."""
        rows = rows.reshape(-1, rows.shape[-1])
        if not len(rows):
            return  # an expert that no token chose
        top = np.abs(rows).max(axis=0)
        self.largest = top if self.largest is None else np.maximum(self.largest, top)
        if len(rows) == len(kept):
            self.rows.append(rows[kept])
        elif sum(map(len, self.rows)) < _KEPT_ROWS:  # what experts chose: a row a pass
            self.rows.append(rows[:1].copy())  # a view would keep the whole pass


def calibrate_draft(
    plain: Path,
    texts: CalibrationTexts,
    vocab_size: int,
    progress: Progress,
    num_threads: int | None = None,
) -> tuple[dict[str, ActivationScale | None], dict[str, Any]]:
    """Calibrate as a step of an export.

    Returns:
        The result of `calibrate`, and how it came about, for the package's record.
    """
    with progress.step("calibrate draft", total=texts.num_tokens) as step:
        scales = calibrate(plain, texts.samples, vocab_size, step, num_threads)
    release_memory()
    return scales, {
        "source": texts.source,
        "samples": len(texts.samples),
        "tokens": texts.num_tokens,
        "method": METHOD,
        "tensors": len(scales),
        "tensors_kept_fp16": sum(scale is None for scale in scales.values()),
    }


def calibrate(
    plain: Path,
    samples: Sequence[Sequence[int]],
    vocab_size: int,
    step: StepHandle,
    num_threads: int | None = None,
) -> dict[str, ActivationScale | None]:
    """Choose a scale for every tensor that a weight of two axes multiplies, but the output head.

    The head's own rows stay FP16: on the demo model 8 bits there cost a tenth of the agreement.

    Args:
        plain: a result of `specdec.export.engine_graphs.trace_graph`, in place.
        samples: token ids of texts.
        vocab_size: ids from here on are left out.
        step: is advanced by the tokens of each pass.
        num_threads: CPU threads, None for ONNX Runtime's default.

    Returns:
        Scales by name of the multiplied tensor; None for one that has to stay FP16, because 8
        bits cannot hold its rows or no text reaches it.

    Raises:
        UnsupportedModelError: the graph has no in-place cache.
        EngineError: ONNX Runtime cannot load the graph.
    """
    model = ir.load(plain)
    require_cached_attention(model, IN_PLACE_ADVICE)
    window = min(_WINDOW, int(model.metadata_props[MAX_LENGTH]))
    weights = _measured(model)
    seen = {name: _Seen() for name in weights}
    session = _tapped(model, plain, list(weights), num_threads)
    texts = list(_windows(samples, window, vocab_size))
    stride = max(1, sum(map(len, texts)) // _KEPT_ROWS)
    done = 0
    for text in texts:
        for rows, values in _run(session, text, list(seen)):
            kept = (np.arange(done, done + rows) % stride) == 0
            for statistics, value in zip(seen.values(), values, strict=True):
                statistics.add(value, kept)
            done += rows
            step.advance(rows)
    del session
    return {
        name: None
        if found.largest is None
        else choose_scale(found.largest, np.concatenate(found.rows), _row_sizes(weights[name]))
        for name, found in seen.items()
    }


def _measured(model: ir.Model) -> dict[str, list[ir.Value]]:
    """Weights by the name of the tensor that they multiply; the head is the last product."""
    products = [node for node in model.graph if is_weight_product(node)]
    found: dict[str, list[ir.Value]] = {}
    for node in products[:-1]:
        if len(node.inputs[1].const_value.shape) == 2:
            found.setdefault(node.inputs[0].name, []).append(node.inputs[1])
    return found


def _row_sizes(weights: list[ir.Value]) -> NDArray[np.float32]:
    """Largest magnitude of each row over all weights that share it, float32 [in]."""
    sizes = [np.abs(weight.const_value.numpy()).max(axis=1) for weight in weights]
    largest: NDArray[np.float32] = np.max(sizes, axis=0).astype(np.float32)
    return largest


def _tapped(model: ir.Model, plain: Path, names: Sequence[str], num_threads: int | None) -> Any:
    """A session whose outputs are also the tensors called `names`."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name in names:
        value = values[name]
        value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
        model.graph.outputs.append(value)
    path = plain.with_name("calibration.onnx")
    ir.save(model, path)  # beside the weights, which stay where they are
    try:
        return create_session(path, name="draft", device=Device("cpu"), num_threads=num_threads)
    finally:
        path.unlink()


def _windows(
    samples: Sequence[Sequence[int]], window: int, vocab_size: int
) -> Iterator[NDArray[np.int64]]:
    for sample in samples:
        ids = np.array([i for i in sample if i < vocab_size], np.int64)
        yield from (ids[start : start + window] for start in range(0, len(ids), window))


def _run(
    session: Any, text: NDArray[np.int64], names: list[str]
) -> Iterator[tuple[int, list[NDArray[np.float32]]]]:
    """Feed a text; yield the rows of each pass and the tensors called `names`."""
    inputs = {node.name: node for node in session.get_inputs()}
    caches = [name for name in inputs if name.startswith(_PAST)]
    presents = [_PRESENT + name.removeprefix(_PAST) for name in caches]
    feeds: dict[str, NDArray[Any]] = {}
    for name in caches:
        _, heads, _, size = inputs[name].shape
        feeds[name] = np.zeros((1, heads, len(text), size), np.float32)
    for start in range(0, len(text), _ROWS):
        ids = text[None, start : start + _ROWS]
        total = start + ids.shape[1]
        new: dict[str, NDArray[Any]] = {
            "input_ids": ids,
            "position_ids": np.arange(start, total)[None],
            "seqlens_k": np.array([total - 1], np.int32),
            "total_sequence_length": np.array([total], np.int32),
            "logit_rows": np.array([ids.shape[1] - 1]),
        }
        feeds |= {name: value for name, value in new.items() if name in inputs}
        values = session.run([*names, *presents], feeds)
        feeds |= dict(zip(caches, values[len(names) :], strict=True))
        yield ids.shape[1], values[: len(names)]
