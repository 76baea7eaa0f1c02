"""Sends records of given value sizes with one of three Python clients and says what became of each.

client=confluent|kafka-python|aiokafka bootstrap= topic= values=100,1000,100 [partition=0] [codec=none]
[acks=all] [idempotent=false] [together=true] [linger=300] [first=100] [then=100] [max=16777216]
[c.NAME=VALUE] [hosts=NAME,NAME]

c.NAME is the client's own option NAME, such as c.security.protocol or c.security_protocol. hosts are names that
mean 127.0.0.1 (kafka-python only: librdkafka asks the system itself).

together sends all before it waits, with a linger and a batch size that put them into one batch. first and then
are sent with the same producer before and afterwards, each waited for: whether it still works. One JSON line a
record, numbered in the order first, values, then.
"""

import asyncio
import json
import logging
import random
import socket
import sys
import time

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
BOOTSTRAP = OPTIONS["bootstrap"]
TOPIC = OPTIONS["topic"]
PARTITION = int(OPTIONS.get("partition", "0"))
CODEC = OPTIONS.get("codec", "none")
ACKS = OPTIONS.get("acks", "all")
IDEMPOTENT = OPTIONS.get("idempotent", "false") == "true"
TOGETHER = OPTIONS.get("together", "false") == "true"
MAX = int(OPTIONS.get("max", 16 << 20))
SIZES = [int(size) for size in OPTIONS["values"].split(",")]
FIRST = [int(size) for size in OPTIONS["first"].split(",")] if "first" in OPTIONS else []
THEN = [int(size) for size in OPTIONS["then"].split(",")] if "then" in OPTIONS else []
MORE = {key[2:]: value for key, value in OPTIONS.items() if key.startswith("c.")}
LINGER_MS = int(OPTIONS.get("linger", "300")) if TOGETHER else 0


def value(size, seed):
    return random.Random(seed).randbytes(size)


def report(record, size, offset=None, error=None):
    line = {"record": record, "value_bytes": size, "ok": error is None}
    if error is None:
        line["offset"] = offset
    else:
        line["exception"] = type(error).__name__
        line["text"] = str(error)
    print(json.dumps(line), flush=True)


def by_confluent():
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "compression.type": CODEC,
            "acks": ACKS,
            "enable.idempotence": IDEMPOTENT,
            "linger.ms": LINGER_MS,
            "message.max.bytes": MAX,
            "batch.size": MAX,
            "message.timeout.ms": 30000,
            **MORE,
        },
        logger=logging.getLogger("librdkafka"),
    )
    # Metadata first, so that the linger of the batch begins with its first record.
    producer.list_topics(TOPIC, timeout=30)
    ended = []

    def send(record, size):
        def delivered(error, message):
            ended.append(record)
            report(record, size, message.offset(), error and KafkaException(error))

        try:
            producer.produce(TOPIC, value(size, record), partition=PARTITION, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            report(record, size, error=error)

    for record, size in enumerate(FIRST):
        send(record, size)
        producer.flush(60)
    for record, size in enumerate(SIZES, len(FIRST)):
        send(record, size)
        if not TOGETHER:
            producer.flush(60)
    producer.flush(60)
    for record, size in enumerate(THEN, len(FIRST) + len(SIZES)):
        send(record, size)
        producer.flush(60)


def by_kafka_python():
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(
        bootstrap_servers=BOOTSTRAP,
        compression_type=None if CODEC == "none" else CODEC,
        acks=ACKS if ACKS == "all" else int(ACKS),
        enable_idempotence=IDEMPOTENT,
        linger_ms=LINGER_MS,
        batch_size=1 << 20 if TOGETHER else 16384,
        max_request_size=MAX,
        delivery_timeout_ms=30000,
        request_timeout_ms=20000,
        **MORE,
    )
    producer.partitions_for(TOPIC)

    def send(record, size):
        try:
            return record, size, producer.send(TOPIC, value(size, record), partition=PARTITION)
        except KafkaError as error:
            report(record, size, error=error)
            return record, size, None

    def wait(record, size, future):
        if future is None:
            return
        try:
            report(record, size, future.get(timeout=60).offset)
        except KafkaError as error:
            report(record, size, error=error)

    for record, size in enumerate(FIRST):
        wait(*send(record, size))
    if TOGETHER:
        for sent in [send(record, size) for record, size in enumerate(SIZES, len(FIRST))]:
            wait(*sent)
    else:
        for record, size in enumerate(SIZES, len(FIRST)):
            wait(*send(record, size))
    for record, size in enumerate(THEN, len(FIRST) + len(SIZES)):
        wait(*send(record, size))
    producer.close(timeout=5)


async def by_aiokafka():
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP,
        compression_type=None if CODEC == "none" else CODEC,
        acks=ACKS if ACKS == "all" else int(ACKS),
        enable_idempotence=IDEMPOTENT,
        linger_ms=LINGER_MS,
        max_batch_size=1 << 20 if TOGETHER else 16384,
        max_request_size=MAX,
        request_timeout_ms=30000,
        **MORE,
    )
    await producer.start()
    await producer.partitions_for(TOPIC)

    async def send(record, size):
        try:
            return record, size, await producer.send(TOPIC, value(size, record), partition=PARTITION)
        except KafkaError as error:
            report(record, size, error=error)
            return record, size, None

    async def wait(record, size, future):
        if future is None:
            return
        try:
            metadata = await asyncio.wait_for(future, 60)
            report(record, size, metadata.offset if metadata else -1)
        except KafkaError as error:
            report(record, size, error=error)

    try:
        for record, size in enumerate(FIRST):
            await wait(*await send(record, size))
        if TOGETHER:
            sent = [await send(record, size) for record, size in enumerate(SIZES, len(FIRST))]
            for each in sent:
                await wait(*each)
        else:
            for record, size in enumerate(SIZES, len(FIRST)):
                await wait(*await send(record, size))
        for record, size in enumerate(THEN, len(FIRST) + len(SIZES)):
            await wait(*await send(record, size))
    finally:
        await producer.stop()


def resolve_here(names):
    """Makes names mean 127.0.0.1, for this process."""
    ask = socket.getaddrinfo

    def getaddrinfo(host, *args, **kwargs):
        return ask("127.0.0.1" if host in names else host, *args, **kwargs)

    socket.getaddrinfo = getaddrinfo


def main():
    if "hosts" in OPTIONS:
        resolve_here(OPTIONS["hosts"].split(","))
    logging.basicConfig(level=logging.CRITICAL)
    start = time.monotonic()
    client = OPTIONS["client"]
    if client == "confluent":
        by_confluent()
    elif client == "kafka-python":
        by_kafka_python()
    elif client == "aiokafka":
        asyncio.run(by_aiokafka())
    else:
        sys.exit(f"no such client: {client}")
    print(json.dumps({"seconds": time.monotonic() - start}), flush=True)


main()
