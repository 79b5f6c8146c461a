"""The report as a reader sees it: words, tables, SVG charts and one HTML page.

The commands and `bench` use it; it may use the records of a report and the speed model, and it
measures nothing.
"""
