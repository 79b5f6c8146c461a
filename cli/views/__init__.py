"""Terminal output of the commands: answers, progress, and records as tables.

The commands use it; it may use click, rich, `cli.common` and the records it prints.
"""
