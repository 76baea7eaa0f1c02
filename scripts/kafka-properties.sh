#!/usr/bin/env bash
# kafka-properties.sh DIR PORT   server.properties of a small single broker and controller, node 1, for trying
# things on one machine: clients at 127.0.0.1:PORT, the controller at PORT + 1, data in DIR/data.
set -euo pipefail
dir=${1:?usage: kafka-properties.sh DIR PORT}
port=${2:?usage: kafka-properties.sh DIR PORT}
mkdir -p "$dir"
cat >"$dir/server.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listeners=PLAIN://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAIN://127.0.0.1:$port
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=33554432
P
