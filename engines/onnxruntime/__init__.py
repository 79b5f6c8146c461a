"""The ONNX Runtime backend: sessions, bindings, KV caches and logits behind the `Engine` protocol.

`specdec.engines.load` and measuring code may use it; it may use ONNX Runtime, `engines.package`
and the protocol, and no other backend.
"""
