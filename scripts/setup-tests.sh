#!/usr/bin/env bash
# setup-tests.sh   everything the tests need beside Rust: Kafka's jars, clients in Java, Python, Node, Go and C, Chromium,
# Prometheus, object stores.
# Tests fetch what they lack by themselves; this does it before, and all of it.
set -euo pipefail
cd "$(dirname "$0")"

step() {
  local start=$SECONDS
  "$@" >/dev/null
  if [ $((SECONDS - start)) -ge 2 ]; then echo "$(basename "$1") ${*:2}: $((SECONDS - start)) s" >&2; fi
}

# These wait for registries and for a compiler more than for this machine: beside the rest.
stores=()
for store in moto azurite s3s-fs; do
  step ./object-stores.sh "$store" &
  stores+=($!)
done

for version in 4.3.0 4.4.0; do
  step ./kafka-libs.sh "$version" broker
  step ./kafka-libs.sh "$version" client
done
# The last broker that takes Produce before version 3, and the last client of its kind.
step ./kafka-libs.sh 3.9.1 broker
step ./kafka-libs.sh 3.9.1 client
step ./kafka-libs.sh 4.3.0 streams
step ./kafka-libs.sh 4.3.0 connect
step ./kafka-libs.sh 4.4.0 tools
step ./kafka-libs.sh 4.3.0 spring
for version in 3.9.1 4.3.0 4.4.0; do step ./java-classes.sh client "$version"; done
for set_name in kafka4 streams spring connect; do step ./java-classes.sh "$set_name"; done
step ./python-env.sh
step ./node-env.sh
step ./go-clients.sh
step ./kcat.sh
step ./browser-env.sh
step ./prometheus.sh
for store in "${stores[@]}"; do wait "$store"; done
