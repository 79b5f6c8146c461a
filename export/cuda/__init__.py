"""Graphs for ONNX Runtime's CUDA provider: FP16 arithmetic, and only operators with a CUDA kernel.

The pipeline uses it; it may use `editing`, `graphs`, `weights` and `calibration`.
"""
