"""Two datacenters of three processes each, in two network namespaces with 100 ms between them: `wide.py --torc BINARY`.

Needs root, `ip netns` and /dev/net/tun. Between the namespaces stands a router in user space (`Router`): it delays every packet
by half of the round trip, loses some on request, or all. (The kernel's netem does the same, but is not built into every
kernel.) LOCAL_QUORUM must not pay the distance, EACH_QUORUM must pay it once; a lossy link costs time alone; when the datacenters
are parted each serves its own clients, and afterwards both have all that was acknowledged.
"""

import argparse
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from environment import Failure  # noqa: E402
from node import Workspace  # noqa: E402
from world import check, wait_until  # noqa: E402

ONE_WAY = 0.05
DATACENTERS = {"east": "10.77.1", "west": "10.77.2"}
NODES = [(datacenter, f"{prefix}.{at}") for datacenter, prefix in DATACENTERS.items() for at in (1, 2, 3)]
KEYSPACE = "wide_test"
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def name_of(datacenter):
    return f"torc-{os.getpid()}-{datacenter}"


def enter(namespace):
    """This thread is in the namespace from now on."""
    with open(f"/run/netns/{namespace}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def in_namespace(namespace, *command):
    done = subprocess.run(["ip", "netns", "exec", namespace, *command], capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(command)}: {done.stderr}")
    return done.stdout


class Router:
    """Carries packets between two namespaces, late."""

    def __init__(self):
        self.loss, self.parted, self.carried = 0.0, False, 0
        self.ends = {}
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.carry, daemon=True)

    def open(self):
        for datacenter, prefix in DATACENTERS.items():
            namespace, other = name_of(datacenter), [p for d, p in DATACENTERS.items() if d != datacenter][0]
            subprocess.run(["ip", "netns", "add", namespace], check=True)
            opened = []

            def open_tun(namespace=namespace, opened=opened):
                enter(namespace)
                end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"wan0", IFF_TUN | IFF_NO_PI))
                opened.append(end)

            thread = threading.Thread(target=open_tun)
            thread.start()
            thread.join()
            check(opened, f"no tun in {namespace}")
            self.ends[datacenter] = opened[0]
            in_namespace(namespace, "ip", "link", "set", "lo", "up")
            in_namespace(namespace, "ip", "link", "set", "wan0", "up")
            for at in (1, 2, 3):
                in_namespace(namespace, "ip", "address", "add", f"{prefix}.{at}/32", "dev", "lo")
            # The first address speaks for connections whose own is not chosen.
            in_namespace(namespace, "ip", "route", "add", f"{other}.0/24", "dev", "wan0", "src", f"{prefix}.1")
        self.thread.start()

    def carry(self):
        east, west = self.ends["east"], self.ends["west"]
        other, under_way, order, draw = {east: west, west: east}, [], itertools.count(), random.Random(7)
        while not self.stopping.is_set():
            now = time.monotonic()
            pause = max(0.0, under_way[0][0] - now) if under_way else 0.1
            ready, _, _ = select.select([east, west], [], [], min(pause, 0.1))
            now = time.monotonic()
            for end in ready:
                for _ in range(256):
                    try:
                        packet = os.read(end, 65536)
                    except BlockingIOError:
                        break
                    if not self.parted and draw.random() >= self.loss:
                        heapq.heappush(under_way, (now + ONE_WAY, next(order), other[end], packet))
            while under_way and under_way[0][0] <= now:
                _, _, end, packet = heapq.heappop(under_way)
                try:
                    os.write(end, packet)
                    self.carried += 1
                except (BlockingIOError, OSError):
                    pass

    def close(self):
        self.stopping.set()
        if self.thread.ident:
            self.thread.join()
        for end in self.ends.values():
            os.close(end)
        for datacenter in DATACENTERS:
            subprocess.run(["ip", "netns", "del", name_of(datacenter)], stderr=subprocess.DEVNULL)


def loopback(address):
    """Where a node has administration and metrics: beyond loopback they would ask for a login."""
    return "127.0.0." + address.rsplit(".", 1)[1]


class Node:
    """A process in its datacenter's namespace."""

    def __init__(self, torc, folder, datacenter, address):
        self.datacenter, self.address = datacenter, address
        place = os.path.join(folder, address)
        os.makedirs(place)
        self.log = os.path.join(place, "log")
        # Where a node stands is said by the file that Cassandra's tools write.
        with open(os.path.join(place, "cassandra-rackdc.properties"), "w") as file:
            file.write(f"dc={datacenter}\nrack=r1\n")
        with open(os.path.join(place, "torc.yaml"), "w") as file:
            for option in ("listen_address", "rpc_address"):
                file.write(f"{option}: {address}\n")
            for option in ("api_address", "prometheus_address"):
                file.write(f"{option}: {loopback(address)}\n")
            file.write(f"data_file_directories: {place}/data\nseeds: 10.77.1.1, 10.77.2.1\ncluster_name: wide\nshards: 1\n")
            # It is started before the other seed.
            file.write(f"new_cluster: {str(address == '10.77.1.1').lower()}\n")
        self.command = ["ip", "netns", "exec", name_of(datacenter), torc, "server", "--config", os.path.join(place, "torc.yaml")]
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_until(self.is_ready, f"{self.address} lets clients in:\n{self.tail()}", 90)

    def is_ready(self):
        check(self.process.poll() is None, f"{self.address} has ended:\n{self.tail()}")
        probe = f"import socket; socket.create_connection(('{self.address}', 9042), 1)"
        done = subprocess.run(["ip", "netns", "exec", name_of(self.datacenter), sys.executable, "-c", probe], stderr=subprocess.DEVNULL)
        return done.returncode == 0

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-15:])

    def end(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Client:
    """A driver in one datacenter. It works in a thread of that namespace, and so do the threads that it starts."""

    def __init__(self, datacenter):
        self.datacenter = datacenter
        self.jobs, self.done = [], threading.Condition()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        enter(name_of(self.datacenter))
        while True:
            with self.done:
                while not self.jobs:
                    self.done.wait()
                job, box = self.jobs.pop(0)
            try:
                box.append((True, job()))
            except Exception as error:  # noqa: BLE001 - handed to the waiting thread
                box.append((False, error))
            with self.done:
                self.done.notify_all()

    def run(self, job):
        box = []
        with self.done:
            self.jobs.append((job, box))
            self.done.notify_all()
            while not box:
                self.done.wait()
        good, outcome = box[0]
        if not good:
            raise outcome
        return outcome

    def connect(self):
        from cassandra import ConsistencyLevel
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

        def connect():
            profile = ExecutionProfile(
                load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=self.datacenter)),
                consistency_level=ConsistencyLevel.LOCAL_QUORUM,
                request_timeout=30,
            )
            self.cluster = Cluster([DATACENTERS[self.datacenter] + ".1"], protocol_version=5, connect_timeout=20,
                                   execution_profiles={EXEC_PROFILE_DEFAULT: profile})
            self.session = self.cluster.connect()

        self.run(connect)

    def execute(self, text):
        return self.run(lambda: list(self.session.execute(text)))

    def prepare(self):
        def prepare():
            self.insert = self.session.prepare(f"INSERT INTO {KEYSPACE}.t (k, v) VALUES (?, ?)")
            self.select = self.session.prepare(f"SELECT v FROM {KEYSPACE}.t WHERE k = ?")

        self.run(prepare)

    def write(self, level, key, value):
        return self.run(lambda: self.timed(self.insert, level, (key, value))[0])

    def read(self, level, key):
        return self.run(lambda: self.timed(self.select, level, (key,)))

    def timed(self, statement, level, values):
        from cassandra import ConsistencyLevel

        bound = statement.bind(values)
        bound.consistency_level = getattr(ConsistencyLevel, level)
        begun = time.monotonic()
        rows = list(self.session.execute(bound))
        return time.monotonic() - begun, [row.v for row in rows]


def latencies(east, west):
    """The latency of each level from the east."""
    said = []
    for level, least, most in (("LOCAL_QUORUM", 0.0, ONE_WAY), ("EACH_QUORUM", 2 * ONE_WAY, 3.5 * ONE_WAY),
                               ("ALL", 2 * ONE_WAY, 3.5 * ONE_WAY), ("LOCAL_ONE", 0.0, ONE_WAY)):
        writes = statistics.median(east.write(level, key, key) for key in range(40))
        reads = statistics.median(east.read(level, key)[0] for key in range(40))
        said.append(f"{level} {writes * 1000:.1f}/{reads * 1000:.1f} ms")
        for what, took in (("a write", writes), ("a read", reads)):
            check(least <= took < most, f"{what} at {level} took {took * 1000:.1f} ms")
    for key in range(40):
        check(west.read("LOCAL_QUORUM", key)[1] == [key], f"the west does not have key {key}")
    return "write/read: " + ", ".join(said)


def figure(address, name, label):
    """A figure of a node's metrics."""
    datacenter = [d for d, a in NODES if a == address][0]
    fetch = f"import urllib.request as u; print(u.urlopen('http://{loopback(address)}:9180/metrics', timeout=10).read().decode())"
    text = in_namespace(name_of(datacenter), sys.executable, "-c", fetch)
    lines = [line for line in text.splitlines() if line.startswith(name + "{") and label in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def lossy(router, east):
    router.loss = 0.02
    try:
        slow = sorted(east.write("EACH_QUORUM", 1000 + key, key) for key in range(60))
    finally:
        router.loss = 0.0
    local = statistics.median(east.write("LOCAL_QUORUM", 2000 + key, key) for key in range(20))
    check(local < ONE_WAY, f"LOCAL_QUORUM took {local * 1000:.1f} ms")
    return f"EACH_QUORUM at 2 % loss: median {slow[30] * 1000:.0f} ms, worst {slow[-1] * 1000:.0f} ms, none failed"


def parted(router, east, west):
    """Each datacenter serves its own; then both have everything."""
    router.parted = True
    written, refused = {"east": 0, "west": 0}, 0
    try:
        begun = time.monotonic()
        while time.monotonic() - begun < 25:
            for at, (client, base) in enumerate(((east, 10_000), (west, 20_000))):
                name = client.datacenter
                took = client.write("LOCAL_QUORUM", base + written[name], at)
                check(took < 1, f"LOCAL_QUORUM in the {name} took {took:.1f} s")
                written[name] += 1
            time.sleep(0.05)
        try:
            east.write("EACH_QUORUM", 5_000, 1)
        except Exception as error:  # noqa: BLE001 - Unavailable or a timeout, by the driver's name
            refused = type(error).__name__
        check(refused, "EACH_QUORUM was acknowledged without the west")
    finally:
        router.parted = False

    def missing():
        lost = [k for k in range(written["east"]) if west.read("LOCAL_QUORUM", 10_000 + k)[1] != [0]]
        return lost + [k for k in range(written["west"]) if east.read("LOCAL_QUORUM", 20_000 + k)[1] != [1]]

    begun = time.monotonic()
    wait_until(lambda: not missing(), "hints bring the writes that the other datacenter missed", 120)
    return (f"{written} writes acknowledged, EACH_QUORUM: {refused}, the last hint after {time.monotonic() - begun:.0f} s")


def copies(east, west):
    """A keyspace that gets its replicas in the west later: the first read that is answered there sees all writes."""
    from cassandra import Unavailable

    keyspace = f"{KEYSPACE}_rf"
    east.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'east': 1}}")
    east.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int)")
    east.execute(f"INSERT INTO {keyspace}.t (k, v) VALUES (1, 1)")
    east.execute(f"ALTER KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 2}}")
    east.execute(f"INSERT INTO {keyspace}.t (k, v) VALUES (2, 2)")
    read = []

    def answered():
        # Until the data is there the west has no replica that could be read.
        try:
            read[:] = sorted(row.v for row in west.execute(f"SELECT v FROM {keyspace}.t WHERE k IN (1, 2)"))
        except Unavailable:
            return False
        return True

    begun = time.monotonic()
    wait_until(answered, "the west has replicas", 90)
    check(read == [1, 2], f"the first read in the west saw {read}")
    return f"the west was read from after {time.monotonic() - begun:.1f} s"


def run(torc, folder, router):
    nodes = [Node(torc, folder, datacenter, address) for datacenter, address in NODES]
    try:
        for node in nodes:
            node.start()
        print("six nodes are ready", flush=True)
        east, west = Client("east"), Client("west")
        east.connect()
        wait_until(lambda: len(east.run(lambda: east.cluster.metadata.all_hosts())) == 6, "the driver knows six nodes", 90)
        east.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 3}}")
        east.execute(f"CREATE TABLE {KEYSPACE}.t (k int PRIMARY KEY, v int)")
        west.connect()
        east.prepare()
        west.prepare()
        steps = (
            ("latencies", lambda: latencies(east, west)),
            ("another number of copies", lambda: copies(east, west)),
            ("a lossy link", lambda: lossy(router, east)),
            ("a partition", lambda: parted(router, east, west)),
        )
        for name, step in steps:
            begun = time.monotonic()
            said = step()
            print(f"{name}: ok, {time.monotonic() - begun:.1f} s{', ' + said if said else ''}", flush=True)
    except Exception:
        for node in nodes:
            if os.path.exists(node.log):
                print(f"--- {node.address}\n{node.tail()}")
        raise
    finally:
        for node in nodes:
            node.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    options = parser.parse_args()
    begun = time.monotonic()
    router = Router()
    with Workspace("wide") as folder:
        try:
            router.open()
            run(os.path.abspath(options.torc), folder, router)
        finally:
            router.close()
    print(f"wide: ok, {time.monotonic() - begun:.0f} s, {router.carried} packets between the datacenters")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"wide: {failure}")
