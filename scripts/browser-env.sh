#!/usr/bin/env bash
# browser-env.sh   a browser (Chromium, from the system) and what drives it, pinned by its lock file; prints the
# folder of modules (for NODE_PATH)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need chromium chromium
lock=tests/browser/package-lock.json
env=$PWD/.cache/browser
if ! cmp -s "$lock" "$env/.complete"; then
  mkdir -p .cache
  exec 9>.cache/.lock-browser
  flock 9
  if ! cmp -s "$lock" "$env/.complete"; then
    need node nodejs npm
    need npm npm
    rm -rf "$env"
    mkdir -p "$env"
    cp tests/browser/package.json "$lock" "$env"
    (cd "$env" && npm ci --cache ../npm --ignore-scripts --no-audit --no-fund --loglevel error) >&2 </dev/null
    cp "$lock" "$env/.complete"
  fi
fi
echo "$env/node_modules"
