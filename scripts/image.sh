#!/usr/bin/env bash
# image.sh [BINARY]   the container image without an engine and without a registry, as a test of it
#
# Builds the last stage of the Dockerfile with buildah, its first stage replaced by a static binary that is built here
# (or given), checks size, user, labels and health check, and runs it in a chroot of its own: not root, read-only,
# against the health check, to SIGTERM. Needs root and buildah (from the system's packages).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need buildah buildah

target=$(uname -m)-unknown-linux-gnu
binary=${1:-target/$target/release/sizegate}
work=$(mktemp -d)
storage=(--storage-driver vfs --root "$work/storage" --runroot "$work/run")
buildah() { command buildah "${storage[@]}" "$@"; }
pid=
cleanup() {
  if [ -n "$pid" ]; then kill -9 "$pid" 2>/dev/null && wait "$pid" || true; fi
  umount -R "$work/image" 2>/dev/null || true
  command buildah "${storage[@]}" rm --all >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "image: $*" >&2 && exit 1; }

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
if [ $# = 0 ]; then
  SIZEGATE_COMMIT=$commit CARGO_PROFILE_RELEASE_DEBUG=0 RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" \
    cargo build --release --locked --bin sizegate --target "$target"
fi
# `ldd` says "statically linked" of a static-pie binary, and fails on other static ones.
if ldd "$binary" 2>&1 | grep -q '=>'; then fail "$binary is not static"; fi

# The first stage's result, as its last commands lay it out.
stage=$work/stage/root-fs
mkdir -p "$stage/etc/ssl/certs" "$stage/etc/sizegate"
install -s "$binary" "$stage/sizegate"
cp /etc/ssl/certs/ca-certificates.crt "$stage/etc/ssl/certs/"
sed -n "s/.*echo '\(sizegate:x:65532:65532.*\)' .*/\1/p" Dockerfile >"$stage/etc/passwd"
sed -n "s/.*echo '\(sizegate:x:65532:\)' .*/\1/p" Dockerfile >"$stage/etc/group"
[ -s "$stage/etc/passwd" ] && [ -s "$stage/etc/group" ] || fail "the Dockerfile no longer names its user as expected"

# The last stage, word for word.
sed -n '/^FROM scratch/,$p' Dockerfile | sed 's/COPY --from=build/COPY --from=built/' >"$work/Dockerfile"
buildah bud --quiet --format docker --build-context "built=$work/stage" --build-arg "COMMIT=$commit" \
  -t sizegate -f "$work/Dockerfile" "$work/stage" >/dev/null

container=$(buildah from sizegate)
config=$(buildah inspect --type image sizegate)
say() { python3 -c "import json,sys; d=json.loads(sys.argv[1])['Docker']['config']; print($1)" "$config"; }
[ "$(say "d['User']")" = 65532:65532 ] || fail "it runs as $(say "d['User']")"
[ "$(say "d['StopSignal']")" = SIGTERM ] || fail "its stop signal is $(say "d['StopSignal']")"
[ "$(say "' '.join(d['Healthcheck']['Test'])")" = "CMD /sizegate check --ready" ] || fail "its health check is another"
[ "$(say "d['Labels']['org.opencontainers.image.revision']")" = "$commit" ] || fail "its label names another commit"
root=$(buildah mount "$container")
bytes=$(du -sb "$root" | cut -f1)
[ "$bytes" -le 30000000 ] || fail "it is $bytes bytes"

# Run: read-only, as its user, nothing of this machine in sight but the loopback device.
# Engines give a container devices of its own.
mkdir "$work/image" "$root/dev"
touch "$root/dev/random" "$root/dev/urandom"
mount --bind "$root" "$work/image"
mount -o remount,bind,ro "$work/image"
for device in random urandom; do mount --bind "/dev/$device" "$work/image/dev/$device"; done
port=$(free_ports 3)
chroot=$(PATH=$PATH:/usr/sbin command -v chroot)
# The program becomes sizegate itself, so that a signal reaches it as it does PID 1.
inside=(env -i SIZEGATE__LISTENER__BIND=127.0.0.1:"$port" SIZEGATE__ADMIN__BIND=0.0.0.0:$((port + 2))
  SIZEGATE__LISTENER__NODE_PORTS__NODE_IDS=1 SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS=localhost:1
  "$chroot" --userspec=65532:65532 "$work/image" /sizegate)
[ "$("${inside[@]}" --version)" = "$("$binary" --version)" ] || fail "it is another version"
touch "$work/image/x" 2>/dev/null && fail "it can be written to"
"${inside[@]}" run >"$work/log" 2>&1 &
pid=$!
wait_for_line "$work/log" "sizegate is listening" "$pid"
code=0
"${inside[@]}" check --ready >"$work/ready" || code=$?
[ "$code" = 1 ] && grep -q "no broker is reached" "$work/ready" || fail "the health check says $code: $(cat "$work/ready")"
kill -TERM "$pid"
wait "$pid" || fail "SIGTERM ended it with $?"
pid=
echo "the image is $((bytes / 1000)) kB, static, read-only, user 65532; health check and SIGTERM are right"
