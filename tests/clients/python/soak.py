"""The Python clients of `make soak`; Soak.java does the same.

client=confluent|kafka-python role=produce|consume bootstrap= out=FILE. What each writes, and its other arguments:
tests/it/soak.rs.
"""

import os
import sys
import time

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
BOOTSTRAP, NAME = OPTIONS["bootstrap"], OPTIONS["name"]
OUT = open(OPTIONS["out"], "w", buffering=1 << 16, encoding="ascii")


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % n


def now():
    return int(time.time() * 1000)


def patiently(make):
    """Whoever it asks first may be down."""
    end = time.monotonic() + 120
    while True:
        try:
            return make()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(1)


class Sent:
    """One record, and what became of it."""

    def __init__(self, number, size, partition):
        self.number, self.size, self.partition, self.sent = number, size, partition, now()

    def done(self, offset, result):
        result = "_".join(str(result).split())
        print(self.number, self.size, self.partition, self.sent, now(), offset, result, file=OUT)
        return result not in ("ok", "size")


class Confluent:
    def __init__(self):
        from confluent_kafka import Producer

        self.producer = Producer({
            "bootstrap.servers": BOOTSTRAP, "acks": "all", "message.max.bytes": 10_000_000, "linger.ms": 5,
            "enable.idempotence": OPTIONS["idempotent"] == "true", "compression.type": OPTIONS.get("codec", "none"),
            "batch.size": 16384, "message.timeout.ms": 120_000, "request.timeout.ms": 30_000,
        })
        self.is_broken = False

    def send(self, topic, value, sent):
        from confluent_kafka import KafkaError

        def delivered(error, message):
            if error is None:
                sent.done(message.offset(), "ok")
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                sent.done(-1, "size")
            else:
                self.is_broken = sent.done(-1, error) or self.is_broken

        try:
            self.producer.produce(topic, value, partition=sent.partition, on_delivery=delivered)
        except Exception as error:
            self.is_broken = sent.done(-1, error)
        self.producer.poll(0)

    def flush(self):
        self.producer.flush()

    close = flush


class KafkaPython:
    def __init__(self):
        from kafka import KafkaProducer

        self.producer = KafkaProducer(
            bootstrap_servers=BOOTSTRAP.split(","), acks="all", max_request_size=10_000_000, linger_ms=5,
            compression_type=OPTIONS.get("codec"), enable_idempotence=OPTIONS["idempotent"] == "true",
            max_block_ms=120_000, request_timeout_ms=30_000,
        )
        self.is_broken = False

    def send(self, topic, value, sent):
        def failed(error):
            is_size = type(error).__name__ == "MessageSizeTooLargeError"
            sent.done(-1, "size" if is_size else repr(error))
            # An idempotent producer of this library has died of either.
            self.is_broken = True

        try:
            future = self.producer.send(topic, value, partition=sent.partition)
            future.add_callback(lambda stored: sent.done(stored.offset, "ok"))
            future.add_errback(failed)
        except Exception as error:
            self.is_broken = sent.done(-1, repr(error))

    def flush(self):
        self.producer.flush()

    def close(self):
        self.producer.close()


def produce(make):
    specials = [int(size) for size in OPTIONS["specials"].split(",")]
    every, partitions = int(OPTIONS["every"]), int(OPTIONS["partitions"])
    is_single, period = OPTIONS["single"] == "true", int(OPTIONS["period_ms"]) / 1000
    random, producer, number = Random(int(OPTIONS["seed"])), patiently(make), 0
    while not os.path.exists(OPTIONS["stop"]):
        is_special = random.below(every) == 0
        size = specials[random.below(len(specials))] if is_special else 40 + random.below(1000)
        if is_special or is_single:
            producer.flush()
        value = f"{NAME} {number} ".encode().ljust(size, b"x")
        producer.send(OPTIONS["topic"], value, Sent(number, size, number % partitions))
        if is_special or is_single:
            producer.flush()
        if producer.is_broken:
            # It may be one that can do no more.
            producer.close()
            producer = patiently(make)
        number += 1
        time.sleep(period)
    producer.flush()
    producer.close()


class Progress:
    def __init__(self):
        self.seen = {}

    def note(self, topic, partition, offset, value):
        name, number = value[:40].split(b" ")[:2]
        print(topic, partition, offset, name.decode(), number.decode(), len(value), file=OUT)
        self.seen[topic, partition] = max(self.seen.get((topic, partition), 0), offset + 1)

    def is_at_end(self):
        if not os.path.exists(OPTIONS["ends"]):
            return False
        with open(OPTIONS["ends"], encoding="ascii") as lines:
            ends = [line.split() for line in lines]
        return all(self.seen.get((topic, int(partition)), 0) >= int(end) for topic, partition, end in ends
                   if topic in OPTIONS["topics"].split(","))


def consume_confluent():
    from confluent_kafka import Consumer

    consumer, progress = Consumer({
        "bootstrap.servers": BOOTSTRAP, "group.id": NAME, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000,
    }), Progress()
    consumer.subscribe(OPTIONS["topics"].split(","))
    while not progress.is_at_end():
        for record in consumer.consume(500, 0.5):
            if record.error() is None:
                progress.note(record.topic(), record.partition(), record.offset(), record.value())
    consumer.close()


def consume_kafka_python():
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer, progress = patiently(lambda: KafkaConsumer(
        *OPTIONS["topics"].split(","), bootstrap_servers=BOOTSTRAP.split(","), group_id=NAME, auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
    )), Progress()
    while not progress.is_at_end():
        try:
            polled = consumer.poll(500)
        except KafkaError as error:
            # It tells its application of a broker that is gone, which asks again.
            print(repr(error), file=sys.stderr)
            time.sleep(0.5)
            continue
        for records in polled.values():
            for record in records:
                progress.note(record.topic, record.partition, record.offset, record.value)
    consumer.close()


match OPTIONS["role"], OPTIONS["client"]:
    case "produce", "confluent":
        produce(Confluent)
    case "produce", "kafka-python":
        produce(KafkaPython)
    case "consume", "confluent":
        consume_confluent()
    case "consume", "kafka-python":
        consume_kafka_python()
OUT.close()
