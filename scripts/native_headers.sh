#!/usr/bin/env bash
# Headers two C++ examples need, where Debian's packages can be had: cpp-httplib for
# service.cpp, ONNX Runtime's C++ API for ort_native.cpp. Without them those examples and their
# tests are left out. The C++ API is the same in every release that follows it, so Debian 13's
# headers serve on Debian 12, whose own archive has none.
set -euo pipefail
cd "$(dirname "$0")/.."
into=build/native-headers

have() { echo "#include <$1>" | c++ -I/usr/include/onnxruntime -E -x c++ - >/dev/null 2>&1; }

if ! command -v apt-get >/dev/null || ! command -v c++ >/dev/null; then
  echo "no apt-get or no compiler: the C++ examples that need more headers are left out"
  exit 0
fi
if ! have httplib.h && [ "$(id -u)" = 0 ]; then
  apt-get update -qq
  apt-get install -y -qq libcpp-httplib-dev
fi
if ! have onnxruntime_cxx_api.h && [ ! -d "$into" ]; then
  archive=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -n 1)
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  chmod 755 "$scratch"
  mkdir -p "$scratch"/lists/partial "$scratch"/cache/archives/partial
  echo "deb [signed-by=$keys] $archive trixie main" > "$scratch/sources.list"
  options=(-qq -o Dir::Etc::sourcelist="$scratch/sources.list" -o Dir::Etc::sourceparts=-
           -o Dir::State::lists="$scratch/lists" -o Dir::Cache="$scratch/cache")
  apt-get "${options[@]}" update
  (cd "$scratch" && apt-get "${options[@]}" download libonnxruntime-dev)
  mkdir -p "$into"
  dpkg -x "$scratch"/libonnxruntime-dev_*.deb "$into"
fi
