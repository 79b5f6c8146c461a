"""Drafters, which propose tokens, and the policies that choose how many: costs, acceptance, length.

`decoding` and the report use it; it may use `sampling` and the `Engine` protocol.
"""
