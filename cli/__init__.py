"""The commands `specdec-export` and `specdec-run`: parse, call, print, exit codes; nothing else."""
