"""Names this release: the distribution that pip installs, and its version.

The import name is `specdec`; the distribution is `specdec-edge`, because PyPI's `specdec` is
another author's package. The build reads `VERSION` from here, so that a checkout, a wheel and a
frozen program all say the same without any installed metadata.
"""

from __future__ import annotations

__all__ = ["DISTRIBUTION", "VERSION"]

DISTRIBUTION = "specdec-edge"
VERSION = "0.1.0"
