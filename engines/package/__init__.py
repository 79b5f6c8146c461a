"""The package format: read, verify and write the directory and its manifest, `specdec.json`.

Holds no engine and imports no backend. Every other folder may use it; it may use NumPy, the
standard library and `specdec.engines.errors`, `devices` and `engine`.
"""
