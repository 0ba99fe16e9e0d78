"""A CQL client of version 4 that sends valid or invalid frames, and clients that behave and measure."""

import http.client
import json
import socket
import struct
import threading
import time

ERROR, STARTUP, READY, AUTHENTICATE, OPTIONS, SUPPORTED, QUERY, RESULT = 0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08
PREPARE, EXECUTE, REGISTER, BATCH, AUTH_RESPONSE, AUTH_SUCCESS = 0x09, 0x0A, 0x0B, 0x0D, 0x0F, 0x10
# Codes of errors.
SERVER_ERROR, BAD_CREDENTIALS, UNAUTHORIZED = 0x0000, 0x0100, 0x2100
HEADER = struct.Struct(">BBhBI")
PATIENCE = 30


class Closed(Exception):
    """The server has closed the connection."""


class CqlError(Exception):
    """The server's answer is an error."""

    def __init__(self, body):
        length = struct.unpack(">H", body[4:6])[0]
        super().__init__(body[6 : 6 + length].decode(errors="replace"))
        self.code = struct.unpack(">I", body[:4])[0]


def frame(opcode, body, stream=1, version=4, length=None):
    """A message; `length` may lie."""
    return HEADER.pack(version, 0, stream, opcode, len(body) if length is None else length) + body


def text(value):
    """A [long string]."""
    data = value.encode()
    return struct.pack(">I", len(data)) + data


def string(value):
    """A [string]."""
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">H", len(data)) + data


def plain(user, password):
    """The token of SASL PLAIN."""
    return b"\0" + user.encode() + b"\0" + password.encode()


def token(data):
    """An AUTH_RESPONSE message."""
    return frame(AUTH_RESPONSE, struct.pack(">I", len(data)) + data)


STARTUP_MESSAGE = frame(STARTUP, struct.pack(">H", 1) + string("CQL_VERSION") + string("3.0.0"))


def query(statement, stream=1, consistency=1):
    """A QUERY message."""
    return frame(QUERY, text(statement) + struct.pack(">HB", consistency, 0), stream)


class Connection:
    """A connection, with or without its handshake; encrypted when there is a context for that."""

    def __init__(self, host, port=9042, source=None, start=True, patience=PATIENCE, tls=None, login=None):
        self.socket = socket.create_connection((host, port), patience, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        if start:
            self.start(login)

    def start(self, login):
        """STARTUP, and the user and password if the server asks for them."""
        self.send(STARTUP_MESSAGE)
        opcode, _, body = self.receive()
        if opcode == AUTHENTICATE and login:
            self.send(token(plain(*login)))
            opcode, _, body = self.receive()
        if opcode not in (READY, AUTH_SUCCESS):
            self.close()
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

    def ask(self, message):
        """The body of the answer; raises CqlError."""
        self.send(message)
        opcode, _, body = self.receive()
        if opcode == ERROR:
            raise CqlError(body)
        return body

    def query(self, statement):
        """The body of the result; raises CqlError."""
        return self.ask(query(statement))

    def prepare(self, statement):
        """The id of the prepared statement."""
        body = self.ask(frame(PREPARE, text(statement)))
        return body[6 : 6 + struct.unpack(">H", body[4:6])[0]]


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


class CqlClient:
    """Writes a row and reads it again over CQL."""

    name = "CQL"

    def __init__(self, connect, key=1):
        self.connection, self.key = connect(), key

    def once(self, at):
        """The value read instead of the written one, or nothing."""
        self.connection.query(f"INSERT INTO good.t (k, v) VALUES ({self.key}, {at})")
        found = rows(self.connection.query(f"SELECT v FROM good.t WHERE k = {self.key}"))
        return None if found == [(struct.pack(">i", at),)] else found

    def close(self):
        self.connection.close()


class LoginClient:
    """The same with a connection and a login of its own each time."""

    name = "logins"

    def __init__(self, connect):
        self.connect = connect

    def once(self, at):
        # Another row than that of a client beside it.
        client = CqlClient(self.connect, 3)
        try:
            return client.once(at)
        finally:
            client.close()

    def close(self):
        pass


class ApiClient:
    """Writes an item and reads it again over the DynamoDB API."""

    name = "DynamoDB"

    def __init__(self, connection):
        self.connection = connection

    def call(self, operation, request):
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0"}
        self.connection.request("POST", "/", json.dumps(request).encode(), headers)
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"{operation} is answered with {response.status}: {body[:200]}")
        return json.loads(body)

    def make_table(self):
        self.call("CreateTable", {
            "TableName": "good", "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST",
        })  # fmt: skip

    def once(self, at):
        item = {"p": {"S": "a"}, "v": {"N": str(at)}}
        self.call("PutItem", {"TableName": "good", "Item": item})
        key = {"TableName": "good", "Key": {"p": {"S": "a"}}, "ConsistentRead": True}
        found = self.call("GetItem", key).get("Item")
        return None if found == item else found

    def close(self):
        self.connection.close()


class Behaved:
    """A client that does its work again and again, and notes the time that takes and the failures; `make` connects it."""

    def __init__(self, make):
        self.make, self.name = make, ""
        self.took, self.failed = [], []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        client, at = None, 0
        while not self.stopped.is_set():
            begun = time.monotonic()
            try:
                client = client or self.make()
                self.name = client.name
                at += 1
                wrong = client.once(at)
                if wrong is not None:
                    self.failed.append(f"wrote {at}, read {wrong}")
                self.took.append(time.monotonic() - begun)
            except (OSError, Closed, CqlError, http.client.HTTPException) as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                if client:
                    client.close()
                client = None
            self.stopped.wait(0.02)
        if client:
            client.close()

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
