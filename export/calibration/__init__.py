"""Activation ranges, measured by running a traced graph over texts, and the scales they give.

Recipes that quantize activations use it; it may use `sources`, `editing`, `graphs`, `weights` and
ONNX Runtime.
"""
