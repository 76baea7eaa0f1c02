#!/usr/bin/env bash
# python-env.sh   a virtual environment with the Python clients, pinned; prints its interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

wanted=tests/clients/python/requirements.txt
env=$PWD/.cache/python
if ! cmp -s "$wanted" "$env/.complete"; then
  mkdir -p .cache
  exec 9>.cache/.lock-python
  flock 9
  if ! cmp -s "$wanted" "$env/.complete"; then
    need python3 python3 python3-venv
    rm -rf "$env"
    python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
    python3 -m venv "$env" >&2
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$env/bin/pip" install --quiet --no-input --only-binary :all: \
      --cache-dir .cache/pip -r "$wanted" >&2 </dev/null
    cp "$wanted" "$env/.complete"
  fi
fi
echo "$env/bin/python"
