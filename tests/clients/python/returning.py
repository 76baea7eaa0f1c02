"""A consumer of librdkafka whose application fails at a large record and comes back to it.

bootstrap= topic= mode=seek|restart [times=4] [largest=100000]: it seeks back to the record, or ends and begins at what is
committed, which is every record that was handled. The client id is librdkafka's own. One JSON line at the end.
"""

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
LARGEST = int(OPTIONS.get("largest", "100000"))
TIMES = int(OPTIONS.get("times", "4"))


def consumer():
    settings = {
        "bootstrap.servers": OPTIONS["bootstrap"],
        "group.id": OPTIONS["topic"] + "-" + OPTIONS["mode"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([OPTIONS["topic"]])
    return consumer


def message(consumer):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        polled = consumer.poll(0.5)
        if polled is not None and polled.error() is None:
            return polled
    raise RuntimeError("nothing comes")


failed = 0
reader = consumer()
while failed < TIMES:
    record = message(reader)
    if len(record.value()) <= LARGEST:
        reader.commit(record, asynchronous=False)
        continue
    # Slow to fail: meanwhile the library fetches everything behind it.
    time.sleep(0.7)
    failed += 1
    if OPTIONS["mode"] == "seek":
        reader.seek(TopicPartition(record.topic(), record.partition(), record.offset()))
    else:
        reader.close()
        reader = consumer()
reader.close()
print(json.dumps({"failed": failed}), flush=True)
