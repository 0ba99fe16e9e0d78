"""Three nodes as three processes, and a real driver: `cluster.py --torc BINARY`.

Requests find a replica, every consistency level answers, and under load at QUORUM a node is killed, paused and restarted: every
acknowledged write is read back, and none fails where the driver's usual retries are enough.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra import ConsistencyLevel  # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile  # noqa: E402
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy  # noqa: E402
from environment import Failure  # noqa: E402
from node import Torc, Workspace, answers  # noqa: E402

LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM")
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


def stranger(nodes):
    """A node of another cluster is refused, and told why."""
    start, last = nodes.addresses[-1].rsplit(".", 1)
    command = [nodes.torc, "dev", "--memory", "--shards", "1", "--address", f"{start}.{int(last) + 1}"]
    command += ["--seeds", nodes.addresses[0], "--cluster_name", "another"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    said = [line for line in done.stderr.splitlines() if line.startswith("torc: ")]
    check(done.returncode == 1 and len(said) == 1 and "cluster_name" in said[0], f"{done.returncode}: {done.stderr}")


class Load:
    """Writes and reads at QUORUM from several threads until it is stopped."""

    def __init__(self, session, threads=4):
        self.write = session.prepare(f"INSERT INTO {KEYSPACE}.load (k, v) VALUES (?, ?)")
        self.read = session.prepare(f"SELECT v FROM {KEYSPACE}.load WHERE k = ?")
        self.session = session
        self.acknowledged, self.failures, self.wrong = {}, [], []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(n,)) for n in range(threads)]

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
            except Exception as error:  # noqa: BLE001 - whatever the driver gives up with
                self.failures.append(f"{type(error).__name__}: {error}")
            time.sleep(0.002)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def verify(self, what, failures_allowed=False):
        check(not self.wrong, f"{what}: {len(self.wrong)} reads were wrong, first {self.wrong[:3]}")
        check(failures_allowed or not self.failures, f"{what}: {len(self.failures)} failed, first {self.failures[:3]}")
        lost = [k for k, v in self.acknowledged.items() if [r.v for r in self.session.execute(self.read, (k,))] != [v]]
        check(not lost, f"{what}: {len(lost)} of {len(self.acknowledged)} acknowledged writes are lost, first {lost[:3]}")
        return f"{len(self.acknowledged)} writes acknowledged, {len(self.failures)} failed"


def peers(address):
    """The peers that a node tells."""
    with Cluster([address], protocol_version=5) as cluster:
        return {str(row.peer) for row in cluster.connect().execute("SELECT peer FROM system.peers_v2")}


def routing(session):
    """With one copy a request that reaches the replica needs no other node."""
    statement = session.prepare(f"SELECT v FROM {KEYSPACE}_one.t WHERE k = ?")
    coordinators = set()
    for key in range(30):
        trace = session.execute(statement, (key,), trace=True).get_query_trace(max_wait_sec=20)
        sources = {str(event.source) for event in trace.events}
        check(sources <= {str(trace.coordinator)}, f"key {key}: {trace.coordinator} asked {sources}")
        coordinators.add(str(trace.coordinator))
    check(len(coordinators) == 3, f"thirty keys lie on {coordinators} only")


def levels(session):
    for name in LEVELS:
        level = getattr(ConsistencyLevel, name)
        for statement, values in (("INSERT INTO {}.load (k, v) VALUES (?, ?)", (-1, level)), ("SELECT v FROM {}.load WHERE k = ?", (-1,))):
            prepared = session.prepare(statement.format(KEYSPACE))
            prepared.consistency_level = level
            rows = list(session.execute(prepared, values))
        check([row.v for row in rows] == [level], f"{name}: {rows}")


class Nodes:
    """Three nodes with addresses one after the other."""

    def __init__(self, torc, folder, first):
        start, last = first.rsplit(".", 1)
        self.addresses = [f"{start}.{int(last) + at}" for at in range(3)]
        self.torc, self.all = os.path.abspath(torc), []
        for at, address in enumerate(self.addresses):
            place = os.path.join(folder, f"node{at + 1}")
            os.makedirs(place)
            self.all.append(Torc(torc, place, address, 1, ("--seeds", self.addresses[0])))

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


def kill_and_restart(nodes, cluster, session):
    with Load(session) as load:
        time.sleep(2)
        nodes.all[2].kill()
        time.sleep(6)
        nodes.start(2)
        wait_until(lambda: is_up(cluster, nodes.addresses[2]), "the driver hears that the node is up")
        time.sleep(2)
    return load.verify("kill -9")


def pause(nodes, session):
    with Load(session) as load:
        time.sleep(1)
        nodes.all[1].process.send_signal(signal.SIGSTOP)
        time.sleep(8)
        nodes.all[1].process.send_signal(signal.SIGCONT)
        time.sleep(2)
    # What the stopped node coordinated ran into the client's patience; that is no loss.
    return load.verify("pause", failures_allowed=True)


def rolling_restart(nodes, cluster, session):
    with Load(session) as load:
        for at in range(3):
            time.sleep(1)
            check(nodes.all[at].stop() == 0, f"node {at + 1} did not stop well:\n{nodes.all[at].log_tail()}")
            nodes.start(at)
            wait_until(lambda at=at: is_up(cluster, nodes.addresses[at]), f"node {at + 1} is up")
    return load.verify("rolling restart")


def run(nodes):
    for at in range(3):
        print(f"node {at + 1} was ready in {nodes.start(at):.1f} s", flush=True)
    for address in nodes.addresses:
        others = {other for other in nodes.addresses if other != address}
        wait_until(lambda a=address, o=others: peers(a) == o, f"{address} knows {others}")
    with connect(nodes.addresses[:1]) as cluster:
        session = cluster.connect()
        for name, factor in ((KEYSPACE, 3), (f"{KEYSPACE}_one", 1)):
            session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {factor}}}")
        session.execute(f"CREATE TABLE {KEYSPACE}.load (k int PRIMARY KEY, v int)")
        session.execute(f"CREATE TABLE {KEYSPACE}_one.t (k int PRIMARY KEY, v int)")
        steps = (
            ("routing", lambda: routing(session)),
            ("a stranger", lambda: stranger(nodes)),
            ("consistency levels", lambda: levels(session)),
            ("kill -9 and restart", lambda: kill_and_restart(nodes, cluster, session)),
            ("pause", lambda: pause(nodes, session)),
            ("rolling restart", lambda: rolling_restart(nodes, cluster, session)),
        )
        for name, step in steps:
            begun = time.monotonic()
            said = step()
            print(f"{name}: ok, {time.monotonic() - begun:.1f} s{', ' + said if said else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    parser.add_argument("--address", default=os.environ.get("TEST_CLUSTER_ADDRESS", "127.0.5.11"), help="of the first node")
    options = parser.parse_args()
    begun = time.monotonic()
    with Workspace("cluster") as folder:
        nodes = Nodes(options.torc, folder, options.address)
        try:
            run(nodes)
        except Exception:
            for node in nodes.all:
                if os.path.exists(node.log):
                    print(f"--- {node.host}\n{node.log_tail()}")
            raise
        finally:
            nodes.end()
        print(f"cluster: ok, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"cluster: {failure}")
