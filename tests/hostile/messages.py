"""Messages of CQL in which one part after the other is at the ends of its range, and the rest is as it should be."""

import os
import random
import struct

from client import (
    BATCH, ERROR, EXECUTE, OPTIONS, PREPARE, QUERY, REGISTER, SERVER_ERROR, STARTUP, Closed, CqlError, frame, string, text,
)
from ports import check

SHORTS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF)
INTS = (0, 1, -1, -2, -3, 255, 65_536, 0x7FFFFFFF, -0x80000000)
LONGS = (0, 1, -1, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000)
# Flags of parameters: values, no metadata, page size, paging state, serial consistency, timestamp, names of values.
VALUES, PAGE_SIZE, PAGING_STATE, SERIAL, TIMESTAMP, NAMES = 0x01, 0x04, 0x08, 0x10, 0x20, 0x40


def short(value):
    return ("short", struct.pack(">H", value))


def integer(value):
    return ("int", struct.pack(">i", value))


def byte(value):
    return ("byte", bytes([value]))


def long(value):
    return ("long", struct.pack(">q", value))


def raw(value):
    return ("raw", value)


def value(data):
    """A [value], as its length and its bytes."""
    return [integer(-1 if data is None else len(data)), raw(data or b"")]


def parameters(flags, values=()):
    """Consistency level, flags and the fields that they announce."""
    parts = [short(1), byte(flags)]
    if flags & VALUES:
        parts.append(short(len(values)))
        for name, data in values:
            parts += ([raw(string(name))] if flags & NAMES else []) + value(data)
    parts += [integer(100)] if flags & PAGE_SIZE else []
    parts += value(b"\0\1\2\3") if flags & PAGING_STATE else []
    parts += [short(8)] if flags & SERIAL else []
    return parts + ([long(1_000)] if flags & TIMESTAMP else [])


def extremes(kind, data, draw):
    """Values that may stand in the place of a part."""
    if kind == "short":
        stood = struct.unpack(">H", data)[0]
        numbers = {*SHORTS, stood + 1 & 0xFFFF, stood - 1 & 0xFFFF}
        return [struct.pack(">H", number) for number in sorted(numbers)]
    if kind == "int":
        stood = struct.unpack(">i", data)[0]
        return [struct.pack(">i", number) for number in sorted({*INTS, stood + 1, stood - 1})]
    if kind == "long":
        return [struct.pack(">q", number) for number in LONGS]
    if kind == "byte":
        return [bytes([number]) for number in (0, 1, *(1 << bit for bit in range(1, 8)), 0x7F, 0xFF)]
    longer = draw.randbytes(len(data) + 3)
    return [b"", data[:-1], data + b"\0", b"\xff" * len(data), longer, b"\0" * 70_000]


def sound(identity):
    """Messages as they should be: opcode and parts."""
    key, number = struct.pack(">i", 1), struct.pack(">i", 2)
    named = (("k", key), ("v", number))
    both = parameters(VALUES | PAGE_SIZE | SERIAL | TIMESTAMP, (("", key), ("", number)))
    insert = "INSERT INTO ks.m (k, v) VALUES (?, ?)"
    yield QUERY, [raw(text(insert)), *both]
    yield QUERY, [raw(text("INSERT INTO ks.m (k, v) VALUES (:k, :v)")), *parameters(VALUES | NAMES | TIMESTAMP, named)]
    yield QUERY, [raw(text("SELECT k, v FROM ks.m")), *parameters(PAGE_SIZE | PAGING_STATE | SERIAL)]
    yield EXECUTE, [short(len(identity)), raw(identity), *both]
    yield EXECUTE, [short(len(identity)), raw(identity), *parameters(VALUES, (("", key), ("", None)))]
    yield PREPARE, [integer(len(insert)), raw(insert.encode())]
    batched = [byte(0), raw(text(insert)), short(2), *value(key), *value(number)]
    known = [byte(1), short(len(identity)), raw(identity), short(2), *value(key), *value(None)]
    for kind in (0, 1, 2):
        yield BATCH, [byte(kind), short(3), *batched, *known, *batched, short(1), byte(SERIAL | TIMESTAMP), short(8), long(1_000)]
    events = ("TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE")
    yield REGISTER, [short(len(events)), *(raw(string(event)) for event in events)]
    yield STARTUP, [short(2), *(raw(string(word)) for word in ("CQL_VERSION", "3.0.0", "COMPRESSION", "lz4"))]
    yield OPTIONS, [raw(b"")]


def changed(draw, identity, scale):
    """Every message with each of its parts changed, and some with two or three."""
    messages = list(sound(identity))
    for opcode, parts in messages:
        for at, (kind, data) in enumerate(parts):
            for other in extremes(kind, data, draw):
                yield opcode, b"".join(other if place == at else part for place, (_, part) in enumerate(parts))
    for _ in range(1_000 * scale):
        opcode, parts = draw.choice(messages)
        places = draw.sample(range(len(parts)), min(len(parts), draw.randrange(2, 4)))
        body = [draw.choice(extremes(*part, draw)) if at in places else part[1] for at, part in enumerate(parts)]
        yield opcode, b"".join(body)


def parts_of_messages(world):
    """Each part of each message at the ends of its range, before and after others: answered with a result or a clear error, or closed."""
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.m (k int PRIMARY KEY, v int)")
        identity = connection.prepare("INSERT INTO ks.m (k, v) VALUES (?, ?)")
    sent = refused = closed = 0
    connection = world.connect()
    for opcode, body in changed(draw, identity, world.scale):
        sent += 1
        try:
            connection.send(frame(opcode, body))
            answered, _, answer = connection.receive()
        except (Closed, OSError) as error:
            check(not isinstance(error, TimeoutError), f"opcode {opcode} with {body[:60]} is not answered")
            closed += 1
            connection.close()
            connection = world.connect()
            continue
        if answered == ERROR:
            refused += 1
            error = CqlError(answer)
            check(error.code != SERVER_ERROR, f"opcode {opcode} with {body[:60]} is answered with a ServerError: {error}")
        if opcode in (STARTUP, REGISTER) or sent % 200 == 0:
            # Compression and events would change the next messages.
            connection.close()
            connection = world.connect()
    connection.close()
    with world.connect() as connection:
        connection.query("SELECT k, v FROM ks.m")
        connection.query("DROP TABLE ks.m")
    return f"{sent} messages, {refused} refused, {closed} connections closed"


SCENARIOS = (("parts_of_messages", parts_of_messages),)
