#!/usr/bin/env bash
# go-clients.sh   builds the Go client programs (tests/clients/go), pinned by go.sum; prints the folder of binaries
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

key=$(cat tests/clients/go/go.mod tests/clients/go/go.sum tests/clients/go/*/*.go | cksum | tr ' ' '-')
binaries=$PWD/.cache/go/bin-$key
if [ ! -f "$binaries/.complete" ]; then
  mkdir -p .cache/go
  exec 9>.cache/go/.lock
  flock 9
  if [ ! -f "$binaries/.complete" ]; then
    need go golang-go
    rm -rf .cache/go/bin-*
    mkdir -p "$binaries"
    (cd tests/clients/go && GOMODCACHE=$PWD/../../../.cache/go/modules GOCACHE=$PWD/../../../.cache/go/build \
      GOFLAGS='-modcacherw -mod=readonly' CGO_ENABLED=0 go build -o "$binaries/" ./... >&2 </dev/null)
    touch "$binaries/.complete"
  fi
fi
echo "$binaries"
