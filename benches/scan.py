"""What `sizegate scan` takes beside reading the same topic: SIZEGATE BROKER FOLDER [key=value...].

gb=2 codecs=none,lz4 rounds=3 record=1000 partitions=4. For each codec a topic of so many GB as it is stored, in batches of some
64 KiB of JSON. Reading is the protocol's Fetch over one connection, 4 MiB at a time, as `scan` asks too, and nothing done with
what comes: the least that reading can be. Decompressing is the same loop, which also decompresses each batch into one buffer that
is there already (cramjam: libzstd, liblz4, zlib), on the one core that reads: what no consumer can do without. Rounds
are interleaved; a table of medians, peak memory included.
"""

import os
import random
import socket
import struct
import subprocess
import sys
import time

import cramjam
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

SIZEGATE, BROKER, FOLDER, *arguments = sys.argv[1:]
OPTIONS = {"gb": "2", "codecs": "none,lz4", "rounds": "3", "record": "1000", "partitions": "4",
           **dict(each.split("=", 1) for each in arguments)}
BYTES, PARTITIONS = int(float(OPTIONS["gb"]) * 1e9), int(OPTIONS["partitions"])
FETCH_BYTES = 4 << 20
# By the codec's number in a batch's attributes.
DECODERS = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}


def document(seed, size):
    """Lines that a codec shrinks to about a third."""
    rng, text = random.Random(seed), ""
    while len(text) < size:
        text += f'{{"id":{rng.randrange(10**9)},"note":"{rng.getrandbits(64):x}","status":"delivered","country":"PT"}}\n'
    return text[:size].encode()


class Reader:
    """Fetch version 4 and ListOffsets version 1, by hand."""

    def __init__(self, decompresses=False):
        self.decompresses = decompresses
        self.uncompressed = bytearray(4 << 20) if decompresses else None
        host, port = BROKER.split(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(FETCH_BYTES + (1 << 20))

    def ask(self, key, version, body):
        head = struct.pack(">hhih", key, version, 1, 4) + b"scan"
        self.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        size = struct.unpack(">i", self.take(4))[0]
        return self.take(size)

    def take(self, size):
        if size > len(self.buffer):
            self.buffer = bytearray(size)
        view = memoryview(self.buffer)[:size]
        done = 0
        while done < size:
            count = self.socket.recv_into(view[done:])
            assert count, "closed"
            done += count
        return view

    def offset(self, topic, partition, time_ms):
        name = topic.encode()
        body = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">iiq", 1, partition, time_ms)
        return struct.unpack(">q", self.ask(2, 1, body)[-8:])[0]

    def read(self, topic, partition):
        """Bytes of records."""
        name, offset, total = topic.encode(), self.offset(topic, partition, -2), 0
        end = self.offset(topic, partition, -1)
        while offset < end:
            body = struct.pack(">iiiibih", -1, 500, 1, FETCH_BYTES, 0, 1, len(name)) + name
            body += struct.pack(">iiqi", 1, partition, offset, FETCH_BYTES)
            view = self.ask(1, 4, body)
            at = 4 + 4 + 4 + 2 + len(name) + 4
            _, error, _, _, aborted = struct.unpack_from(">ihqqi", view, at)
            assert error == 0, error
            at += 26 + 16 * max(aborted, 0)
            size = struct.unpack_from(">i", view, at)[0]
            at += 4
            stop = at + size
            while at + 61 <= stop:
                base, length = struct.unpack_from(">qi", view, at)
                if at + 12 + length > stop:
                    break
                offset = base + struct.unpack_from(">i", view, at + 23)[0] + 1
                total += 12 + length
                if self.decompresses:
                    self.decompress(view, at, 12 + length)
                at += 12 + length
        return total

    def decompress(self, view, at, size):
        codec = view[at + 22] & 7
        if codec:
            count = DECODERS[codec].decompress_into(view[at + 61:at + size], self.uncompressed)
            assert count, "nothing in it"


def read(topic, decompresses=False):
    """Bytes, seconds, CPU seconds."""
    reader, began, cpu = Reader(decompresses), time.monotonic(), time.process_time()
    total = sum(reader.read(topic, partition) for partition in range(PARTITIONS))
    return total, time.monotonic() - began, time.process_time() - cpu


def fill(topic, codec):
    admin = AdminClient({"bootstrap.servers": BROKER})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": BROKER, "compression.type": codec, "linger.ms": 20, "batch.size": 65536,
                         "queue.buffering.max.kbytes": 65536})
    values = [document(seed, int(OPTIONS["record"])) for seed in range(997)]
    # How much there is on the broker's disk says when it is enough.
    number, folder = 0, os.path.join(FOLDER, "data")
    stored = lambda: sum(
        entry.stat().st_size for part in os.scandir(folder) if part.name.startswith(topic + "-")
        for entry in os.scandir(part) if entry.name.endswith(".log"))
    while number % 20_000 or stored() < BYTES:
        try:
            producer.produce(topic, values[number % 997], partition=number // 64 % PARTITIONS)
            number += 1
        except BufferError:
            producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return number


# A process starts with the peak of the one that started it: a small one does.
WEIGH = """
import os, subprocess, sys, time
began = time.monotonic()
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print(time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def scan(topic, config):
    """Seconds, CPU seconds, peak bytes of memory, what it prints."""
    command = [SIZEGATE, "scan", topic, "--config", config, "--output", "json"]
    ran = subprocess.run([sys.executable, "-IS", "-c", WEIGH, *command], capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran
    return *map(float, ran.stderr.splitlines()[-1].split()), ran.stdout


def median(values):
    return sorted(values)[len(values) // 2]


config = os.path.join(FOLDER, "scan.yaml")
with open(config, "w", encoding="utf-8") as out:
    out.write(f"cluster: {{bootstrap_servers: ['{BROKER}']}}\n"
              "rules: [{name: scanned, topics: ['scan-*'], limits: {record_bytes: 64KiB}}]\n")
print("| codec | GB stored | records | reading s | and decompressing s | scan s | scan / reading | scan / decompressing | CPU s reading | "
      "CPU s decompressing | CPU s scan | peak MiB |")
print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
for codec in OPTIONS["codecs"].split(","):
    topic = f"scan-{codec}"
    records = fill(topic, codec)
    rounds = []
    for _ in range(int(OPTIONS["rounds"])):
        total, reading, reading_cpu = read(topic)
        _, decoding, decoding_cpu = read(topic, decompresses=True)
        scanning, cpu, peak, text = scan(topic, config)
        assert f'"records": {records}' in text, f"{records} records: {text[:600]}"
        rounds.append((reading, decoding, scanning, scanning / reading, scanning / decoding, reading_cpu, decoding_cpu, cpu, peak))
    *times, to_reading, to_decoding, reading_cpu, decoding_cpu, cpu, _ = (median(each) for each in zip(*rounds))
    peak = max(each[-1] for each in rounds)
    print(f"| {codec} | {total / 1e9:.2f} | {records:,} | " + " | ".join(f"{each:.2f}" for each in times)
          + f" | {to_reading:.2f} | {to_decoding:.2f} | {reading_cpu:.2f} | {decoding_cpu:.2f} | {cpu:.2f} | {peak / 2**20:.0f} |",
          flush=True)
