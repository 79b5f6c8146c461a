"""Where drafted tokens come from, and how many are drafted: drafters, costs, acceptance, policy.

`decoding` and the report may use it; it may use `sampling` and the `Engine` protocol.
"""
