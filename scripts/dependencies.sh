#!/usr/bin/env bash
# dependencies.sh   licences, bans and sources of all dependencies, and those that nothing uses
#
# Advisories change without a change of ours, and their database must be fetched: scripts/supply-chain.sh has them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_rust

# tool NAME VERSION   that program, built once into .cache/tools.
tool() {
  local root=$PWD/.cache/tools/$1-$2
  if [ ! -x "$root/bin/$1" ]; then
    echo "building $1 $2" >&2
    # They run for a second: building them as for a release would take minutes to save none.
    CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
      cargo install --debug --quiet --locked --root "$root" --version "$2" "$1" >&2 </dev/null
  fi
  echo "$root/bin/$1"
}

deny=$(tool cargo-deny 0.20.2)
machete=$(tool cargo-machete 0.9.2)
"$deny" --locked check licenses bans sources
"$machete" .
