#!/usr/bin/env bash
# Prints the path of promtool (with prometheus beside it), fetching both if they are missing.
#
#   scripts/prometheus.sh
#
# On Debian and Ubuntu the system's package is extracted into .cache/prometheus, not installed: installing it would
# start a Prometheus on port 9090 that nobody asked for. Elsewhere it says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v promtool; then exit 0; fi

home=.cache/prometheus
promtool=$PWD/$home/usr/bin/promtool
if [ -x "$promtool" ]; then echo "$promtool" && exit 0; fi

fail() {
  echo "promtool is missing and could not be fetched: $1" >&2
  echo "  Debian, Ubuntu:  sudo apt-get install prometheus" >&2
  echo "  any system:      promtool from https://prometheus.io/download/ on the PATH" >&2
  exit 2
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "there is no apt-get here"
mkdir -p "$home"
(
  cd "$home"
  # A fresh machine has no package lists yet, and only root can fetch them.
  apt-get download prometheus ||
    { [ "$(id -u)" = 0 ] && apt-get update && apt-get download prometheus; } ||
    exit 1
) >&2 </dev/null || fail "apt-get download prometheus failed"
dpkg-deb -x "$home"/prometheus_*.deb "$home" >&2 && rm -f "$home"/prometheus_*.deb
[ -x "$promtool" ] && "$promtool" --version >/dev/null 2>&1 || fail "the package does not run here"
echo "$promtool"
