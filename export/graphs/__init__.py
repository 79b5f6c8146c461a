"""Tracing of a torch model to a float32 ONNX graph with a KV cache, in place where it fits.

The pipeline and the folders of the backends use it; it may use `editing`, torch, Optimum,
transformers and ONNX.
"""
