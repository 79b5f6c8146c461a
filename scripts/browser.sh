#!/usr/bin/env bash
# A browser for the test that looks at the HTML report, where Debian's packages can be had and
# none is there. Without one that test is skipped.
set -euo pipefail
for name in chromium chromium-headless-shell chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "no browser, and no way to install one: the report is not looked at in one"
  exit 0
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core ||
  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
