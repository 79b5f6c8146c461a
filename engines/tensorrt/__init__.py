"""The TensorRT backend: plans of `tensorrt` and `tensorrt-rtx` behind the `Engine` protocol.

`specdec.engines.load` and the export may use it; it imports TensorRT only when an engine is
loaded, and may use `engines.package` and the protocol, and no other backend.
"""
