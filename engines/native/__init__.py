"""Native CPU operators: products over packed weights and attention for ONNX Runtime.

`engines.load`, the export and the measuring code may use it; it may use ONNX Runtime,
`engines.package` and the protocol, and no other backend. `library.py` finds the compiled library,
whose C++ is in `source/`; where there is none, packages run with ONNX Runtime's own operators.
"""
