#!/usr/bin/env bash
# The benches: sizegate beside HAProxy and a direct connection, on this machine, within ten minutes.
#
#   scripts/bench.sh             nine rounds
#   scripts/bench.sh --quick     three short rounds, within two minutes once built
#   SIZEGATE_BIN=… scripts/bench.sh --rounds 5 --content random    other arguments go to the rig (`--help`)
#
# Figures go to target/bench/report.md and report.json. benches/README.md says how to read them.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "bench: $*" >&2
    exit 2
}

# HAProxy, from the system's packages.
haproxy=$(PATH=$PATH:/usr/sbin command -v haproxy || true)
if [[ -z $haproxy ]]; then
    how="apt-get install --no-install-recommends haproxy"
    command -v apt-get >/dev/null || fail "haproxy is missing: install it from your system's packages"
    [[ $(id -u) == 0 ]] || fail "haproxy is missing: sudo $how"
    echo "bench: installing haproxy" >&2
    # The bench starts its own; the package must not start one.
    { DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 $how -qq -y; } >&2
    haproxy=$(PATH=$PATH:/usr/sbin command -v haproxy) || fail "haproxy is still missing"
fi

if [[ -z ${SIZEGATE_BIN:-} ]]; then
    cargo build --release --locked --bin sizegate
    SIZEGATE_BIN=target/release/sizegate
fi
[[ -x $SIZEGATE_BIN ]] || fail "$SIZEGATE_BIN is not a program"
cargo build --release --locked --manifest-path benches/loopback/Cargo.toml --target-dir target

# Two descriptors per connection in a proxy, and both ends here.
ulimit -n "$(ulimit -Hn)"
idle=2000
if [[ $(ulimit -n) != unlimited ]] && (($(ulimit -n) < 10000)); then
    idle=$((($(ulimit -n) - 500) / 5))
    echo "bench: only $(ulimit -n) descriptors: memory is weighed with $idle connections" >&2
fi

BENCH_COMMIT=$(git describe --always --dirty 2>/dev/null || echo unknown)
export BENCH_COMMIT

# `timeout` puts the rig and its proxies into a process group and ends them together, also when we are ended.
timeout --kill-after=5 540 target/release/loopback run \
    --haproxy "$haproxy" --sizegate "$SIZEGATE_BIN" --idle-connections "$idle" --directory target/bench "$@" &
rig=$!
trap 'kill -TERM "$rig" 2>/dev/null; wait "$rig"; exit 130' INT TERM
wait "$rig"
