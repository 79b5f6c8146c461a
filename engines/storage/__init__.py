"""Files and directories on disk, written so that nothing is lost when a write is cut short.

Everything that writes uses it; it may use `engines.errors`.
"""
