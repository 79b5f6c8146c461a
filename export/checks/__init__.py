"""Checks of the finished engines against logits of the original weights, and their measurement.

The pipeline uses it; it may use the engines, the runtime's report, `sources` and torch models.
"""
