#!/usr/bin/env bash
# test.sh [CARGO TEST ARGUMENTS]   all set-up and all tests. Downloads and the build run side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need cargo cargo

scripts/setup-tests.sh &
setup=$!
trap 'kill $setup 2>/dev/null || true' EXIT
cargo test --locked --no-run </dev/null
wait $setup
trap - EXIT

# One test binary after the other; inside one, tests share brokers and run side by side.
exec cargo test --locked --no-fail-fast "$@" </dev/null
