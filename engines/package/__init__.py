"""The package format: read, verify and write the directory and its manifest, `specdec.json`.

Everything may use it; it imports no backend and may use NumPy, the standard library and
`engines.errors`, `engines.devices` and `engines.engine`.
"""
