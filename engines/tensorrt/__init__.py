"""The TensorRT backend: engine plans of `tensorrt` and `tensorrt-rtx` behind `Engine`.

`engines.load` and the export may use it; it may use `engines.package`, the protocol and, once an
engine is loaded, the TensorRT library, and no other backend.
"""
