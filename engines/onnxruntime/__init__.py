"""The ONNX Runtime backend: sessions, I/O bindings, KV caches and logits behind `Engine`.

`engines.load`, the export and the measuring code may use it; it may use ONNX Runtime,
`engines.package` and the protocol, and no other backend.
"""
