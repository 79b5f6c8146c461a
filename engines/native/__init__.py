"""Native CPU operators: products over packed weights and attention for ONNX Runtime.

`library.py` finds the compiled library and says whether this machine can run it; `source/` is its
C++. Where there is none, packages run with ONNX Runtime's own operators.
"""
