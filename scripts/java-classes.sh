#!/usr/bin/env bash
# java-classes.sh [SET] [VERSION]   compiles the client programs in tests/clients/java once; prints their folder
#
# SET is client (the default: what every kafka-clients since 3.9 can run), kafka4 (needs kafka-clients 4),
# streams (needs kafka-streams), spring (needs Spring Kafka), connect (plugins of Kafka Connect) or soak (`make soak`). Each is
# compiled against 4.3.0 and runs with the jars of other releases too.
#
# With VERSION, for client only, it prints a jar of them instead. Beside it, JAR.VERSION.jsa is an archive of the classes
# that clients of that release load: with -XX:SharedArchiveFile a program takes half the CPU to start. No archive is no
# harm.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

set_name=${1:-client}
version=${2:-}
sources=(tests/clients/java/*.java)
case $set_name in
  client) jars=$(scripts/kafka-libs.sh 4.3.0 client) ;;
  kafka4) jars=$(scripts/kafka-libs.sh 4.3.0 client) && sources+=(tests/clients/java/kafka4/*.java) ;;
  streams) jars=$(scripts/kafka-libs.sh 4.3.0 streams) && sources+=(tests/clients/java/streams/*.java) ;;
  spring) jars=$(scripts/kafka-libs.sh 4.3.0 spring) && sources+=(tests/clients/java/spring/*.java) ;;
  soak) jars=$(scripts/kafka-libs.sh 4.3.0 client) && sources=(tests/clients/java/Cli.java tests/clients/java/soak/*.java) ;;
  connect) jars=$(scripts/kafka-libs.sh 4.3.0 connect) && sources=(tests/clients/java/connect/*.java) ;;
  *) echo "no such set: $set_name (client, kafka4, streams, spring, connect, soak)" >&2 && exit 64 ;;
esac

# By content, not by date: a fresh clone of an unchanged program finds its classes.
key=$(cat "${sources[@]}" | cksum | tr ' ' '-')
classes=$PWD/.cache/classes/$set_name-$key
compile() {
  need_java
  rm -rf ".cache/classes/$set_name-"*
  mkdir -p "$classes"
  javac --release 17 -proc:none -Xlint:all,-serial -Werror -cp "$jars/*" -d "$classes" "${sources[@]}" >&2
}
once "$classes" ".cache/classes/.lock-$set_name" compile
if [ -z "$version" ]; then echo "$classes" && exit; fi

jar=$classes.jar
if [ ! -f "$jar.$version.jsa" ]; then
  exec 9>".cache/classes/.lock-$set_name"
  flock 9
  [ -f "$jar" ] || { jar --create --file "$jar.$$" -C "$classes" . && mv "$jar.$$" "$jar"; }
  if [ ! -f "$jar.$version.jsa" ]; then
    java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Dorg.slf4j.simpleLogger.defaultLogLevel=off \
      -XX:ArchiveClassesAtExit="$jar.$$.jsa" \
      -cp "$jar:$(scripts/kafka-libs.sh "$version" client)/*" LoadClasses >&2 </dev/null 9>&-
    mv "$jar.$$.jsa" "$jar.$version.jsa" 2>/dev/null || true
  fi
fi
echo "$jar"
