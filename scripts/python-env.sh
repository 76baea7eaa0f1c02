#!/usr/bin/env bash
# python-env.sh   a virtual environment with the Python clients, pinned; prints its interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

python_venv python tests/clients/python/requirements.txt
