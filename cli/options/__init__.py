"""Options that several commands share, and how their values are read.

The commands use it; it may use click and the runtime's parameters.
"""
