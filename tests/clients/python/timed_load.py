"""Sends records of mixed sizes over all partitions with a pause here and there, for what their timestamps tell.

client=confluent|kafka-python bootstrap= topic= partitions= mixed= [shift_ms=0] [seed=1] [linger=]: the clock of the
records is off by shift_ms. One JSON line at the end with what was acknowledged.
"""

import json
import random
import sys
import time

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
PARTITIONS = int(OPTIONS["partitions"])
SHIFT_MS = int(OPTIONS.get("shift_ms", "0"))


def records():
    """Partition, timestamp and value of each record."""
    rng = random.Random(int(OPTIONS.get("seed", "1")))
    for _ in range(int(OPTIONS["mixed"])):
        kind = rng.randrange(200)
        size = rng.randrange(50, 2_000) if kind < 170 else rng.randrange(17_000, 30_000) if kind < 199 else 300_000
        yield rng.randrange(PARTITIONS), int(time.time() * 1000) + SHIFT_MS, bytes(size)
        if rng.randrange(200) == 0:
            time.sleep(rng.random() * 0.04)


def by_confluent():
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": OPTIONS["bootstrap"], "queue.buffering.max.messages": 1_000_000}
    if "linger" in OPTIONS:
        settings["linger.ms"] = OPTIONS["linger"]
    producer = Producer(settings)
    acknowledged = 0

    def delivered(error, _):
        nonlocal acknowledged
        acknowledged += error is None

    for n, (partition, timestamp, value) in enumerate(records()):
        producer.produce(OPTIONS["topic"], value, partition=partition, timestamp=timestamp, on_delivery=delivered)
        # A batch now and then: otherwise a few hold everything.
        if n % 3 == 0:
            producer.poll(0.001)
    producer.flush(60)
    return acknowledged


def by_kafka_python():
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=OPTIONS["bootstrap"], linger_ms=int(OPTIONS.get("linger", "0")))
    sent = [
        producer.send(OPTIONS["topic"], value, partition=partition, timestamp_ms=timestamp)
        for partition, timestamp, value in records()
    ]
    producer.flush(60)
    acknowledged = sum(future.succeeded() for future in sent)
    producer.close(timeout=5)
    return acknowledged


print(json.dumps({"acknowledged": by_confluent() if OPTIONS["client"] == "confluent" else by_kafka_python()}), flush=True)
