# Sends what fits and what does not, for ever: the errors below are what a Java application would see.
cd /opt/kafka/bin || exit 1
server=localhost:19092

kafka-topics() { ./kafka-topics.sh --bootstrap-server "$server" "$@"; }
until kafka-topics --list >/dev/null 2>&1; do sleep 1; done
kafka-topics --create --if-not-exists --topic orders --partitions 3
kafka-topics --create --if-not-exists --topic notes --partitions 1 --config max.message.bytes=20000

# send TOPIC BYTES   one record of so many letters
send() {
  echo "$2 bytes to $1:"
  head -c "$2" /dev/zero | tr '\0' A | ./kafka-console-producer.sh --bootstrap-server "$server" --topic "$1" \
    --producer-property max.request.size=8388608 2>&1 | grep -E 'sizegate refused|RecordTooLarge' || echo "  stored"
}
while true; do
  send orders 1000
  send orders 60000
  send orders 70000
  send notes 10000
  send notes 30000
  ./kafka-producer-perf-test.sh --topic orders --num-records 2000 --record-size 2000 --throughput 500 \
    --producer-props bootstrap.servers="$server" compression.type=lz4 | tail -1
done
