"""Options that several commands share, and the parsing of their values.

The commands use it; it may use click and the runtime's parameters.
"""
