#!/usr/bin/env bash
# Run a program over libspecdec.so under valgrind: bad reads, writes and frees, uninitialised
# values, and memory lost for good. Fails when valgrind finds anything that is not in
# memcheck.supp.
#
#   scripts/memcheck.sh PROGRAM [ARGUMENT...]
set -euo pipefail
exec valgrind --quiet --error-exitcode=9 --num-callers=40 \
  --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
  --suppressions="$(dirname "$0")/memcheck.supp" "$@"
