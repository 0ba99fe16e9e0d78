"""A CQL client of version 4 that sends valid or invalid frames, and one that behaves and measures."""

import socket
import struct
import threading
import time

ERROR, STARTUP, READY, OPTIONS, SUPPORTED, QUERY, RESULT, PREPARE = 0x00, 0x01, 0x02, 0x05, 0x06, 0x07, 0x08, 0x09
HEADER = struct.Struct(">BBhBI")
PATIENCE = 30


class Closed(Exception):
    """The server has closed the connection."""


class CqlError(Exception):
    """The server's answer is an error."""


def frame(opcode, body, stream=1, version=4, length=None):
    """A message; `length` may lie."""
    return HEADER.pack(version, 0, stream, opcode, len(body) if length is None else length) + body


def text(value):
    """A [long string]."""
    data = value.encode()
    return struct.pack(">I", len(data)) + data


def query(statement, stream=1, consistency=1):
    """A QUERY message."""
    return frame(QUERY, text(statement) + struct.pack(">HB", consistency, 0), stream)


class Connection:
    """A connection, with or without its handshake."""

    def __init__(self, host, port=9042, source=None, start=True, patience=PATIENCE):
        self.socket = socket.create_connection((host, port), patience, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if start:
            self.send(frame(STARTUP, struct.pack(">H", 1) + struct.pack(">H", 11) + b"CQL_VERSION" + struct.pack(">H", 5) + b"3.0.0"))
            opcode, _, body = self.receive()
            if opcode != READY:
                raise CqlError(body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def exactly(self, count):
        parts = []
        while count:
            try:
                part = self.socket.recv(min(count, 1 << 16))
            except ConnectionError:
                part = b""
            if not part:
                raise Closed
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self):
        """Opcode, stream and body of the next message."""
        _, _, stream, opcode, length = HEADER.unpack(self.exactly(HEADER.size))
        return opcode, stream, self.exactly(length)

    def query(self, statement):
        """The body of the result; raises CqlError with the message."""
        self.send(query(statement))
        opcode, _, body = self.receive()
        if opcode == ERROR:
            length = struct.unpack(">H", body[4:6])[0]
            raise CqlError(body[6 : 6 + length].decode(errors="replace"))
        return body


def rows(body):
    """The cells of a Rows result, each row a tuple of bytes or None."""
    kind, flags, columns = struct.unpack(">iii", body[:12])
    if kind != 2:
        return []
    at = 12

    def string():
        nonlocal at
        length = struct.unpack(">H", body[at : at + 2])[0]
        at += 2 + length

    if flags & 2:
        at += 4 + struct.unpack(">i", body[at : at + 4])[0]
    if flags & 1:
        string(), string()
    for _ in range(columns):
        if not flags & 1:
            string(), string()
        string()
        kind = struct.unpack(">H", body[at : at + 2])[0]
        if kind >= 0x20 or kind == 0:
            raise ValueError("only simple types are read here")
        at += 2
    count = struct.unpack(">i", body[at : at + 4])[0]
    at += 4
    found = []
    for _ in range(count):
        cells = []
        for _ in range(columns):
            length = struct.unpack(">i", body[at : at + 4])[0]
            at += 4
            cells.append(None if length < 0 else body[at : at + length])
            at += max(length, 0)
        found.append(tuple(cells))
    return found


class Behaved:
    """A client that reads and writes a row again and again, and notes how long that takes and what fails."""

    def __init__(self, host, source):
        self.host, self.source = host, source
        self.took, self.failed = [], []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        connection, at = None, 0
        while not self.stopped.is_set():
            begun = time.monotonic()
            try:
                connection = connection or Connection(self.host, source=self.source)
                at += 1
                connection.query(f"INSERT INTO good.t (k, v) VALUES (1, {at})")
                found = rows(connection.query("SELECT v FROM good.t WHERE k = 1"))
                if found != [(struct.pack(">i", at),)]:
                    self.failed.append(f"wrote {at}, read {found}")
                self.took.append(time.monotonic() - begun)
            except (OSError, Closed, CqlError) as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                if connection:
                    connection.close()
                connection = None
            self.stopped.wait(0.02)
        if connection:
            connection.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join(PATIENCE)

    def p99(self):
        """Seconds."""
        ordered = sorted(self.took)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")
