"""Small edits of ONNX graphs: insert nodes, add constants, state types, save.

Every folder of the export that rewrites graphs uses it; it may use onnx_ir and NumPy alone.
"""
