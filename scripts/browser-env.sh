#!/usr/bin/env bash
# browser-env.sh   a browser (Chromium, from the system) and what drives it, pinned by its lock file; prints the
# folder of modules (for NODE_PATH)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need chromium chromium
npm_modules browser tests/browser
