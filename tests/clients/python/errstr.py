"""What an application of librdkafka reads of a refused record: rd_kafka_message_produce_errstr, as C, C++, Go and .NET do.

bootstrap= sends=TOPIC:BYTES,TOPIC:BYTES [rounds=20] [c.NAME=VALUE]

Every round sends each of these records and waits for it. One JSON line a record: its code, the text that librdkafka
gives for the record, and its own words for the code. confluent-kafka's own library is used, without its Python part.
"""

import ctypes
import glob
import json
import os
import random
import sys

import confluent_kafka

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
MORE = {key[2:]: value for key, value in OPTIONS.items() if key.startswith("c.")}
PRODUCER, COPY = 0, 2


def library():
    beside = os.path.dirname(os.path.dirname(confluent_kafka.__file__))
    found = glob.glob(os.path.join(beside, "confluent_kafka.libs", "librdkafka*"))
    return ctypes.CDLL(found[0])


lib = library()
DELIVERED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
for name in ("conf_new", "new", "topic_new"):
    getattr(lib, f"rd_kafka_{name}").restype = ctypes.c_void_p
lib.rd_kafka_err2str.restype = ctypes.c_char_p
lib.rd_kafka_message_produce_errstr.restype = ctypes.c_char_p
lib.rd_kafka_message_produce_errstr.argtypes = [ctypes.c_void_p]

now = {}


def delivered(_producer, message, _opaque):
    code = ctypes.cast(message, ctypes.POINTER(ctypes.c_int)).contents.value
    text = lib.rd_kafka_message_produce_errstr(message) if code else None
    print(
        json.dumps(
            {
                "topic": now["topic"],
                "value_bytes": now["bytes"],
                "code": code,
                "errstr": text and text.decode("utf-8", "backslashreplace"),
                "own": lib.rd_kafka_err2str(code).decode(),
            }
        ),
        flush=True,
    )
    now["done"] = True


def main():
    callback = DELIVERED(delivered)
    conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
    error = ctypes.create_string_buffer(512)
    settings = {
        "bootstrap.servers": OPTIONS["bootstrap"],
        "message.max.bytes": str(16 << 20),
        "message.timeout.ms": "60000",
        "linger.ms": "0",
        "log_level": "0",
        **MORE,
    }
    for name, value in settings.items():
        if lib.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, 512) != 0:
            sys.exit(error.value.decode())
    lib.rd_kafka_conf_set_dr_msg_cb(conf, callback)
    producer = lib.rd_kafka_new(PRODUCER, conf, error, 512)
    if not producer:
        sys.exit(error.value.decode())
    producer = ctypes.c_void_p(producer)
    topics = {}
    for _ in range(int(OPTIONS.get("rounds", "20"))):
        for send in OPTIONS["sends"].split(","):
            topic, size = send.rsplit(":", 1)
            if topic not in topics:
                topics[topic] = ctypes.c_void_p(lib.rd_kafka_topic_new(producer, topic.encode(), None))
            value = random.randbytes(int(size))
            now.update(topic=topic, bytes=int(size), done=False)
            if lib.rd_kafka_produce(topics[topic], 0, COPY, value, len(value), None, 0, None) != 0:
                sys.exit("not taken by librdkafka")
            while not now["done"]:
                lib.rd_kafka_poll(producer, 100)


main()
