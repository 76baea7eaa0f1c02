#!/usr/bin/env bash
# soak-client.sh   builds the Go client of `make soak` (tests/compatibility/go/soak); prints its path
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

key=$(cat tests/compatibility/go/go.mod tests/compatibility/go/go.sum tests/compatibility/go/soak/*.go | cksum | tr ' ' '-')
binary=$PWD/.cache/soak/client-$key
if [ ! -x "$binary" ]; then
  need go golang-go
  mkdir -p .cache/soak
  (cd tests/compatibility/go && GOMODCACHE=$PWD/../../../.cache/go/modules GOCACHE=$PWD/../../../.cache/go/build \
    GOFLAGS='-modcacherw -mod=readonly' CGO_ENABLED=0 go build -o "$binary.$$" ./soak) >&2 </dev/null
  mv "$binary.$$" "$binary"
fi
echo "$binary"
