"""ONNX Runtime's CUDA provider: the FP16 graph, and whether every operator has a kernel there.

The pipeline uses it; it may use `graphs` and `weights`.
"""
