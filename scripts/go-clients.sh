#!/usr/bin/env bash
# go-clients.sh [FOLDER]   builds the Go client programs in tests/clients/go, or in that folder, pinned by go.sum; prints the
# folder of binaries
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

go_programs "${1:-tests/clients/go}"
