"""Samples as Prometheus' remote write takes them: a protobuf message, as Snappy without compression.

The messages (version 1 of the protocol): WriteRequest {1: TimeSeries}, TimeSeries {1: Label, 2: Sample},
Label {1: name, 2: value}, Sample {1: double value, 2: int64 time in milliseconds}.
"""

import struct

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
#: A literal of Snappy that has its length in two bytes.
LITERAL_MAX = 1 << 16


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, body):
    """A field that has a length: text, or a message."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def labels(named):
    """The labels of one series, in the order that the protocol wants."""
    return b"".join(
        field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in sorted(named.items())
    )


def sample(value, time_ms):
    return field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time_ms))


def series(its_labels, samples):
    """One TimeSeries of a request: labels as `labels` renders them, samples as `sample` does."""
    return field(1, its_labels + b"".join(samples))


def body(message):
    """The body of a request: the message in literals of Snappy."""
    parts = [varint(len(message))]
    for at in range(0, len(message), LITERAL_MAX):
        part = message[at : at + LITERAL_MAX]
        parts += [bytes([61 << 2]), struct.pack("<H", len(part) - 1), part]
    return b"".join(parts)
