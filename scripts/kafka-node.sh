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

# What a format writes is the same for every node but for three ids, so a JVM makes it once for each release and
# set of arguments.
format() {
  local formatted directory_id more=()
  formatted=$jars.formatted-$(printf '%s' "${KAFKA_FORMAT_ARGS:-}" | cksum | tr ' ' -)
  if [ ! -d "$formatted" ]; then
    [ -n "${KAFKA_FORMAT_ARGS:-}" ] && mapfile -t more <<<"$KAFKA_FORMAT_ARGS"
    java "${flags[@]}" -cp "$jars/*" kafka.tools.StorageTool format \
      -t "$cluster_id" -c "$dir/server.properties" "${more[@]}"
    cp -r "$dir/data" "$formatted.$$" && mv -T "$formatted.$$" "$formatted" 2>/dev/null || rm -rf "$formatted.$$"
    return
  fi
  cp -r "$formatted" "$dir/data"
  directory_id=x$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)
  sed -i -e "s/^cluster\.id=.*/cluster.id=$cluster_id/" -e "s/^directory\.id=.*/directory.id=$directory_id/" \
    -e "s/^node\.id=.*/$(grep '^node\.id=' "$dir/server.properties")/" "$dir/data/meta.properties"
}

cluster_id=${KAFKA_CLUSTER_ID:-c2l6ZWdhdGUgdGVzdHMuLg}
if [ ! -e "$dir/data/meta.properties" ]; then format; fi
exec java -Xms64m "-Xmx${KAFKA_HEAP:-512m}" "${flags[@]}" ${KAFKA_JAVA_OPTS:-} \
  -cp "$jars/*" kafka.Kafka "$dir/server.properties"
