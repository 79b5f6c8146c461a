"""The commands, such as `specdec-export` and `specdec-run`: options, output, exit codes.

Nothing imports this package; it may use click, rich and every other package, whose heavy parts
it imports inside the command that needs them.
"""
