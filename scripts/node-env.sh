#!/usr/bin/env bash
# node-env.sh   the Node.js clients, pinned by their lock file; prints the folder of modules (for NODE_PATH)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

npm_modules node tests/clients/node
