#!/usr/bin/env bash
# screenshots.sh [FOLDER]   the pictures of README and docs/ again, into FOLDER (docs/images): the page in Chromium, and every
# panel of the dashboards drawn from what a real Prometheus answers to its queries. They show the runs that
# tests/it/page.rs and tests/it/dashboards.rs make: a real Kafka, real traffic, real refusals.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_rust

folder=${1:-docs/images}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
SIZEGATE_SCREENSHOTS=$folder cargo test --locked --test it page:: dashboards:: </dev/null
ls -l "$folder"
