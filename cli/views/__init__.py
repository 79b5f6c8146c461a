"""What the commands print: answers, progress, and records as tables.

The commands use it; it may use click, rich and the records it shows.
"""
