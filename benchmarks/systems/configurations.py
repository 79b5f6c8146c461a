"""Every way to generate that `peers.py` times.

All targets are the same weights, FP16-valued, and compute in FP32, except llama.cpp's F16, whose
matrix products round their inputs to FP16. All drafts are those weights in 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CONFIGURATIONS", "Configuration"]


@dataclass(frozen=True)
class Configuration:
    """One way to generate."""

    peer: str
    setting: str
    model: str
    """The worker's name of what is loaded."""
    num_draft_tokens: int | str = 0
    target: str = "FP32"
    """Arithmetic of the target."""

    @property
    def name(self) -> str:
        """As printed, and matched by --only."""
        return f"{self.peer}, {self.setting}"

    @property
    def plain(self) -> str:
        """Name of the same target without speculation."""
        target = " F16" if self.target == "F16" else " F32" if self.peer == "llama.cpp" else ""
        return f"{self.peer}, plain{target}"


def _drafting(peer: str, model: str, lengths: Sequence[int | str]) -> list[Configuration]:
    return [Configuration(peer, f"INT8 draft, K = {k}", model, k) for k in lengths]


CONFIGURATIONS = [
    Configuration("specdec", "plain", "model"),
    *_drafting("specdec", "model", (4, 6, 8, "auto")),
    Configuration("specdec", "hybrid, K = auto", "hybrid", "auto"),
    Configuration("genai", "plain", "plain"),
    *_drafting("genai", "speculative", (4, 6, 8)),
    Configuration("genai", "look-up, K = 8", "lookup", 8),
    Configuration("openvino", "plain", "plain"),
    *_drafting("openvino", "speculative", (4, 6)),
    Configuration("openvino", "look-up, K = 8", "lookup", 8),
    Configuration("llama.cpp", "plain F16", "f16", 0, "F16"),
    Configuration("llama.cpp", "F16, INT8 draft, K = 4", "f16+q8_0", 4, "F16"),
    Configuration("llama.cpp", "F16, INT8 draft, K = 8", "f16+q8_0", 8, "F16"),
    Configuration("llama.cpp", "plain F32", "f32"),
    Configuration("llama.cpp", "F32, INT8 draft, K = 6", "f32+q8_0", 6),
    Configuration("transformers", "plain", "plain"),
    Configuration("transformers", "INT8 draft, K = 5", "assisted", 5),
    Configuration("transformers", "look-up, K = 8", "lookup", 8),
]
