"""Folders of ONNX Runtime GenAI as sources: read as they are, their interface made the package's.

The pipeline uses it; it may use onnx_ir and ONNX Runtime, and nothing of torch.
"""
