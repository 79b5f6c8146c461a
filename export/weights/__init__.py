"""Storage of weights: recipes, FP16, block quantization, and the bytes that a pass reads.

The pipeline and the folders of the backends use it; it may use `editing`, ONNX and the quantizer
of ONNX Runtime, and never torch models.
"""
