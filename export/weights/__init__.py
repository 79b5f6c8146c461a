"""How weights are stored: recipes, FP16 storage, block quantization, and the bytes a pass reads.

The pipeline and the backends' folders use it; it works on graphs and never on torch models.
"""
