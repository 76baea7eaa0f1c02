#!/usr/bin/env bash
# object-stores.sh moto | s3s-fs | azurite   an object store to test with, pinned; prints what starts it:
#   moto      the Python interpreter that has moto (its server keeps objects in memory) and boto3
#   s3s-fs    the program (objects are files)
#   azurite   the folder of Node.js modules that has it
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

s3s_fs=0.14.1

case ${1:-} in
  moto) python_venv stores/moto tests/stores/moto/requirements.txt ;;
  azurite) npm_modules stores/azurite tests/stores/azurite ;;
  s3s-fs)
    root=$PWD/.cache/stores/s3s-fs-$s3s_fs
    if ! [ -x "$root/bin/s3s-fs" ]; then
      mkdir -p .cache/stores
      exec 9>.cache/stores/.lock-s3s-fs
      flock 9
      if ! [ -x "$root/bin/s3s-fs" ]; then
        need_rust
        # A quarter of the time that a release takes, and quick enough for tests.
        CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
          cargo install s3s-fs --version "$s3s_fs" --features binary --locked --debug --quiet --root "$root" >&2 </dev/null
      fi
    fi
    echo "$root/bin/s3s-fs"
    ;;
  *)
    sed -n '2,5s/^# //p' "$0" >&2
    exit 64
    ;;
esac
