"""Give the engines of a loaded package as many slots as requests shall run at once."""

from __future__ import annotations

from specdec.engines.engine import Engine
from specdec.engines.errors import EngineError
from specdec.engines.load import LoadedPackage
from specdec.engines.onnxruntime.concatenated import ConcatenatedEngine
from specdec.engines.onnxruntime.engine import OrtEngine
from specdec.engines.slots import EngineSlots, SlottedEngine

__all__ = ["slotted"]


def slotted(package: LoadedPackage, num_slots: int) -> tuple[SlottedEngine, SlottedEngine | None]:
    """The target and the draft of `package`, each with `num_slots` KV caches.

    An engine that has slots of its own is taken as it is; others on ONNX Runtime get a cache for
    each slot over one session, and run slot by slot. A draft on the target's cache shares the
    caches of all slots.

    Raises:
        ValueError: `num_slots` is below 1.
        EngineError: the backend has one cache alone, or the memory cannot be had.
    """
    if num_slots < 1:
        raise ValueError(f"num_slots is {num_slots}; allowed is 1 or more")
    target = _with_slots(package.target, num_slots, None)
    if package.draft is None:
        return target, None
    shared = target if package.draft_shares_cache else None
    return target, _with_slots(package.draft, num_slots, shared)


def _with_slots(engine: Engine, num_slots: int, shared: SlottedEngine | None) -> SlottedEngine:
    if isinstance(engine, SlottedEngine) and engine.num_slots == num_slots:
        return engine
    engines: list[Engine] = [engine]
    for slot in range(1, num_slots):
        if isinstance(engine, ConcatenatedEngine):
            engines.append(engine.beside())
        elif isinstance(engine, OrtEngine):
            beside = shared.engines[slot] if isinstance(shared, EngineSlots) else None
            engines.append(engine.beside(beside.cache if isinstance(beside, OrtEngine) else None))
        else:
            raise EngineError(
                f"the {engine.info.name} engine of backend {engine.info.backend!r} holds one "
                f"sequence; num_slots is {num_slots}, allowed is 1"
            )
    return EngineSlots(engines)
