"""Mistakes of people and broken programs: each is refused with its reason, and the cluster keeps running."""

import random
import shutil
import socket
import struct
import subprocess
import threading
import zlib

from environment import Failure
from world import PATIENCE, Load, check, rest, wait_until

INTERNODE_PORT = 7000
# The begin of a hello, the reasons for refusals, and kinds of frames (docs/design/rpc.md).
MAGIC, REFUSED_VERSION, PING, PONG = b"\xf5TorcRPC", 2, 5, 6


def spare(world, by):
    """An address that no node of the cluster has."""
    start, last = world.nodes.addresses[0].rsplit(".", 1)
    return f"{start}.{int(last) + by}"


def start_fails(world, *options, seeds=None):
    """The one line that a node says which cannot start."""
    address, seeds = spare(world, 9), seeds or world.nodes.addresses[0]
    command = [world.nodes.torc, "dev", "--shards", "1", "--address", address, "--seeds", seeds, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    said = [line for line in done.stderr.splitlines() if line.startswith("torc: ")]
    check(done.returncode == 1 and len(said) == 1, f"{done.returncode}: {done.stderr}")
    return said[0]


def stranger(world):
    """A node of another cluster is refused, and told why."""
    said = start_fails(world, "--memory", "--cluster_name", "another")
    check("cluster_name" in said, said)


def copy(world):
    """A copy of a running node's data does not start, and the node keeps running."""
    original = world.nodes.all[2]
    folder = original.data + "-copy"
    shutil.copytree(original.data, folder)
    said = start_fails(world, "--dir", folder)
    check("copy" in said and world.nodes.addresses[2] in said, said)
    check(original.is_running(), "the node that was copied has ended")
    shutil.rmtree(folder)


def garbage(world):
    """Connections that send nonsense to the port for other nodes are closed; requests are served meanwhile."""
    draw = random.Random(5)
    lumps = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(200), b"\xf5TorcRPC" + b"\xff" * 2000, b"", b"\xf5Torc"]
    lumps += [draw.randbytes(draw.randrange(1, 100_000)) for _ in range(50)]
    with Load(world.session) as load:
        for at, lump in enumerate(lumps):
            address = world.nodes.addresses[at % len(world.nodes.addresses)]
            with socket.create_connection((address, INTERNODE_PORT), 5) as peer:
                peer.settimeout(30)
                try:
                    peer.sendall(lump)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65536):
                        pass
                except OSError:
                    pass
    return load.verify("garbage") + f", {len(lumps)} connections closed"


def message(fields):
    """A hello or its answer as it lies on the wire (docs/design/rpc.md)."""
    head = MAGIC + struct.pack(">H", len(fields) + 4) + fields
    return head + struct.pack(">I", zlib.crc32(head))


def received(peer):
    """The fields of the message that the other side sends."""
    def exactly(count):
        data = b""
        while len(data) < count:
            part = peer.recv(count - len(data))
            check(part, f"the connection ends after {data!r}")
            data += part
        return data

    head = exactly(len(MAGIC) + 2)
    check(head.startswith(MAGIC), f"{head!r} is no hello")
    body = exactly(struct.unpack(">H", head[-2:])[0])
    check(struct.pack(">I", zlib.crc32(head + body[:-4])) == body[-4:], "the checksum is wrong")
    return body[:-4]


def say_hello(address, name, least, most):
    """Connects as a node that speaks these versions: code, version and message of the answer, and the connection."""
    peer = socket.create_connection((address, INTERNODE_PORT), 5)
    peer.settimeout(30)
    name = name.encode()
    peer.sendall(message(struct.pack(">HH16sHHHBBB", least, most, b"S" * 16, 1, 0, 0, 1, 0, len(name)) + name))
    fields = received(peer)
    code, version = struct.unpack(">BH", fields[:3])
    return code, version, fields[26:].decode(), peer


class Other(threading.Thread):
    """Something that nodes take for a seed, of a later release: it answers each hello with `answer`."""

    def __init__(self, address, answer):
        super().__init__(daemon=True)
        self.listener = socket.create_server((address, INTERNODE_PORT))
        self.listener.settimeout(PATIENCE)
        self.answer, self.heard = answer, []

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            with peer:
                try:
                    peer.settimeout(30)
                    self.heard.append(struct.unpack(">HH", received(peer)[:4]))
                    peer.sendall(self.answer)
                    while peer.recv(65536):
                        pass
                except (OSError, Failure):
                    pass

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        # Closing alone would leave it to a task that waits for a connection.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.join(PATIENCE)


def versions(world):
    """Nodes of releases that have no version of the protocol in common refuse each other and say why; those that have one agree on it."""
    node, address = world.nodes.all[0], world.nodes.addresses[0]
    name = rest(address, "/storage_service/cluster_name")
    with Load(world.session) as load:
        wait_until(lambda: len(load.acknowledged) > 20, "the load has begun")
        for least, most in ((0, 1), (1, 1), (3, 3), (999, 999)):
            expected = f"this node supports the versions 2 to 2 of the internode protocol, the other one {least} to {most}"

            def told(least=least, most=most, expected=expected):
                code, _, why, peer = say_hello(address, name, least, most)
                peer.close()
                check(code == REFUSED_VERSION and expected in why, f"{least} to {most}: {code} {why!r}")
                # There are only so many lines a second, so that nobody can fill the disk with them.
                return "refused an internode connection from" in log(node) and expected in log(node)

            wait_until(told, f"the node's log says that it refused versions {least} to {most}")
        for least, most in ((0, 2), (2, 999), (0, 999)):
            code, version, why, peer = say_hello(address, name, least, most)
            check((code, version) == (0, 2), f"{least} to {most}: {code} {version} {why!r}")
            # The rest is of that version: a ping, and a pong for it.
            ping = struct.pack(">IBBBBQIHI", 0, PING, 0, 0, 0, 1, 0, 0, 0)
            peer.sendall(ping + struct.pack(">I", zlib.crc32(ping)))
            check(peer.recv(5)[4:] == bytes([PONG]), f"{least} to {most}: no pong")
            peer.close()
        # A node that finds only later releases logs their refusal, and does not found a cluster of its own.
        host = b"O" * 16
        refusal = b"this node supports the versions 5 to 9 of the internode protocol"
        answer = message(struct.pack(">BHB16sHHH", REFUSED_VERSION, 0, 0, host, 1, 0, len(refusal)) + refusal)
        with Other(spare(world, 10), answer) as other:
            said = start_fails(world, "--memory", seeds=other.listener.getsockname()[0])
            check("5 to 9 of the internode protocol" in said, said)
            check(other.heard and set(other.heard) == {(2, 2)}, f"it offers {other.heard}")
        # An answer that agrees to an option that was not offered is refused.
        answer = message(struct.pack(">BHB16sHHH", 0, 9, 0, host, 1, 0, 0))
        with Other(spare(world, 10), answer) as other:
            said = start_fails(world, "--memory", seeds=other.listener.getsockname()[0])
            check("version" in said, said)
    return load.verify("versions")


def log(node):
    with open(node.log, encoding="utf-8", errors="replace") as text:
        return text.read()


def nodetool(world, at, *words):
    """The one line that nodetool says when it is refused."""
    command = [world.nodes.torc, "nodetool", "-h", world.nodes.addresses[at], *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    check(done.returncode == 1, f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stderr.strip()


def operators(world):
    """Commands that would lose replicas, or remove a live node as dead, fail with that reason and change nothing."""
    nodes = len(world.nodes.all)
    world.session.execute(f"CREATE KEYSPACE everywhere WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {nodes}}}")
    hosts = {row["key"]: row["value"] for row in rest(world.nodes.addresses[0], "/storage_service/host_id")}
    last = world.nodes.addresses[-1]
    with Load(world.session) as load:
        said = nodetool(world, nodes - 1, "decommission")
        check("Not enough live nodes to maintain replication factor" in said and f"(RF = {nodes}, N = {nodes})" in said, said)
        said = nodetool(world, 0, "removenode", hosts[last])
        check("is alive and owns this ID" in said, said)
        said = nodetool(world, 0, "assassinate", last)
        check("is alive and owns this ID" in said, said)
        said = start_fails(world, "--memory", "--replace_address_first_boot", last)
        check("Cannot replace a live node" in said, said)
        said = nodetool(world, 0, "rebuild", "nowhere")
        check("there is no datacenter 'nowhere'" in said, said)
    world.session.execute("DROP KEYSPACE everywhere")
    return load.verify("operators")


def elsewhere(world):
    """A node that owns data does not start in another datacenter than before."""
    node = world.nodes.all[-1]
    node.stop()
    command = node.command
    node.command = [*command, "--datacenter", "elsewhere"]
    try:
        node.start()
        check(False, "it starts")
    except Failure as failure:
        check("differs from previous data center (datacenter1)" in str(failure), str(failure))
    finally:
        node.command = command
    world.nodes.start(len(world.nodes.all) - 1)
    world.is_whole()


SCENARIOS = (("a stranger", stranger), ("a copy of a node", copy), ("garbage between nodes", garbage), ("other versions", versions), ("operators", operators), ("elsewhere", elsewhere))
