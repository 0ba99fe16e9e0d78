"""What people and broken programs do wrong: each is refused with its reason, and the cluster goes on."""

import random
import shutil
import socket
import subprocess

from environment import Failure
from world import PATIENCE, Load, check, rest

INTERNODE_PORT = 7000


def start_fails(world, *options):
    """The one line that a node says which cannot start."""
    start, last = world.nodes.addresses[0].rsplit(".", 1)
    address = f"{start}.{int(last) + 9}"
    command = [world.nodes.torc, "dev", "--shards", "1", "--address", address, "--seeds", world.nodes.addresses[0], *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    said = [line for line in done.stderr.splitlines() if line.startswith("torc: ")]
    check(done.returncode == 1 and len(said) == 1, f"{done.returncode}: {done.stderr}")
    return said[0]


def stranger(world):
    """A node of another cluster is refused, and told why."""
    said = start_fails(world, "--memory", "--cluster_name", "another")
    check("cluster_name" in said, said)


def copy(world):
    """A copy of a running node's data does not start, and the node goes on."""
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


def nodetool(world, at, *words):
    """The one line that nodetool says when it is refused."""
    command = [world.nodes.torc, "nodetool", "-h", world.nodes.addresses[at], *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    check(done.returncode == 1, f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stderr.strip()


def operators(world):
    """Operators who would lose copies, or take a node that lives for dead, are told so, and nothing happens."""
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


SCENARIOS = (("a stranger", stranger), ("a copy of a node", copy), ("garbage between nodes", garbage), ("operators", operators), ("elsewhere", elsewhere))
