#!/usr/bin/env bash
# The benches. Each says in a table what it found; benches/README.md says how to read it.
#
#   scripts/bench.sh             sizegate beside HAProxy and a direct connection: within ten minutes
#   scripts/bench.sh --quick     three short rounds: within two minutes once built
#   scripts/bench.sh count       instructions per request, under callgrind
#   scripts/bench.sh bombs       what others feel while 64 connections send bombs
#   scripts/bench.sh inside      what a limit inside batches costs, by codec
#   scripts/bench.sh claims      what offloading and redeeming cost, beside plain PUTs and GETs of the same bytes
#
# SIZEGATE_BIN=… measures that program instead of building one. BENCH_PROFILE=dev counts in the build that the tests use,
# which is there already. Other arguments go to the rig: `… --help`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

case ${1:-} in
    count | bombs | inside | claims) command=$1 && shift ;;
    *) command=run ;;
esac

PATH=$PATH:/usr/sbin
need_rust
case $command in
    count) need valgrind valgrind ;;
    inside | claims) ;;
    *) need haproxy haproxy ;;
esac

case ${BENCH_PROFILE:=release} in
    release) built=target/release ;;
    dev) built=target/debug ;;
    *) echo "BENCH_PROFILE: $BENCH_PROFILE is not release or dev" >&2 && exit 2 ;;
esac
if [[ -z ${SIZEGATE_BIN:-} ]]; then
    cargo build --profile "$BENCH_PROFILE" --locked --bin sizegate
    SIZEGATE_BIN=$built/sizegate
fi
[[ -x $SIZEGATE_BIN ]] || { echo "SIZEGATE_BIN: $SIZEGATE_BIN is not a program" >&2 && exit 2; }
cargo build --profile "$BENCH_PROFILE" --locked --manifest-path benches/loopback/Cargo.toml --target-dir target

arguments=(--sizegate "$SIZEGATE_BIN" --directory target/bench)
case $command in
    count | inside) ;;
    claims) arguments+=(--s3s-fs "$(scripts/object-stores.sh s3s-fs)") ;;
    *) arguments+=(--haproxy haproxy) ;;
esac
if [[ $command == run ]]; then
    # Two descriptors per connection in the proxy, and both ends here.
    ulimit -n "$(ulimit -Hn)"
    idle=2000
    if [[ $(ulimit -n) != unlimited ]] && (($(ulimit -n) < 10000)); then
        idle=$((($(ulimit -n) - 500) / 5))
        echo "only $(ulimit -n) file descriptors: memory is weighed with $idle connections" >&2
    fi
    arguments+=(--idle-connections "$idle")
fi
BENCH_COMMIT=$(git describe --always --dirty 2>/dev/null || echo unknown)
export BENCH_COMMIT

# `timeout` puts the rig and its proxies into a process group and ends them together, also when we are ended.
timeout --kill-after=5 540 "$built/loopback" "$command" "${arguments[@]}" "$@" &
rig=$!
trap 'kill -TERM "$rig" 2>/dev/null || true; wait "$rig" || true; exit 130' INT TERM
wait "$rig"
