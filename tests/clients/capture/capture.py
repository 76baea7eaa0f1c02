"""Stores what a client writes into the `records` field of Produce, and describes it for tests/data/batches/index.json.

    capture.py OUT CLIENT VERSION COMMAND...     (README.md beside it: how each client was run)

A broker of one topic, `capture`, with one partition, listens on 127.0.0.1 and keeps nothing. COMMAND is run once for
each payload and codec, with bootstrap= topic= codec= records=FILE added (FILE: a line for each record, its key, a
space, its value in base64), and must send them in one batch. OUT gets CLIENT-CODEC-PAYLOAD.bin, and a line of JSON for
each is printed. The sizes come from decoders that share nothing with sizegate: zlib of Python, and cramjam
(`pip install cramjam`) for snappy, lz4 and zstd.
"""

import base64
import hashlib
import json
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import zlib

TOPIC = "capture"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
# The newest versions before compact encoding, which saves the broker half of its code; `records` is the same in all.
OFFERED = [(PRODUCE, 3, 8), (METADATA, 0, 8), (API_VERSIONS, 0, 3)]
UNSUPPORTED_VERSION = 35
XERIAL = b"\x82SNAPPY\x00"


def text(record, size):
    """Lines of JSON, cut at `size` bytes."""
    lines, numbers = b"", random.Random(record)
    n = 0
    while len(lines) < size:
        line = {"id": record, "n": n, "name": f"name-{numbers.randrange(1000)}", "note": "the quick brown fox"}
        lines += json.dumps(line, separators=(",", ":")).encode() + b"\n"
        n += 1
    return lines[:size]


PAYLOADS = {
    "five-json-300": [text(i, 300) for i in range(5)],
    "five-json-70000": [text(i, 70000 if i == 2 else 50) for i in range(5)],
    "one-json-300000": [text(0, 300000)],
    "one-random-9000": [random.Random(9000).randbytes(9000)],
}


def says_something(codec, payload):
    """Uncompressed, large batches say no more than small ones; 300 KB are for codecs that work in large blocks."""
    if codec == "none":
        return payload == "five-json-300"
    return payload != "one-json-300000" or codec in ("lz4", "zstd")


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        piece = self.data[self.at : self.at + count]
        assert len(piece) == count, "cut short"
        self.at += count
        return piece

    def int(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def string(self):
        length = self.int("h")
        return None if length < 0 else self.take(length)

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)


def string(value):
    return struct.pack(">h", len(value)) + value.encode()


def api_versions(version):
    if version > 3:
        # As brokers do: said in version 0, which every client reads.
        version, error = 0, UNSUPPORTED_VERSION
    else:
        error = 0
    body = struct.pack(">h", error)
    if version < 3:
        body += struct.pack(">i", len(OFFERED)) + b"".join(struct.pack(">hhh", *api) for api in OFFERED)
        return body + (struct.pack(">i", 0) if version >= 1 else b"")
    apis = b"".join(struct.pack(">hhh", *api) + b"\0" for api in OFFERED)
    return body + bytes([len(OFFERED) + 1]) + apis + struct.pack(">i", 0) + b"\0"


def metadata(version, port):
    body = struct.pack(">i", 0) if version >= 3 else b""
    body += struct.pack(">ii", 1, 0) + string("127.0.0.1") + struct.pack(">i", port)
    if version >= 1:
        body += struct.pack(">h", -1)  # rack
    if version >= 2:
        body += string("capture")  # cluster id
    if version >= 1:
        body += struct.pack(">i", 0)  # controller
    body += struct.pack(">ih", 1, 0) + string(TOPIC)
    if version >= 1:
        body += b"\0"  # not internal
    body += struct.pack(">ihii", 1, 0, 0, 0)  # one partition, no error, partition 0, leader 0
    if version >= 7:
        body += struct.pack(">i", 0)  # leader epoch
    body += struct.pack(">iiii", 1, 0, 1, 0)  # replicas, in-sync replicas
    if version >= 5:
        body += struct.pack(">i", 0)  # offline replicas
    if version >= 8:
        body += struct.pack(">ii", -(2**31), -(2**31))  # authorized operations: not asked for
    return body


def records_of(request):
    """The `records` of every partition of a Produce request of version 3 to 8."""
    request.string()  # transactional id
    request.take(2 + 4)  # acks, timeout
    found = []
    for _ in range(request.int("i")):
        assert request.string() == TOPIC.encode()
        for _ in range(request.int("i")):
            assert request.int("i") == 0
            found.append(request.take(request.int("i")))
    return found


def produced(version):
    body = struct.pack(">i", 1) + string(TOPIC) + struct.pack(">iihqq", 1, 0, 0, 0, -1)
    if version >= 5:
        body += struct.pack(">q", 0)  # log start offset
    if version >= 8:
        body += struct.pack(">ih", 0, -1)  # record errors, error message
    return body + struct.pack(">i", 0)


class Broker:
    def __init__(self):
        self.sent = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = Reader(stream.read(struct.unpack(">i", size)[0]))
                api, version, correlation = request.int("h"), request.int("h"), request.take(4)
                if api == API_VERSIONS:
                    answer = api_versions(version)
                elif api == METADATA and version <= 8:
                    answer = metadata(version, self.port)
                elif api == PRODUCE and 3 <= version <= 8:
                    request.string()  # client id
                    self.sent += [(version, records) for records in records_of(request)]
                    answer = produced(version)
                else:
                    print(f"not offered: api {api} version {version}", file=sys.stderr)
                    return
                connection.sendall(struct.pack(">i", len(answer) + 4) + correlation + answer)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def decompress(codec, data):
    """The records, and facts of how the client compressed them."""
    if codec == "none":
        return data, {}
    if codec == "gzip":
        out, members = b"", 0
        while data:
            member = zlib.decompressobj(31)
            out += member.decompress(data) + member.flush()
            assert member.eof
            data, members = member.unused_data, members + 1
        return out, {"members": members}
    import cramjam

    if codec == "snappy":
        if not data.startswith(XERIAL):
            return bytes(cramjam.snappy.decompress_raw(data)), {"snappy": "raw"}
        chunks, out = Reader(data), b""
        chunks.take(16)
        while chunks.at < len(data):
            out += bytes(cramjam.snappy.decompress_raw(chunks.take(chunks.int("i"))))
        return out, {"snappy": "xerial"}
    if codec == "lz4":
        flags, block = data[4], data[5]
        return bytes(cramjam.lz4.decompress(data)), {
            "lz4": {
                "independent": bool(flags & 32),
                "block_checksum": bool(flags & 16),
                "content_size": bool(flags & 8),
                "content_checksum": bool(flags & 4),
                "block_max": 1 << 8 + 2 * (block >> 4 & 7),
            }
        }
    return bytes(cramjam.zstd.decompress(data)), {"zstd": zstd_facts(data)}


def zstd_facts(data):
    """What the header of the first frame says (RFC 8878, 3.1.1.1)."""
    descriptor = data[4]
    single, dictionary = bool(descriptor & 32), [0, 1, 2, 4][descriptor & 3]
    at, window = 5, None
    if not single:
        base = 1 << 10 + (data[at] >> 3)
        window, at = base + base // 8 * (data[at] & 7), at + 1
    at += dictionary
    width = [1 if single else 0, 2, 4, 8][descriptor >> 6]
    size = int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0) if width else None
    return {
        "content_size": size,
        "window": size if single else window,
        "checksum": bool(descriptor & 4),
        "single_segment": single,
    }


def sizes_of(records):
    """[record, key, value, headers] bytes of each."""
    reader, sizes = Reader(records), []
    while reader.at < len(records):
        start = reader.at
        length = reader.varint()
        end = reader.at + length
        reader.take(1)  # attributes
        reader.varint()  # timestamp delta
        assert reader.varint() == len(sizes)  # offset delta
        pair = []
        for _ in range(2):
            pair.append(reader.varint())
            reader.take(max(pair[-1], 0))
        assert reader.varint() == 0, "headers were not asked for"
        assert reader.at == end
        sizes.append([end - start, *pair, 0])
    return sizes


def describe(batch):
    assert struct.unpack_from(">i", batch, 8)[0] == len(batch) - 12 and batch[16] == 2, "not one batch of version 2"
    (crc, attributes, last, _, _, producer, epoch, sequence, count) = struct.unpack_from(">IhiqqqhiI", batch, 17)
    codec = CODECS[attributes & 7]
    records, facts = decompress(codec, batch[61:])
    sizes = sizes_of(records)
    assert crc == crc32c(batch[21:]) and count == len(sizes)
    columns = ["record_bytes", "key_bytes", "value_bytes", "headers_bytes"]
    return {
        "sha256": hashlib.sha256(batch).hexdigest(),
        "wire_bytes": len(batch),
        "uncompressed_bytes": 61 + len(records),
        "codec": codec,
        "attributes": attributes,
        "records": count,
        **{name: [each[i] for each in sizes] for i, name in enumerate(columns)},
        "last_offset_delta": last,
        "producer_id": producer,
        "producer_epoch": epoch,
        "base_sequence": sequence,
        "facts": {"crc_ok": True, **facts},
    }


def main(out, client, version, *command):
    broker = Broker()
    with tempfile.TemporaryDirectory() as folder:
        for codec in CODECS:
            for payload, values in PAYLOADS.items():
                if not says_something(codec, payload):
                    continue
                lines = pathlib.Path(folder, payload)
                lines.write_text("".join(f"k-{i} {base64.b64encode(v).decode()}\n" for i, v in enumerate(values)))
                broker.sent.clear()
                options = [f"bootstrap=127.0.0.1:{broker.port}", f"topic={TOPIC}", f"codec={codec}", f"records={lines}"]
                subprocess.run([*command, *options], check=True, timeout=60)
                [(produce_version, batch)] = broker.sent
                name = f"{client}-{codec}-{payload}.bin"
                pathlib.Path(out, name).write_bytes(batch)
                entry = {"file": name, "client": client, "version": version, "asked_codec": codec}
                entry |= {"payload": payload, "produce_version": produce_version, **describe(batch)}
                assert entry["value_bytes"] == [len(value) for value in values]
                print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
