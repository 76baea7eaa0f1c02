#!/usr/bin/env bash
# node-env.sh   the Node.js clients, pinned by their lock file; prints the folder of modules (for NODE_PATH)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

lock=tests/clients/node/package-lock.json
env=$PWD/.cache/node
if ! cmp -s "$lock" "$env/.complete"; then
  mkdir -p .cache
  exec 9>.cache/.lock-node
  flock 9
  if ! cmp -s "$lock" "$env/.complete"; then
    need node nodejs npm
    need npm npm
    rm -rf "$env"
    mkdir -p "$env"
    cp tests/clients/node/package.json "$lock" "$env"
    # In the folder, not by --prefix: npm 11 then looks for itself in the lock file.
    (cd "$env" && npm ci --cache ../npm --ignore-scripts --no-audit --no-fund --loglevel error) >&2 </dev/null
    cp "$lock" "$env/.complete"
  fi
fi
echo "$env/node_modules"
