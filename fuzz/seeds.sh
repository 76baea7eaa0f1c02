#!/usr/bin/env bash
# seeds.sh   makes fuzz/corpus/TARGET from the batches of real clients in tests/data/batches
#
# Then: cargo +nightly fuzz run TARGET, or scripts/fuzz.sh for all (record_walk, codec_gzip, codec_snappy, codec_lz4,
# codec_zstd and inspect have seeds; the others find their way without)
set -euo pipefail
cd "$(dirname "$0")"
for codec in gzip snappy lz4 zstd; do
  mkdir -p "corpus/codec_$codec"
done
mkdir -p corpus/inspect corpus/record_walk
for file in ../tests/data/batches/*.bin; do
  name=$(basename "$file")
  # Large ones slow the fuzzer down and teach it nothing.
  [ "$(wc -c <"$file")" -le 20000 ] || continue
  cp "$file" "corpus/inspect/$name"
  codec=$(od -An -tu1 -j22 -N1 "$file" | tr -d ' ')
  names=(none gzip snappy lz4 zstd)
  if [ "$codec" = 0 ]; then
    tail -c +62 "$file" >"corpus/record_walk/$name"
  else
    tail -c +62 "$file" >"corpus/codec_${names[$codec]}/$name"
  fi
done
