"""Graphs over the native CPU operators: one beside the standard graph, over the same data file.

The steps that write engines use it; it may use `export.editing`, `export.weights`, onnx_ir and
`engines.native`, and no torch model.
"""
