#!/usr/bin/env bash
# seeds.sh   makes fuzz/corpus/TARGET from the batches of real clients in tests/data/batches
#
# Then: cargo +nightly fuzz run TARGET, or scripts/fuzz.sh for all (record_walk, codec_gzip, codec_snappy, codec_lz4,
# codec_zstd, inspect, fetch and config_request have seeds; the others find their way without)
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

# What the target takes first: request (0), ShareFetch response (1) or Fetch response (2); version - 4; bytes in a piece.
mkdir -p corpus/fetch
hex() { printf '%b' "$(tr -d ' \n' | sed 's/../\\x&/g')"; }
# Version 12, a frame of one topic "t" with partition 0 at offset 5, 1 MiB, client id "c".
hex >corpus/fetch/request-12 <<'EOF'
00 08 07  00000045 0001 000c 00000001 0001 63 00
ffffffff 000001f4 00000001 03200000 00 00000000 ffffffff
02 02 74 02 00000000 ffffffff 0000000000000005 ffffffff ffffffffffffffff 00100000 00 00
01 01 00
EOF
# Version 4 names topics with two bytes of length and has no sessions.
hex >corpus/fetch/request-4 <<'EOF'
00 00 03  00000033 0001 0004 00000001 0001 63
ffffffff 000001f4 00000001 03200000 00
00000001 0001 74 00000001 00000000 0000000000000005 00100000
EOF
# A response of one topic and partition with a real batch, in both encodings.
batch=$(od -An -v -tx1 ../tests/data/batches/confluent-none-one-random-9000.bin | tr -d ' \n')
bytes=$((${#batch} / 2))
{
  printf '02 08 11 00 00000000 0000 00000000 02 02 74 02 00000000 0000 0000000000000001 0000000000000001 '
  printf '0000000000000000 00 ffffffff %02x%02x %s 00 00 00' $(((bytes + 1) % 128 + 128)) $(((bytes + 1) / 128)) "$batch"
} | hex >corpus/fetch/response-12
{
  printf '02 00 11 00000000 00000001 0001 74 00000001 00000000 0000 0000000000000001 0000000000000001 '
  printf '00000000 %08x %s' "$bytes" "$batch"
} | hex >corpus/fetch/response-4

# What the target takes first: which request (0 to 2), its version.
mkdir -p corpus/config_request
# CreateTopics 7: topic "t", one assignment, max.message.bytes=1 and segment.bytes=null.
hex >corpus/config_request/create-7 <<'EOF'
00 07  00000000 0013 0007 00000007 ffff 00
02 02 74 ffffffff ffff 02 00000000 02 00000001 00 03
12 6d61782e6d6573736167652e6279746573 02 31 00
0e 7365676d656e742e6279746573 00 00 00 00001000 00 00
EOF
# AlterConfigs 1: topic "t", compression.type=zstd.
hex >corpus/config_request/replace-1 <<'EOF'
01 01  00000000 0021 0001 00000007 ffff
00000001 02 0001 74 00000001 0010 636f6d7072657373696f6e2e74797065 0004 7a737464 00
EOF
# IncrementalAlterConfigs 1: all brokers, DELETE message.max.bytes.
hex >corpus/config_request/change-1 <<'EOF'
02 01  00000000 002c 0001 00000007 ffff 00
02 04 01 02 12 6d6573736167652e6d61782e6279746573 01 00 00 00 00 00
EOF
