#!/usr/bin/env bash
# kafka-libs.sh VERSION [SET]   the jars of Apache Kafka VERSION from Maven Central; prints their folder
#
# SET is broker, client (the default), streams, connect, mirror (MirrorMaker 2), spring (Spring Kafka) or tools; `all` fetches
# every one but mirror and prints the folder that holds them. Each is in .cache/kafka/VERSION/SET and is fetched once; what Maven
# downloads on the way stays in .cache/maven. Progress goes to stderr.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

version=${1:?usage: kafka-libs.sh VERSION [broker|client|streams|connect|mirror|spring|tools|all]}
set_name=${2:-client}
cache=$PWD/.cache
home=$cache/kafka/$version

# A broker started once and ended leaves an archive of its classes beside the jars: every later start takes
# 1.8 s instead of 3.5. No archive is no harm.
archive_broker_classes() {
  local dir pid
  dir=$(mktemp -d)
  scripts/kafka-properties.sh "$dir" "$(free_ports 2)"
  KAFKA_JAVA_OPTS="-XX:ArchiveClassesAtExit=$home/broker.jsa" \
    scripts/kafka-node.sh "$version" "$dir" >"$dir/log" 2>&1 </dev/null 9>&- &
  pid=$!
  if wait_for_line "$dir/log" "Kafka Server started" "$pid" 2>/dev/null; then kill "$pid"; else kill -9 "$pid"; fi 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  rm -rf "$dir"
}

fetch() {
  local name=$1 dir=$home/$1
  [ -f "$dir/.complete" ] && return 0
  mkdir -p "$home"
  # Two test binaries may ask at once.
  exec 9>"$home/.lock-$name"
  flock 9
  if [ ! -f "$dir/.complete" ]; then
    need_java
    need mvn maven
    echo "fetching the $name jars of Kafka $version" >&2
    rm -rf "$dir"
    # Maven ends both its streams with a reset of colours that it never set.
    mvn -B -q -ntp -f scripts/kafka/pom.xml -P "$name" -Dmaven.repo.local="$cache/maven" \
      -Dkafka.version="$version" dependency:copy-dependencies -DincludeScope=runtime \
      -DoutputDirectory="$dir" </dev/null 2>&1 | sed 's/\x1b\[0m//g' >&2
    touch "$dir/.complete"
    if [ "$name" = broker ]; then archive_broker_classes; fi
  fi
  exec 9>&-
}

case $set_name in
  broker | client | streams | connect | mirror | spring | tools)
    fetch "$set_name"
    echo "$home/$set_name"
    ;;
  all)
    for name in broker client streams connect spring tools; do fetch "$name"; done
    echo "$home"
    ;;
  *)
    echo "no such set: $set_name (broker, client, streams, connect, mirror, spring, tools, all)" >&2
    exit 64
    ;;
esac
