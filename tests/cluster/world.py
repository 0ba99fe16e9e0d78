"""The common parts of the scenarios: nodes as processes, a driver, a load whose every answer is checked."""

import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra import ConsistencyLevel  # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile  # noqa: E402
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy, WhiteListRoundRobinPolicy  # noqa: E402
from environment import Failure  # noqa: E402
from node import Torc, answers  # noqa: E402

KEYSPACE = "cluster_test"
# Longer than a silent node takes to be found out.
PATIENCE = 60


def check(condition, message):
    if not condition:
        raise Failure(message)


def wait_until(condition, message, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"not in {seconds} s: {message}")
        time.sleep(0.1)


def rest(address, path, method="GET"):
    """The answer of a node's REST port."""
    request = urllib.request.Request(f"http://{address}:10000{path}", method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read()
        return json.loads(body) if body else None


def connect(addresses):
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc="datacenter1"), shuffle_replicas=False),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=30,
    )
    return Cluster(
        addresses,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.5, max_attempts=None),
        status_event_refresh_window=0,
        topology_event_refresh_window=0,
    )


def alone(node, query):
    """The rows of one node: as its own coordinator it is the nearest replica."""
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([node.host]), consistency_level=ConsistencyLevel.ONE, request_timeout=30
    )
    with Cluster([node.host], protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile}) as cluster:
        return sorted(tuple(row) for row in cluster.connect().execute(query))


class Workers:
    """Threads that work until `stop`; each runs `work(number)`, which looks at `stopping`."""

    def __init__(self, threads):
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


class Load(Workers):
    """Writes and reads at QUORUM from several threads until it is stopped."""

    def __init__(self, session, threads=4, pause=0.002):
        super().__init__(threads)
        self.write = session.prepare(f"INSERT INTO {KEYSPACE}.load (k, v) VALUES (?, ?)")
        self.read = session.prepare(f"SELECT v FROM {KEYSPACE}.load WHERE k = ?")
        self.session, self.pause = session, pause
        self.acknowledged, self.failures, self.wrong = {}, [], []

    def work(self, number):
        draw, count, mine = random.Random(number), 0, []
        while not self.stopping.is_set():
            key, count = number * 10_000_000 + count, count + 1
            try:
                self.session.execute(self.write, (key, key * 3))
                self.acknowledged[key] = key * 3
                mine.append(key)
                asked = draw.choice(mine)
                rows = list(self.session.execute(self.read, (asked,)))
                if [row.v for row in rows] != [asked * 3]:
                    self.wrong.append((asked, rows))
            except Exception as error:  # noqa: BLE001 - any error of the driver
                self.failures.append(f"{type(error).__name__}: {error}")
            time.sleep(self.pause)

    def verify(self, what, failures_allowed=False):
        check(not self.wrong, f"{what}: {len(self.wrong)} reads were wrong, first {self.wrong[:3]}")
        check(failures_allowed or not self.failures, f"{what}: {len(self.failures)} failed, first {self.failures[:3]}")
        lost = [k for k, v in self.acknowledged.items() if [r.v for r in self.session.execute(self.read, (k,))] != [v]]
        check(not lost, f"{what}: {len(lost)} of {len(self.acknowledged)} acknowledged writes are lost, first {lost[:3]}")
        return f"{len(self.acknowledged)} writes acknowledged, {len(self.failures)} failed"


def peers(address):
    """The peers that a node lists."""
    with Cluster([address], protocol_version=5) as cluster:
        return {str(row.peer) for row in cluster.connect().execute("SELECT peer FROM system.peers_v2")}


class Nodes:
    """Nodes with addresses one after the other. They begin with the binary `old`, if there is one."""

    def __init__(self, torc, folder, first, count, old=None):
        start, last = first.rsplit(".", 1)
        self.addresses = [f"{start}.{int(last) + at}" for at in range(count)]
        self.torc, self.all = os.path.abspath(torc), []
        for at, address in enumerate(self.addresses):
            place = os.path.join(folder, f"node{at + 1}")
            os.makedirs(place)
            self.all.append(Torc(old or torc, place, address, 1, ("--seeds", self.addresses[0])))

    def start(self, at):
        seconds = self.all[at].start(PATIENCE)
        wait_until(lambda: answers(self.addresses[at], 9042), f"{self.addresses[at]} accepts clients")
        return seconds

    def end(self):
        for node in self.all:
            if node.is_running():
                node.process.send_signal(signal.SIGCONT)
                node.kill()


def is_up(cluster, address):
    host = next((host for host in cluster.metadata.all_hosts() if host.address == address), None)
    return host is not None and host.is_up


class World:
    """Nodes that run and know each other, with a session that speaks to all."""

    def __init__(self, nodes, cluster):
        self.nodes, self.cluster, self.session = nodes, cluster, cluster.connect()
        for name, factor in ((KEYSPACE, 3), (f"{KEYSPACE}_one", 1)):
            self.session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {factor}}}")
        self.session.execute(f"CREATE TABLE {KEYSPACE}.load (k int PRIMARY KEY, v int)")
        self.session.execute(f"CREATE TABLE {KEYSPACE}_one.t (k int PRIMARY KEY, v int)")

    def sees(self, at):
        """Waits until the driver and all nodes that run know that a node is up."""
        address = self.nodes.addresses[at]
        wait_until(lambda: is_up(self.cluster, address), f"the driver hears that {address} is up")
        for other, node in zip(self.nodes.addresses, self.nodes.all):
            if node.is_running() and other != address:
                wait_until(lambda other=other: address in rest(other, "/gossiper/endpoint/live"), f"{other} hears that {address} is up")

    def is_whole(self):
        """Waits until every node runs and knows that all others do."""
        for at, node in enumerate(self.nodes.all):
            check(node.is_running(), f"node {at + 1} has ended:\n{node.log_tail()}")
            self.sees(at)
