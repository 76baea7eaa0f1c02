#!/usr/bin/env bash
# kafka-node.sh VERSION DIR   becomes the Kafka broker that DIR/server.properties describes
#
# Formats the storage first if it is new. The log goes to stdout; the node serves when it says
# "Kafka Server started". Environment: KAFKA_HEAP (512m); KAFKA_CLUSTER_ID (16 bytes, base64url), the same for
# all nodes of one cluster; KAFKA_FORMAT_ARGS, more arguments for the format, one a line; KAFKA_JAVA_OPTS.
set -euo pipefail
version=${1:?usage: kafka-node.sh VERSION DIR}
dir=${2:?usage: kafka-node.sh VERSION DIR}
here=$(cd "$(dirname "$0")" && pwd)
jars=$("$here/kafka-libs.sh" "$version" broker)

# Short starts matter more than speed later on: one compiler, one collector, and the classes from an archive
# that kafka-libs.sh made (without it, or for another JVM, Java just loads them one by one).
flags=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xlog:disable -Xlog:all=error:stderr "-Djava.io.tmpdir=$dir"
  "-Dlog4j2.configurationFile=file:$here/kafka/log4j2.xml")
[ -f "$jars.jsa" ] && flags+=("-XX:SharedArchiveFile=$jars.jsa")

if ! ls "$dir"/data/meta.properties >/dev/null 2>&1; then
  more=()
  [ -n "${KAFKA_FORMAT_ARGS:-}" ] && mapfile -t more <<<"$KAFKA_FORMAT_ARGS"
  java "${flags[@]}" -cp "$jars/*" kafka.tools.StorageTool format \
    -t "${KAFKA_CLUSTER_ID:-c2l6ZWdhdGUgdGVzdHMuLg}" -c "$dir/server.properties" "${more[@]}"
fi
exec java -Xms64m "-Xmx${KAFKA_HEAP:-512m}" "${flags[@]}" ${KAFKA_JAVA_OPTS:-} \
  -cp "$jars/*" kafka.Kafka "$dir/server.properties"
