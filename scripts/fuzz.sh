#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]   builds the fuzz targets and runs each for SECONDS, one after the other
#
# Prints executions and findings of each and ends with 1 if there was any. Needs a nightly toolchain and cargo-fuzz
# (`rustup toolchain install nightly; cargo install cargo-fuzz`). Inputs that broke something are in
# fuzz/artifacts/TARGET; `cargo +nightly fuzz run TARGET FILE` repeats one. Logs are in fuzz/target/logs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

seconds=${1:?usage: fuzz.sh SECONDS [TARGET...]}
shift
need_rust
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  echo "needs a nightly toolchain and cargo-fuzz: rustup toolchain install nightly; cargo install cargo-fuzz" >&2
  exit 2
fi
if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(cargo +nightly fuzz list); fi

fuzz/seeds.sh
# With one argument each target is built alone; without, all at once.
cargo +nightly fuzz build -O -a </dev/null
logs=fuzz/target/logs
mkdir -p "$logs"
found=0
printf '%-16s %12s %10s %9s\n' target executions exec/s findings
for target in "${targets[@]}"; do
  mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
  log=$logs/$target.log
  before=$(find "fuzz/artifacts/$target" -type f | wc -l)
  status=0
  # The binary itself: building again would take the lock for nothing.
  "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "fuzz/corpus/$target" \
    -artifact_prefix="fuzz/artifacts/$target/" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 >"$log" 2>&1 </dev/null || status=$?
  after=$(find "fuzz/artifacts/$target" -type f | wc -l)
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  findings=$((after - before))
  [ $status -eq 0 ] || [ $findings -gt 0 ] || findings="ended with $status"
  printf '%-16s %12s %10s %9s\n' "$target" "${executions:-?}" "${rate:-?}" "$findings"
  [ $status -eq 0 ] || { found=1 && grep -m1 -E 'panicked at|ERROR: ' "$log" || tail -3 "$log"; }
done
exit $found
