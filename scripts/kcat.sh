#!/usr/bin/env bash
# kcat.sh   prints the path of kcat, and installs it before where that is possible without asking
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need kcat kcat
command -v kcat
