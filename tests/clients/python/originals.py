"""Reads records and says what each is.

bootstrap= topic= records=5 client=confluent|kafka-python|aiokafka [group=] [from=OFFSET] [back=N] [seconds=60] [committed=true]

With `group` it subscribes and commits what it has read; else it is assigned partition 0 from `from` on. With `back` it seeks
back to offset N once, after it has read all. One JSON line a record; at the end `committed`, and `position`.
"""

import hashlib
import json
import sys
import time

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
TOPIC = OPTIONS["topic"]
GROUP = OPTIONS.get("group")
WANTED = int(OPTIONS.get("records", "1"))
FROM = int(OPTIONS.get("from", "0"))
BACK = int(OPTIONS.get("back", "-1"))
UNTIL = time.monotonic() + float(OPTIONS.get("seconds", "60"))
ISOLATION = "read_committed" if OPTIONS.get("committed") == "true" else "read_uncommitted"


def say(partition, offset, key, value, headers, timestamp):
    line = {
        "partition": partition,
        "offset": offset,
        "key": None if key is None else key.decode(),
        "bytes": -1 if value is None else len(value),
        "sha256": None if value is None else hashlib.sha256(value).hexdigest(),
        "headers": [name for name, _ in headers or []],
        "timestamp": timestamp,
    }
    print(json.dumps(line), flush=True)


def end(position, committed):
    print(json.dumps({"end": True, "position": position, "committed": committed}), flush=True)


def confluent():
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": OPTIONS["bootstrap"],
        "group.id": GROUP or "none",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
        "isolation.level": ISOLATION,
    }
    consumer = Consumer(settings)
    if GROUP:
        consumer.subscribe([TOPIC])
    else:
        consumer.assign([TopicPartition(TOPIC, 0, FROM)])
    read, wanted, goes_back = 0, WANTED, BACK >= 0
    while read < wanted and time.monotonic() < UNTIL:
        record = consumer.poll(0.5)
        if record is None:
            continue
        if record.error() is not None:
            print(json.dumps({"error": str(record.error())}), flush=True)
            continue
        read += 1
        say(record.partition(), record.offset(), record.key(), record.value(), record.headers(), record.timestamp()[1])
        if GROUP:
            consumer.commit(record, asynchronous=False)
        if read >= wanted and goes_back:
            read, wanted, goes_back = 0, wanted - BACK, False
            consumer.seek(TopicPartition(TOPIC, 0, BACK))
    place = [TopicPartition(TOPIC, 0)]
    committed = consumer.committed(place)[0].offset if GROUP else -1
    end(consumer.position(place)[0].offset, committed)
    consumer.close()


def kafka_python():
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=OPTIONS["bootstrap"],
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=ISOLATION,
    )
    place = TopicPartition(TOPIC, 0)
    if GROUP:
        consumer.subscribe([TOPIC])
    else:
        consumer.assign([place])
        consumer.seek(place, FROM)
    read, wanted, goes_back = 0, WANTED, BACK >= 0
    while read < wanted and time.monotonic() < UNTIL:
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                read += 1
                say(record.partition, record.offset, record.key, record.value, record.headers, record.timestamp)
        if GROUP and read:
            consumer.commit()
        if read >= wanted and goes_back:
            read, wanted, goes_back = 0, wanted - BACK, False
            consumer.seek(place, BACK)
    end(consumer.position(place), (consumer.committed(place) or -1) if GROUP else -1)
    consumer.close()


{"confluent": confluent, "kafka-python": kafka_python}[OPTIONS.get("client", "confluent")]()
