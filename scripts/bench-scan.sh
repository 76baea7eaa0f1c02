#!/usr/bin/env bash
# bench-scan.sh [gb=2] [codecs=none,lz4] [rounds=3] …   what `sizegate scan` takes beside reading the same topic (benches/scan.py)
#
# A real Kafka, topics of so many GB in a temporary folder, gone at the end. SIZEGATE_BIN=… measures that program instead of
# building one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_rust
if [ -z "${SIZEGATE_BIN:-}" ]; then
  cargo build --release --locked --quiet --bin sizegate </dev/null
  SIZEGATE_BIN=target/release/sizegate
fi
python=$(scripts/python-env.sh)
dir=$(mktemp -d)
trap 'end_process "${kafka:-}" 2>/dev/null; rm -rf "$dir"' EXIT
port=$(free_ports 2)
scripts/kafka-properties.sh "$dir" "$port"
KAFKA_HEAP=1g scripts/kafka-node.sh 4.4.0 "$dir" >"$dir/log" 2>&1 </dev/null &
kafka=$!
wait_for_line "$dir/log" "Kafka Server started" "$kafka"
"$python" benches/scan.py "$SIZEGATE_BIN" "127.0.0.1:$port" "$dir" "$@"
