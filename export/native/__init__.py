"""Graphs over the native CPU operators: one beside the standard graph, over the same data file."""

from __future__ import annotations

__all__: list[str] = []
