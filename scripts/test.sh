#!/usr/bin/env bash
# test.sh [CARGO TEST ARGUMENTS]   all set-up and all tests. Downloads and the build run side by side.
#
#   scripts/test.sh --test it families     the tests of one module
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_rust

if [ -e .cache/node ] && [ -e target/debug/sizegate ]; then
  echo "On two cores this takes about nine minutes; .cache and target are filled and may grow a little." >&2
else
  echo "The first time, on two cores, this takes about fifteen minutes and 5 GB of disk: 1.5 GB of downloads and clients in" >&2
  echo ".cache, 3.5 GB of build in target. After that about nine minutes." >&2
fi

scripts/setup-tests.sh &
setup=$!
trap 'kill $setup 2>/dev/null || true' EXIT
cargo test --locked --no-run </dev/null
wait $setup
trap - EXIT

# Tests wait for brokers and clients more than they compute: three for a core fill the waits.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(getconf _NPROCESSORS_ONLN) * 3))}
exec cargo test --locked --no-fail-fast "$@" </dev/null
