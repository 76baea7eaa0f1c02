#!/usr/bin/env bash
# soak.sh   three brokers, two sizegates and clients of five libraries for an hour, while brokers and proxies are killed and
# stopped, limits change, topics and clients come and go (tests/it/soak.rs says what must hold). It ends by itself.
#
# Environment: SIZEGATE_SOAK_SECONDS (3600); SIZEGATE_SOAK_SEED, as a run before printed it; SIZEGATE_BIN=… tries that program
# instead of a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_rust
need_java
for jars in "4.4.0 broker" "4.3.0 client" "4.4.0 client"; do scripts/kafka-libs.sh $jars >/dev/null; done
scripts/java-classes.sh soak >/dev/null
scripts/python-env.sh >/dev/null
scripts/go-clients.sh tests/compatibility/go >/dev/null
exec cargo test --locked --test it -- --ignored --nocapture soak::
