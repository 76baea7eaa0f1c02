"""What a client does through the proxy: it sends a record, has one refused, sends another, and reads what is there.

client=confluent|kafka-python|aiokafka bootstrap= topic=. One JSON line: the refusal's text, the values read, whether the
last record took a new producer.
"""

import asyncio
import json
import sys
import time

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
BOOTSTRAP, TOPIC = OPTIONS["bootstrap"], OPTIONS["topic"]
TOO_LARGE = b"x" * 100_000
SECONDS = 30


def say(refusal, read, is_dead=False):
    print(json.dumps({"refusal": refusal, "read": " ".join(value[:9].decode() for value in read), "is_dead": is_dead}))


def confluent():
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer, errors = Producer({"bootstrap.servers": BOOTSTRAP, "message.timeout.ms": SECONDS * 1000}), []
    for value in (b"first", TOO_LARGE, b"last"):
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(SECONDS)
    assert errors[0] is None and errors[2] is None, errors
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "compatibility", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    read, end = [], time.monotonic() + SECONDS
    while b"last" not in read and time.monotonic() < end:
        record = consumer.poll(0.5)
        if record is not None and record.error() is None:
            read.append(record.value())
    consumer.close()
    say(str(errors[1] or ""), read)


def kafka_python():
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    producer, refusal, is_dead = KafkaProducer(bootstrap_servers=BOOTSTRAP), "", False
    producer.send(TOPIC, b"first", partition=0).get(SECONDS)
    try:
        producer.send(TOPIC, TOO_LARGE, partition=0).get(SECONDS)
    except Exception as error:
        refusal = repr(error)
    try:
        producer.send(TOPIC, b"last", partition=0).get(SECONDS)
    except Exception:
        is_dead = True
        producer = KafkaProducer(bootstrap_servers=BOOTSTRAP)
        producer.send(TOPIC, b"last", partition=0).get(SECONDS)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP)
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    read, end = [], time.monotonic() + SECONDS
    while b"last" not in read and time.monotonic() < end:
        for records in consumer.poll(500).values():
            read += [record.value for record in records]
    consumer.close()
    say(refusal, read, is_dead)


async def aiokafka():
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    producer, refusal = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP), ""
    await producer.start()
    await producer.send_and_wait(TOPIC, b"first", partition=0)
    try:
        await producer.send_and_wait(TOPIC, TOO_LARGE, partition=0)
    except Exception as error:
        refusal = repr(error)
    await producer.send_and_wait(TOPIC, b"last", partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP)
    await consumer.start()
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    read = []
    while b"last" not in read:
        read.append((await asyncio.wait_for(consumer.getone(), SECONDS)).value)
    await consumer.stop()
    say(refusal, read)


match OPTIONS["client"]:
    case "confluent":
        confluent()
    case "kafka-python":
        kafka_python()
    case "aiokafka":
        asyncio.run(aiokafka())
