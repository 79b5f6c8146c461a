"""From a torch model to a float32 ONNX graph with an in-place KV cache.

The pipeline and the backends' folders use it; it may use torch, Optimum, transformers and ONNX.
"""
