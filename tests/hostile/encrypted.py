"""Ports with TLS: bytes that are no handshake, half of one, or no record after it; for CQL, nodes and the DynamoDB API."""

import os
import random
import resource
import socket
import ssl
import time

from client import Closed, Connection, query
from ports import INTERNODE, MAGIC, check, hello
from world import API_TLS, CQL_TLS

PORTS = (CQL_TLS, INTERNODE, API_TLS)
SECONDS = 20
# By then every port has given up a handshake that does not go on.
HANDSHAKE_MAX = 15
ALERT, HANDSHAKE, DATA = 21, 22, 23


def context(world):
    """One that knows the node's authority; nodes show their certificates for nobody's name."""
    made = ssl.create_default_context(cafile=os.path.join(world.folder, "authority.pem"))
    made.check_hostname = False
    return made


class Handshake:
    """The client's side of TLS over memory, so that each record can be changed before it is sent."""

    def __init__(self, world):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context(world).wrap_bio(self.incoming, self.outgoing)

    def hello(self):
        """The bytes of a ClientHello."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def finish(self, peer):
        """The rest of the handshake over a connection."""
        peer.sendall(self.hello())
        while True:
            part = peer.recv(65_536)
            check(part, "a handshake is not finished")
            self.incoming.write(part)
            try:
                self.tls.do_handshake()
                peer.sendall(self.outgoing.read())
                return
            except ssl.SSLWantReadError:
                peer.sendall(self.outgoing.read())

    def record(self, data):
        """A record that holds the data."""
        self.tls.write(data)
        return self.outgoing.read()


def record(kind, data, length=None):
    """A record without encryption; its length may lie."""
    return bytes([kind, 3, 3]) + (len(data) if length is None else length).to_bytes(2, "big") + data


def ended(world, port, data, what):
    """The port answers or closes once the client has sent this and nothing more."""
    with socket.create_connection((world.host, port), SECONDS) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65_536):
                pass
        except TimeoutError:
            check(False, f"port {port} neither answers nor closes after {what}")
        except OSError:
            pass


def served(world):
    """Each port does a whole handshake and answers."""
    for port in PORTS:
        with socket.create_connection((world.host, port), SECONDS) as peer:
            handshake = Handshake(world)
            handshake.finish(peer)
            if port == INTERNODE:
                peer.sendall(handshake.record(hello(b"another cluster")))
                handshake.incoming.write(peer.recv(65_536))
                # Tickets come before data.
                while True:
                    try:
                        check(handshake.tls.read(8) == MAGIC, "a node of another cluster gets no answer")
                        break
                    except ssl.SSLWantReadError:
                        handshake.incoming.write(peer.recv(65_536))


def no_handshakes(world):
    """Bytes that are no ClientHello, and ClientHellos with bytes changed or cut off."""
    draw, sound = random.Random(int(os.environ.get("FUZZ_SEED", "11"))), Handshake(world).hello()
    for port in PORTS:
        for what, data in (
            ("nothing", b""), ("a byte", b"\x16"), ("noise", draw.randbytes(5_000)), ("zeros", bytes(70_000)), ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("CQL", query("SELECT * FROM good.t")), ("a node's hello", hello(b"hostile")), ("an empty record", record(HANDSHAKE, b"")),
            ("empty records", record(HANDSHAKE, b"") * 50_000), ("a record that lies", record(HANDSHAKE, b"\1" * 50, 0xFFFF)),
            ("the longest record", record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(0xFFFB))), ("a message of 16 MiB", record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(16_000)) * 60),
            ("alerts", record(ALERT, b"\1\0") * 50_000), ("data first", record(DATA, b"x" * 100)), ("SSL 2", b"\x80\x2e\1\0\2\0\x15\0\0\0\x10" + bytes(30)),
            ("one byte a record", b"".join(record(HANDSHAKE, sound[at : at + 1]) for at in range(5, len(sound)))), ("two hellos", sound * 2),
        ):  # fmt: skip
            ended(world, port, data, what)
        for at in range(60 * world.scale):
            changed = bytearray(sound)
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            ended(world, port, bytes(changed[: draw.randrange(len(changed))] if at % 3 == 0 else changed), "a changed ClientHello")
    served(world)


def half_handshakes(world):
    """450 connections with half a ClientHello, and those that stop after it, keep no newcomer out, and are closed after a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_000 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    sound, many, worst, begun = Handshake(world).hello(), [], 0, time.monotonic()
    try:
        for port in PORTS:
            for at in range(150):
                peer = socket.create_connection((world.host, port), SECONDS)
                peer.sendall((b"", sound[:3], sound[: len(sound) // 2], sound)[at % 4])
                many.append(peer)
        for _ in range(5):
            asked = time.monotonic()
            served(world)
            worst = max(worst, time.monotonic() - asked)
        while time.monotonic() < begun + HANDSHAKE_MAX:
            many = [peer for peer in many if not is_closed(peer)]
            if not many:
                break
            time.sleep(0.2)
        check(not many, f"{len(many)} connections that do not end their handshake are open after {HANDSHAKE_MAX} s")
    finally:
        for peer in many:
            peer.close()
    return f"newcomers waited {worst:.2f} s at most, all were closed after {time.monotonic() - begun:.0f} s"


def is_closed(peer):
    """Whether the other side has closed a connection; then it is closed here, too."""
    peer.settimeout(0)
    try:
        while peer.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    peer.close()
    return True


def broken_records(world):
    """After a good handshake records that are cut off, changed or empty, and plain text; then silence."""
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    silent = []
    for port in PORTS:
        for at in range(30 * world.scale):
            peer = socket.create_connection((world.host, port), SECONDS)
            handshake = Handshake(world)
            handshake.finish(peer)
            data = handshake.record(query("SELECT v FROM good.t WHERE k = 1") if port == CQL_TLS else draw.randbytes(draw.randrange(1, 16_000)))
            changed = bytearray(data)
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            data = (
                data[: draw.randrange(len(data))], bytes(changed), record(DATA, b"") * 1_000, record(DATA, bytes(100), 0xFFFF), record(HANDSHAKE, bytes(50)),
                query("SELECT v FROM good.t"), record(20, b"\1") * 5_000, data * 3, b"",
            )[at % 9]  # fmt: skip
            try:
                peer.sendall(data)
            except ConnectionError:
                peer.close()
                continue
            if at % 2:
                silent.append(peer)
            else:
                peer.close()
    served(world)
    for peer in silent:
        peer.close()
    return f"{len(silent)} of them stayed silent"


def encrypted_never_read(world):
    """Clients that ask for megabytes over TLS and read nothing cost a bounded part of the memory."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.big (k int PRIMARY KEY, b blob)")
        for key in range(4):
            connection.query(f"INSERT INTO ks.big (k, b) VALUES ({key}, 0x{'ab' * 1_000_000})")
    before, deaf = world.rss(), []
    requests = b"".join(query(f"SELECT b FROM ks.big WHERE k = {at % 4}", at) for at in range(500))
    for _ in range(20):
        connection = Connection(world.host, CQL_TLS, tls=context(world))
        deaf.append(connection)
        connection.socket.settimeout(0.05)
        try:
            while True:
                connection.send(requests)
        except (OSError, Closed):
            pass
    time.sleep(1)
    for connection in deaf:
        connection.close()
    return f"{max(0, world.rss_most - before) >> 20} MiB more than before"


SCENARIOS = (
    ("no_handshakes", no_handshakes),
    ("half_handshakes", half_handshakes),
    ("broken_records", broken_records),
    ("encrypted_never_read", encrypted_never_read),
)
