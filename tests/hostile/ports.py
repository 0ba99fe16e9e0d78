"""Connections that are silent, slow, greedy, or speak nonsense, on every port."""

import os
import random
import resource
import socket
import struct
import threading
import time
import zlib

from client import QUERY, CqlError, Closed, Connection, frame, query, text
from environment import Failure
from node import Torc

CQL, INTERNODE, REST, METRICS, API = 9042, 7000, 10000, 9180, 8000
# The begin of a hello.
MAGIC = b"\xf5TorcRPC"


def check(holds, why):
    if not holds:
        raise Failure(why)


def http(world, port, method, path, *headers, seconds=10):
    """The status of an HTTP request, 0 when the port closes instead."""
    lines = [f"{method} {path} HTTP/1.1", *headers, "Connection: close", "Content-Length: 0", "", ""]
    try:
        with socket.create_connection((world.host, port), seconds) as peer:
            peer.settimeout(seconds)
            peer.sendall("\r\n".join(lines).encode())
            answer = peer.recv(65536)
            while b"\r\n" not in answer and answer:
                answer += peer.recv(65536)
    except ConnectionError:
        return 0
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def web_pages(world):
    """A web page cannot administrate the node, and the metrics port cannot at all."""
    own = f"Host: {world.host}"
    stop = "/storage_service/stop_daemon"
    for headers in ["Host: evil.example:9180", "Origin: http://evil.example"], [own]:
        status = http(world, METRICS, "POST", stop, *headers)
        check(status in (400, 403, 404), f"the metrics port answered {stop} with {status}")
    for headers in (
        ["Host: evil.example"],
        [own, "Origin: http://evil.example"],
        [own, "Origin: null"],
        [own, "Sec-Fetch-Site: cross-site"],
        [own, own],
    ):
        status = http(world, REST, "POST", stop, *headers)
        check(status in (400, 403), f"{stop} with {headers} was answered with {status}")
    check(http(world, REST, "GET", "/storage_service/host_id", own) == 200, "administration does not answer")
    check(http(world, METRICS, "GET", "/metrics", own) == 200, "metrics do not answer")


def slow_headers(world):
    """300 connections that send a header byte now and then close no HTTP port to others."""
    many = [socket.create_connection((world.host, port), 10) for port in (REST, METRICS, API) for _ in range(300)]
    try:
        own, worst = f"Host: {world.host}", 0
        for byte in b"GET /x":
            for peer in many:
                try:
                    peer.send(bytes([byte]))
                except OSError:
                    pass
            for port, path in ((REST, "/storage_service/host_id"), (METRICS, "/metrics"), (API, "/healthz")):
                begun = time.monotonic()
                check(http(world, port, "GET", path, own) == 200, f"port {port} is closed to others")
                worst = max(worst, time.monotonic() - begun)
            time.sleep(0.2)
    finally:
        for peer in many:
            peer.close()
    return f"others waited {worst:.2f} s at most"


def hello(cluster):
    """The first message of a node to another (docs/design/rpc.md)."""
    fields = struct.pack(">HH16sHHHBBB", 1, 1, b"H" * 16, 1, 0, 0, 1, 0, len(cluster)) + cluster
    head = MAGIC + struct.pack(">H", len(fields) + 4) + fields
    return head + struct.pack(">I", zlib.crc32(head))


def silent_internode(world):
    """1,100 connections that say no hello do not keep others from being heard."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_000 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    many = [socket.create_connection((world.host, INTERNODE), 10) for _ in range(1_100)]
    try:
        worst = 0
        for _ in range(10):
            begun = time.monotonic()
            with socket.create_connection((world.host, INTERNODE), 10) as peer:
                peer.settimeout(10)
                # A hello of another cluster is refused with an answer; an ignored peer gets none.
                peer.sendall(hello(b"another cluster"))
                try:
                    check(peer.recv(8) == MAGIC, "a newcomer is not heard beside silent connections")
                except OSError as error:
                    raise Failure(f"a newcomer is not heard beside silent connections: {error}") from None
            worst = max(worst, time.monotonic() - begun)
    finally:
        for peer in many:
            peer.close()
    return f"newcomers were heard within {worst:.2f} s"


def bodies(draw):
    """Bodies of messages: empty, cut, with lengths that lie, random."""
    yield b""
    yield b"\0"
    yield text("SELECT v FROM good.t WHERE k = 1")
    yield text("SELECT v FROM good.t WHERE k = 1") + b"\0\1\xff"
    yield struct.pack(">I", 0xFFFFFFFF) + b"x" * 20
    yield struct.pack(">I", 0x7FFFFFFF) + b"x" * 20
    yield struct.pack(">H", 0xFFFF) + b"x" * 20
    yield struct.pack(">HI", 0xFFFF, 0x7FFFFFFF) * 20
    yield text("SELECT v FROM good.t WHERE k = ?") + struct.pack(">HBHi", 1, 1, 0xFFFF, -5)
    yield b"\0" + struct.pack(">H", 0xFFFF) + b"\0" * 50
    for _ in range(6):
        yield draw.randbytes(draw.randrange(1, 2_000))


def opcodes(world):
    """Every opcode of every version with every body is answered or ends the connection, before and after the handshake."""
    draw, sent, closed = random.Random(7), 0, 0
    for started in False, True:
        for opcode in range(0x13):
            connection = None
            for body in bodies(draw):
                for length in (None, len(body) + 5, 0x7FFFFFFF)[: 3 if body == b"" else 1]:
                    connection = connection or world.connect(start=started)
                    sent += 1
                    try:
                        connection.send(frame(opcode, body, length=length))
                        if length is not None:
                            connection.socket.shutdown(socket.SHUT_WR)
                        connection.receive()
                    except (Closed, OSError) as error:
                        check(not isinstance(error, TimeoutError), f"opcode {opcode} with {body[:40]} is not answered")
                        closed += 1
                        connection.close()
                        connection = None
            if connection:
                connection.close()
    for version in (0, 1, 2, 3, 5, 6, 0x42, 0x84, 0xFF):
        with world.connect(start=False) as connection:
            try:
                connection.send(frame(QUERY, b"x" * 100, version=version) * 3)
                connection.socket.shutdown(socket.SHUT_WR)
                connection.receive()
            except (Closed, OSError) as error:
                check(not isinstance(error, TimeoutError), f"version {version} is not answered")
    for _ in range(40):
        with world.connect(start=draw.random() < 0.5) as connection:
            try:
                connection.send(draw.randbytes(draw.randrange(1, 5_000)))
                connection.socket.shutdown(socket.SHUT_WR)
                while True:
                    connection.receive()
            except (Closed, OSError) as error:
                check(not isinstance(error, TimeoutError), "noise is not answered")
    return f"{sent} messages, {closed} connections closed"


def never_read(world):
    """Clients that ask for megabytes and read nothing cost a bounded part of the memory."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.big (k int PRIMARY KEY, b blob)")
        for key in range(8):
            connection.query(f"INSERT INTO ks.big (k, b) VALUES ({key}, 0x{'ab' * 1_000_000})")
    before = world.rss()
    deaf, stop = [], time.monotonic() + 5

    def ask(connection):
        requests = b"".join(query(f"SELECT b FROM ks.big WHERE k = {at % 8}", at) for at in range(1_000))
        connection.socket.settimeout(1)
        try:
            while time.monotonic() < stop:
                connection.send(requests)
        except OSError:
            pass

    threads = []
    for _ in range(30):
        connection = world.connect()
        deaf.append(connection)
        threads.append(threading.Thread(target=ask, args=(connection,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for connection in deaf:
        connection.close()
    return f"{max(0, world.rss_most - before) >> 20} MiB more than before"


def promised(world):
    """Long messages that are promised and do not come keep no core busy and no other client waiting."""
    many = []
    try:
        for at in range(200):
            connection = world.connect()
            connection.send(frame(QUERY, b"\0" * (100 if at % 2 else 40_000), length=15_000_000))
            many.append(connection)
        time.sleep(0.5)
        used, begun, worst = world.cpu_seconds(), time.monotonic(), 0
        with world.connect() as sibling:
            while time.monotonic() < begun + 3:
                asked = time.monotonic()
                sibling.query("SELECT v FROM good.t WHERE k = 1")
                worst = max(worst, time.monotonic() - asked)
                time.sleep(0.05)
        share = (world.cpu_seconds() - used) / (time.monotonic() - begun)
        check(worst < 3, f"a sibling waited {worst:.1f} s")
        check(share < 0.6, f"the node used {share:.0%} of a core while nothing happened")
    finally:
        for connection in many:
            connection.close()
    return f"{share:.0%} of a core, a sibling waited {worst:.2f} s at most"


def few_descriptors(world):
    """A node with 256 descriptors and 400 connections keeps serving: it refuses connections, not writes."""
    host = world.address(int(world.host.rsplit(".", 1)[1]) + 2)
    folder = os.path.join(world.folder, "few")
    os.makedirs(folder)
    node = Torc(world.torc, folder, host, 2, ("--memory_size", "512MiB", "--commitlog_segment_size", "8MiB"))
    node.command = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *node.command]
    many, refused = [], 0
    try:
        node.start()
        with Connection(host) as connection:
            connection.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            connection.query("CREATE TABLE ks.t (k int PRIMARY KEY, v int)")
            for _ in range(400):
                many.append(socket.create_connection((host, CQL), 10))
            for at in range(50):
                connection.query(f"INSERT INTO ks.t (k, v) VALUES ({at}, {at})")
            world_rest = type("Rest", (), {"host": host})
            status = http(world_rest, REST, "POST", "/storage_service/keyspace_flush/ks", f"Host: {host}")
            check(status == 200, f"a flush was answered with {status}")
            for at in range(50, 100):
                connection.query(f"INSERT INTO ks.t (k, v) VALUES ({at}, {at})")
        for peer in many:
            peer.settimeout(0.01)
            try:
                refused += peer.recv(1) == b""
            except ConnectionError:
                refused += 1
            except TimeoutError:
                pass
            peer.close()
        many = []
        deadline = time.monotonic() + 10
        while True:
            try:
                with Connection(host) as connection:
                    connection.query("INSERT INTO ks.t (k, v) VALUES (100, 100)")
                break
            except (OSError, Closed, CqlError) as error:
                check(time.monotonic() < deadline, f"the node does not recover: {error}")
                time.sleep(0.1)
        check(node.stop() == 0, "the node did not stop in order")
        world.check_log(node.log)
    finally:
        for peer in many:
            peer.close()
        node.kill()
    return f"{refused} of 400 refused"


SCENARIOS = (
    ("web_pages", web_pages),
    ("slow_headers", slow_headers),
    ("silent_internode", silent_internode),
    ("opcodes", opcodes),
    ("promised", promised),
    ("never_read", never_read),
    ("few_descriptors", few_descriptors),
)
