#!/usr/bin/env bash
# reproduce.sh [CARGO PROFILE]   builds the committed sources twice, in folders of different names, and compares the
# binaries byte by byte. The profile is `release` unless said. Without debug information, as in the image: that of C
# code would name the folders.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
target=$(uname -m)-unknown-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commit=$(git rev-parse --short=12 HEAD)
for dir in "$work/a" "$work/somewhere-else"; do
  mkdir -p "$dir"
  git archive HEAD | tar -x -C "$dir"
  (cd "$dir" && SIZEGATE_COMMIT=$commit CARGO_TARGET_DIR=$dir/target CARGO_PROFILE_RELEASE_DEBUG=0 \
    RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$dir=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" \
    cargo build --quiet --profile "$profile" --locked --bin sizegate --target "$target")
done
folder=$profile
if [ "$profile" = dev ]; then folder=debug; fi
sha256sum "$work"/*/target/"$target/$folder"/sizegate
cmp "$work/a/target/$target/$folder/sizegate" "$work/somewhere-else/target/$target/$folder/sizegate"
echo "the same bytes"
