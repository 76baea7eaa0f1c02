"""What Kafka Connect and MirrorMaker 2 do through the proxy: they carry a record, one that is refused, and another.

client=connect|mirrormaker2 jars=FOLDER direct=BROKER port= bootstrap= topic=. One JSON line: the refusal's text, the values
read, and what it takes to go on. First as they come, then with what the documents say.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
BOOTSTRAP, DIRECT, TOPIC = OPTIONS["bootstrap"], OPTIONS["direct"], OPTIONS["topic"]
SECONDS = 60
LINES = ["first", "x" * 100_000, "last"]


class Java:
    """A program of Kafka's, with its log."""

    def __init__(self, folder, name, main, *files):
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                 "-cp", OPTIONS["jars"] + "/*", main, *files], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if failed:
            print(self.said()[-4000:], file=sys.stderr)
        self.process.kill()
        self.process.wait()

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()


def eventually(what, look):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise TimeoutError(what)


def properties(folder, file, /, **lines):
    path = os.path.join(folder, file + ".properties")
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(f"{key.replace('__', '->').replace('_', '.')}={value}\n" for key, value in lines.items())
    return path


def create(name, **config):
    config = {key.replace("_", "."): str(value) for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": DIRECT})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(SECONDS)


def produce(topic, *values):
    producer = Producer({"bootstrap.servers": DIRECT, "message.max.bytes": 10_000_000})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS) == 0


def stored(topic):
    """The first nine bytes of each value, of a topic that may not be there yet; past the proxy."""
    consumer = Consumer({"bootstrap.servers": DIRECT, "group.id": "none", "enable.auto.commit": False,
                         "enable.partition.eof": True, "fetch.message.max.bytes": 10_000_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (record := consumer.poll(5)) is not None and record.error() is None:
        values.append(record.value()[:9].decode().strip())
    consumer.close()
    return values


def refusal_in(text):
    """The line in which a program tells it."""
    found = re.search(r"\S*Exception: sizegate refused [^\n]*", text)
    return found and found.group()


def connect(folder):
    create(TOPIC + "-default")
    path = lambda name: os.path.join(folder, name)
    with open(path("in.txt"), "w", encoding="utf-8") as out:
        out.write("\n".join(LINES[:2]) + "\n")
    strings = "org.apache.kafka.connect.storage.StringConverter"
    worker = properties(folder, "worker", bootstrap_servers=BOOTSTRAP, key_converter=strings, value_converter=strings,
                        offset_storage_file_filename=path("offsets"), listeners=f"http://127.0.0.1:{OPTIONS['port']}",
                        plugin_discovery="service_load", plugin_path=OPTIONS["jars"], offset_flush_interval_ms=1000)
    source = {"connector_class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "file": path("in.txt")}
    with Java(
        folder, "worker", "org.apache.kafka.connect.cli.ConnectStandalone", worker,
        properties(folder, "stops", name="stops", topic=TOPIC + "-default", **source),
        properties(folder, "goes-on", name="goes-on", topic=TOPIC, errors_tolerance="all", errors_log_enable="true", **source),
        properties(folder, "sink", name="sink", topics=TOPIC, file=path("out.txt"),
                   connector_class="org.apache.kafka.connect.file.FileStreamSinkConnector",
                   consumer_override_auto_offset_reset="earliest"),
    ) as java:
        def trace():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{OPTIONS['port']}/connectors/stops/status") as response:
                    tasks = json.load(response)["tasks"]
            except OSError:
                return None
            return tasks and tasks[0]["state"] == "FAILED" and tasks[0]["trace"]

        def lines():
            read = open(path("out.txt"), encoding="utf-8").read().split() if os.path.exists(path("out.txt")) else []
            return "last" in read and read

        refusal = refusal_in(eventually("the task fails", trace)) or ""
        eventually("the one that goes on says it in the log", lambda: refusal_in(java.said()))
        # Not in one batch with the large one: Java cannot take the two apart when the second has but some bytes.
        with open(path("in.txt"), "a", encoding="utf-8") as out:
            out.write(LINES[2] + "\n")
        read = eventually("the last line", lines)
    return refusal, read, "with `errors.tolerance: all`, without what was refused; as it comes the task fails"


def mirror(folder, name, topic, **more):
    one = {key + "_replication_factor": 1 for key in (
        "checkpoints_topic", "heartbeats_topic", "offset-syncs_topic", "offset_storage", "status_storage", "config_storage")}
    return Java(folder, name, "org.apache.kafka.connect.mirror.MirrorMaker", properties(
        folder, name, clusters="a,b", a_bootstrap_servers=DIRECT, b_bootstrap_servers=BOOTSTRAP, a__b_enabled="true",
        b__a_enabled="false", a__b_topics=topic, replication_factor=1, sync_topic_acls_enabled="false",
        emit_heartbeats_enabled="false", emit_checkpoints_enabled="false", refresh_topics_interval_seconds=2, **one, **more))


def mirrormaker2(folder):
    # As it comes: the task fails. What was on its way behind the record is there, once more after each restart.
    produce(TOPIC, *LINES[:2])
    with mirror(folder, "stops", TOPIC) as java:
        refusal = eventually("its refusal", lambda: refusal_in(java.said()))
        produce(TOPIC, "next")
        eventually("it stops", lambda: "Unrecoverable exception from producer send callback" in java.said())
    # It goes on, in a topic of its own. Its last is longer than ten bytes: Java cannot take fewer out of a batch behind a large
    # record.
    through = TOPIC + "-all"
    create(through)
    produce(through, *LINES[:2], LINES[2].ljust(64))
    with mirror(folder, "goes-on", through, errors_tolerance="all"):
        read = eventually("the last", lambda: "last" in stored("a." + through) and stored("a." + through))
    # Its own limit, and where that is set.
    own = "large-" + TOPIC
    create(own, max_message_bytes=2_000_000)
    produce(own, b"y" * 1_200_000)
    with mirror(folder, "own", own) as java:
        eventually("its own refusal", lambda: "max.request.size" in java.said())
    with mirror(folder, "raised", own, b_producer_max_request_size=2_000_000):
        eventually("the large one", lambda: stored("a." + own))
    return refusal, read, "with `errors.tolerance = all`, without what was refused; as it comes the task fails"


with tempfile.TemporaryDirectory() as work:
    text, values, after = {"connect": connect, "mirrormaker2": mirrormaker2}[OPTIONS["client"]](work)
print(json.dumps({"refusal": text, "read": " ".join(value[:9] for value in values), "after": after}))
