"""Random passes of attention: several sequences, their caches, and what float64 makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.engines.native.attention_node import Floats, Sequence, feed, model, run
from tests.engines.native.attention_reference import Array, Settings, attend
from tests.engines.native.graphs import Library


@dataclass
class Case:
    """Sequences given as (past, rows) in slots that are not in order, and the node's inputs."""

    settings: Settings
    parts: list[tuple[int, int]]
    half: bool = False
    sinks: bool = False
    read: tuple[int, int] = (0, 0)
    packed: bool = False
    trees: list[list[int]] | None = None
    seed: int = 0
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, rng = self.settings, np.random.default_rng(self.seed)

        def normal(*shape: int) -> Floats:
            return rng.standard_normal(shape, np.float32)

        self.capacity = max(past + rows for past, rows in self.parts) + 3
        self.slots = list(rng.permutation(len(self.parts) + 1)[: len(self.parts)])
        shape = (len(self.parts) + 1, s.kv_heads, self.capacity, s.head_size)
        dtype = np.float16 if self.half else np.float32
        self.keys, self.values = normal(*shape).astype(dtype), normal(*shape).astype(dtype)
        self.sequences = []
        for i, (past, rows) in enumerate(self.parts):
            q, k, v = (normal(rows, n * s.head_size) for n in (s.heads, s.kv_heads, s.kv_heads))
            tree = self.trees[i] if self.trees else None
            if self.packed:
                q, k, v = np.concatenate([q, k, v], 1), None, None
            self.sequences.append(Sequence(past, int(self.slots[i]), q, k, v, tree))
        if s.rotary_dim:
            angles = normal(self.capacity, s.rotary_dim // 2) * 3
            self.extra |= {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles)}
        if self.sinks:
            self.extra["sinks"] = normal(s.heads)
        if self.read != (0, 0):
            self.extra["read"] = np.array(self.read, np.int32)

    def play(
        self, library: Library, only: list[int] | None = None, threads: int = 2
    ) -> tuple[Floats, NDArray[Any], NDArray[Any]]:
        """One pass of all sequences or of some: output [T, H * D] and the caches afterwards."""
        chosen = self.sequences if only is None else [self.sequences[i] for i in only]
        given = [*self.extra, *(["parents"] if self.trees else [])]
        node = library.session(
            model(self.settings, half=self.half, packed=self.packed, given=given), threads
        )
        keys, values = self.keys.copy(), self.values.copy()
        return run(node, feed(chosen) | self.extra, keys, values), keys, values

    def expected(self) -> tuple[Array, Array, Array]:
        """The same in float64; caches as they should be, output [T, H * D]."""
        s = self.settings
        keys, values = self.keys.astype(np.float64), self.values.astype(np.float64)
        extra = {n: a.astype(np.float64) for n, a in self.extra.items() if n != "read"}
        outputs = []
        for sequence in self.sequences:
            past, slot, rows = sequence.past, sequence.slot, len(sequence.query)
            parts = [sequence.query, sequence.key, sequence.value]
            if sequence.key is None or sequence.value is None:
                at = s.heads * s.head_size, (s.heads + s.kv_heads) * s.head_size
                parts = list(np.split(sequence.query, at, axis=1))
            q, k, v = (
                p.astype(np.float64).reshape(rows, -1, s.head_size) for p in parts if p is not None
            )
            out, now_keys, now_values = attend(
                s,
                q,
                k,
                v,
                keys[slot, :, :past],
                values[slot, :, :past],
                cos=extra.get("cos_cache"),
                sin=extra.get("sin_cache"),
                sinks=extra.get("sinks"),
                read=self.read,
                parents=sequence.parents,
                rounded=self.half,
            )
            keys[slot, :, : past + rows], values[slot, :, : past + rows] = now_keys, now_values
            outputs.append(out.reshape(rows, -1))
        return np.concatenate(outputs), keys, values
