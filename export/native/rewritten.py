"""How much of a graph became native, for the export to tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.export.native.panels import Panels

__all__ = ["Rewritten"]


@dataclass
class Rewritten:
    """What became native."""

    panels: list[Panels] = field(default_factory=list)
    products: int = 0
    """Products that are native, of `all_products`."""
    all_products: int = 0
    attentions: int = 0
    norms: int = 0
    """Products that norm their rows themselves."""
    gates: int = 0
    residuals: int = 0

    def __str__(self) -> str:
        return (
            f"{self.products} of {self.all_products} products ({self.norms} with their norm, "
            f"{self.gates} gated, {self.residuals} with a residual) and {self.attentions} "
            "attention nodes"
        )
