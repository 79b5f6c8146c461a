"""Edits of ONNX graphs: insert nodes, add constants, convert types, save.

Every folder that rewrites graphs uses it; it may use onnx, onnx_ir and NumPy alone.
"""
