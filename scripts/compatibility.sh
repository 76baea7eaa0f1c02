#!/usr/bin/env bash
# compatibility.sh [CLIENT...]   real clients through sizegate; writes the table in docs/compatibility.md
#
# Each sends a record, one that a rule refuses, and another, and reads what is there: twice what it sent well, once. Some
# minutes, and clients that no test needs are fetched. With names only those run, and the table stays as it is.
# SIZEGATE_BIN=… tries that program instead of building one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
broker=4.4.0
dir=$(mktemp -d)
python=$(scripts/python-env.sh)

# one NAME VERSION COMMAND...   runs a client and keeps what it said
wanted=("$@")
one() {
  local name=$1 version=$2 topic out code=0
  shift 2
  if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return; fi
  topic=compatibility-$(tr 'A-Z' 'a-z' <<<"$name-$version" | tr -c 'a-z0-9\n' -)
  "$python" - "$bootstrap" "$topic" <<'PYTHON'
import sys
from confluent_kafka.admin import AdminClient, NewTopic
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
admin.create_topics([NewTopic(sys.argv[2], 1, 1)])[sys.argv[2]].result(60)
PYTHON
  out=$(timeout 300 "$@" "bootstrap=$bootstrap" "topic=$topic" 2>"$dir/error" </dev/null) || code=$?
  printf '%s\t%s\t%s\t%s\n' "$name" "$version" "$code" "$(tail -1 <<<"$out")" >>"$dir/results"
  echo "$name $version: $code $out" >&2
  [ $code = 0 ] || tail -40 "$dir/error" >&2
}

# framework SET   compiles tests/compatibility/java/SET against the jars of that set; prints its class path
framework() {
  local jars
  jars=$(scripts/kafka-libs.sh 4.3.0 "$1")
  javac --release 17 -proc:none -cp "$jars/*" -d "$dir/java-$1" tests/clients/java/Cli.java "tests/compatibility/java/$1"/*.java
  echo "$dir/java-$1:$jars/*"
}
java_quiet=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=off)

java_client() {
  one kafka-clients "$1" "${java_quiet[@]}" \
    -cp "$(scripts/java-classes.sh):$(scripts/kafka-libs.sh "$1" client)/*" Compatibility
}

version_of() { sed -n "s/^$1==//p" "$2"; }
node_version_of() { sed -n "s|.*\"$1\": \"\(.*\)\".*|\1|p" tests/compatibility/node/package.json; }
go_version_of() { sed -n "s|.*$1 v\([0-9.]*\)$|\1|p" tests/compatibility/go/go.mod; }

need_rust
if [ -z "${SIZEGATE_BIN:-}" ]; then
  cargo build --release --locked --quiet --bin sizegate </dev/null
  SIZEGATE_BIN=target/release/sizegate
fi
python2=$(python_venv kafka-python-2 tests/compatibility/python/kafka-python-2.txt)
modules=$(npm_modules compatibility-node tests/compatibility/node)
# @platformatic/kafka wants a Node.js of its own, which a script of the package `node` puts in its place.
[ -x "$modules/node/bin/node" ] || (cd "$modules/.." && npm rebuild node --loglevel error) >&2 </dev/null
go=$(go_programs tests/compatibility/go)/compatibility
cargo build --locked --quiet --manifest-path tests/compatibility/rskafka/Cargo.toml --target-dir target/compatibility </dev/null

port=$(free_ports 6)
trap 'end_process "${sizegate:-}" 2>/dev/null; end_process "${kafka:-}" 2>/dev/null; rm -rf "$dir"' EXIT
scripts/kafka-properties.sh "$dir/kafka" "$port"
scripts/kafka-node.sh "$broker" "$dir/kafka" >"$dir/kafka.log" 2>&1 </dev/null &
kafka=$!
wait_for_line "$dir/kafka.log" "Kafka Server started" "$kafka"
bootstrap=127.0.0.1:$((port + 2))
cat >"$dir/sizegate.yaml" <<YAML
cluster: {bootstrap_servers: ["127.0.0.1:$port"]}
listener: {bind: "$bootstrap", advertised_host: 127.0.0.1, node_ports: {first: $((port + 3)), node_ids: 1-1}}
admin: {bind: "127.0.0.1:$((port + 4))"}
rules: [{name: small, topics: ["compatibility-*", "a.compatibility-*"], limits: {record_bytes: 64KiB}}]
YAML
"$SIZEGATE_BIN" run --config "$dir/sizegate.yaml" >"$dir/sizegate.log" 2>&1 </dev/null &
sizegate=$!
wait_for_line "$dir/sizegate.log" "$bootstrap" "$sizegate"

for version in 3.9.1 4.1.1 4.3.0 4.4.0; do java_client "$version"; done
one librdkafka "$(version_of confluent-kafka tests/clients/python/requirements.txt)" \
  "$python" tests/compatibility/python/client.py client=confluent
one kafka-python "$(version_of kafka-python tests/clients/python/requirements.txt)" \
  "$python" tests/compatibility/python/client.py client=kafka-python
one kafka-python "$(version_of kafka-python tests/compatibility/python/kafka-python-2.txt)" \
  "$python2" tests/compatibility/python/client.py client=kafka-python
one aiokafka "$(version_of aiokafka tests/clients/python/requirements.txt)" \
  "$python" tests/compatibility/python/client.py client=aiokafka
one kafkajs "$(node_version_of kafkajs)" \
  env "NODE_PATH=$modules" node tests/compatibility/node/client.mjs client=kafkajs
one platformatic "$(node_version_of @platformatic/kafka)" \
  env "NODE_PATH=$modules" "$modules/node/bin/node" tests/compatibility/node/client.mjs client=platformatic
one franz-go "$(go_version_of franz-go)" "$go" client=franz
one kafka-go "$(go_version_of kafka-go)" "$go" client=kafka-go
one sarama "$(go_version_of sarama)" "$go" client=sarama
one rskafka "$(sed -n 's/^rskafka = "=\(.*\)"/\1/p' tests/compatibility/rskafka/Cargo.toml)" \
  target/compatibility/debug/compatibility-rskafka
one "Spring Kafka" "$(sed -n 's|.*<spring-kafka.version>\(.*\)</.*|\1|p' scripts/kafka/pom.xml)" \
  "${java_quiet[@]}" -cp "$(framework spring)" CompatibilitySpring
one "Kafka Streams" 4.3.0 "${java_quiet[@]}" -cp "$(framework streams)" CompatibilityStreams
one "Kafka Connect" 4.3.0 "$python" tests/compatibility/python/connect.py client=connect \
  "jars=$(scripts/kafka-libs.sh 4.3.0 connect)" "direct=127.0.0.1:$port" "port=$((port + 5))"
one "MirrorMaker 2" 4.3.0 "$python" tests/compatibility/python/connect.py client=mirrormaker2 \
  "jars=$(scripts/kafka-libs.sh 4.3.0 mirror)" "direct=127.0.0.1:$port" "port=$((port + 5))"

python3 tests/compatibility/table.py "$dir/results" "$broker" $([ ${#wanted[@]} -gt 0 ] || echo docs/compatibility.md)
