"""What people and broken programs do wrong: each is refused with its reason, and the cluster goes on."""

import random
import shutil
import socket
import subprocess

from world import PATIENCE, Load, check

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


SCENARIOS = (("a stranger", stranger), ("a copy of a node", copy), ("garbage between nodes", garbage))
