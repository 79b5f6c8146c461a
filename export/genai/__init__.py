"""Folders of ONNX Runtime GenAI as sources: scored as they are, their interface the package's.

The steps of the export use it; it may use onnx_ir, ONNX Runtime, `editing`, `weights` and
`sources`, and nothing of torch.
"""
