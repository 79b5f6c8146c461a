"""Which replica gets a request: the one that has its prefix, while that has a free place.

Requests that begin alike have the same key, and each key an order of the replicas (rendezvous
hashing), which hardly changes when one comes or goes. The first in that order is asked first; when
it is full, the others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

__all__ = ["PrefixRouter", "prefix_key", "ranked"]

_MOST_CHARACTERS = 512
"""Of a prompt's beginning, which choose the replica."""


class PrefixRouter(RequestRouter):
    """Ranks the replicas for Ray Serve; the first argument of a call is its key."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The preferred replica alone, then all others."""
        key = "" if pending_request is None else pending_request.args[0]
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        order = [by_name[name] for name in ranked(list(by_name), key)]
        return [order[:1], order[1:]]


def ranked(names: Sequence[str], key: str) -> list[str]:
    """The order of replicas for a key; without a key, a random one."""
    if not key:
        return random.sample(list(names), len(names))
    return sorted(names, key=lambda name: blake2b(f"{key} {name}".encode()).digest())


def prefix_key(body: bytes) -> str:
    """The key of a request: its first message, or the first characters of its prompt.

    A conversation keeps its key from turn to turn, and all with one system prompt share it. A body
    that is not understood has the key "": the server behind says what is wrong with it.
    """
    try:
        document: Any = json.loads(body)
        messages = document.get("messages")
        start = messages[0] if messages else document.get("prompt")
        text = json.dumps(start)[:_MOST_CHARACTERS]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        return ""
    return blake2b(text.encode(), digest_size=8).hexdigest()
