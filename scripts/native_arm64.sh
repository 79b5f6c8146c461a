#!/usr/bin/env bash
# Run something with an ARM64 Python under qemu: by default the tests of the native CPU operators,
# with ONNX Runtime's ARM64 wheel and the library cross-compiled. Minutes the first time; the
# system it makes stays in build/arm64. Needs Debian's g++-aarch64-linux-gnu and qemu-user, and
# apt-get and pip to fetch Python and wheels (unpacked, nothing is installed).
#
#   scripts/native_arm64.sh [arguments of python, such as -m pytest tests/engines/native]
set -euo pipefail
cd "$(dirname "$0")/.."
into=$PWD/build/arm64
wheels=("onnxruntime>=1.22,<1.23" numpy==1.26.4 onnx==1.18.0 protobuf tokenizers markupsafe jinja2
        click rich markdown-it-py mdurl typing_extensions pytest pluggy iniconfig pygments packaging)

for tool in aarch64-linux-gnu-g++ qemu-aarch64 apt-get; do
  if ! command -v $tool >/dev/null; then
    echo "error: no $tool (Debian: apt-get install g++-aarch64-linux-gnu qemu-user)" >&2
    exit 1
  fi
done

if [ ! -f "$into/.made" ]; then
  rm -rf "$into"
  mkdir -p "$into"/{lists/partial,cache/archives/partial,debs,root,wheels,site}
  # A list of its own, so that this system does not become one of two architectures.
  archive=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -n 1)
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [arch=arm64 signed-by=$keys] $archive bookworm main" >"$into/sources.list"
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
           -o Dir::Etc::sourcelist="$into/sources.list" -o Dir::Etc::sourceparts=-
           -o Dir::State::lists="$into/lists" -o Dir::Cache="$into/cache"
           -o Dir::State::status=/dev/null)
  apt-get "${options[@]}" update
  (cd "$into/debs" && apt-get "${options[@]}" download libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 \
    libffi8 libbz2-1.0 liblzma5 libssl3 libuuid1 libcrypt1 libdb5.3 libsqlite3-0 \
    python3.11-minimal libpython3.11-minimal libpython3.11-stdlib)
  for package in "$into"/debs/*.deb; do dpkg -x "$package" "$into/root"; done
  platforms=()
  for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${tag}_aarch64")
  done
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.11 \
    "${platforms[@]}" --platform any -d "$into/wheels" "${wheels[@]}"
  for wheel in "$into"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$into/site"; done
  touch "$into/.made"
fi

# The packages under their import names, beside the library for this machine.
tree=$into/tree
rm -rf "$tree"
mkdir -p "$tree/specdec"
cp -r engines runtime export cli tests pyproject.toml scripts "$tree/"
rm -f "$tree"/engines/native/*.so
for part in engines runtime export cli; do ln -s "$tree/$part" "$tree/specdec/$part"; done
CXX=aarch64-linux-gnu-g++ python3 scripts/native_library.py --out "$tree/engines/native" >/dev/null

root=$into/root
cat >"$tree/python" <<END
#!/bin/sh
exec qemu-aarch64 -cpu cortex-a76 -L "$root" \\
  -E LD_LIBRARY_PATH="$root/lib/aarch64-linux-gnu:$root/usr/lib/aarch64-linux-gnu" \\
  -E PYTHONHOME="$root/usr" -E PYTHONPATH="$tree:$into/site" -E PYTHONDONTWRITEBYTECODE=1 \\
  "$root/usr/bin/python3.11" "\$@"
END
chmod +x "$tree/python"
[ $# -gt 0 ] || set -- -m pytest -q -p no:cacheprovider -W default -c /dev/null --rootdir "$tree" \
  --noconftest -p tests.engines.native.conftest "$tree/tests/engines/native" \
  --ignore-glob "*_fuzz.py" --ignore-glob "*_native_library.py"  # they start other programs
cd "$tree"
exec ./python "$@"
