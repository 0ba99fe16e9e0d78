"""Topology changes under load, with nodes as processes: `topology.py --torc BINARY [STEP...]`.

A fourth node joins, one is decommissioned, one is killed with -9 and removed, one is killed and replaced: no request at QUORUM fails,
and every acknowledged write is read back at QUORUM and at ALL.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)

import derived  # noqa: E402
from cassandra import ConsistencyLevel  # noqa: E402
from environment import Failure  # noqa: E402
from node import Torc, Workspace, answers  # noqa: E402
from world import KEYSPACE, Load, alone, check, connect, is_up, peers, rest, wait_until  # noqa: E402

# A topology change waits several times for requests that began before.
CHANGE_PATIENCE = 240


class Ring:
    """Nodes with addresses one after the other."""

    def __init__(self, torc, folder, first):
        self.torc, self.folder = os.path.abspath(torc), folder
        self.start_address, last = first.rsplit(".", 1)
        self.first, self.nodes = int(last), []

    def add(self, *options, address=None):
        number = len(self.nodes)
        address = address or f"{self.start_address}.{self.first + number}"
        place = os.path.join(self.folder, f"node{number + 1}")
        os.makedirs(place)
        seeds = ("--seeds", ",".join(node.host for node in self.nodes if node.is_running()) or address)
        # So slow that a node's fetches can be watched.
        slow = ("--stream_throughput_outbound", "512KiB")
        node = Torc(self.torc, place, address, 1, (*seeds, *slow, *options))
        self.nodes.append(node)
        return node

    def launch(self, node):
        seconds = node.start(CHANGE_PATIENCE)
        wait_until(lambda: answers(node.host, 9042), f"{node.host} accepts clients")
        return seconds

    def nodetool(self, node, *words, fails=False):
        command = [self.torc, "nodetool", "-h", node.host, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHANGE_PATIENCE)
        check((done.returncode != 0) == fails, f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def host_id(self, node):
        return json.loads(self.nodetool(node, "info", "--format", "json"))["id"]

    def states(self, node):
        """Two letters and the address of each node that nodetool status shows."""
        lines = self.nodetool(node, "status").splitlines()
        words = [line.split() for line in lines]
        return {line[1]: line[0] for line in words if len(line) > 2 and len(line[0]) == 2 and line[0][0] in "UD"}

    def end(self):
        for node in self.nodes:
            node.kill()


def read_back(load, what):
    """Every acknowledged write is there at QUORUM and at ALL."""
    said = load.verify(what)
    every = load.session.prepare(f"SELECT v FROM {KEYSPACE}.load WHERE k = ?")
    every.consistency_level = ConsistencyLevel.ALL
    lost = [k for k, v in load.acknowledged.items() if [row.v for row in load.session.execute(every, (k,))] != [v]]
    check(not lost, f"{what}: {len(lost)} acknowledged writes are not there at ALL, first {lost[:3]}")
    return said


def members(ring):
    return [node for node in ring.nodes if node.is_running()]


def wait_for_ring(ring, at, expected):
    wait_until(lambda: ring.states(at) == expected, f"{at.host} shows {expected}, not {ring.states(at)}")


def join(ring, session):
    fourth = ring.add()
    with Load(session, pause=0.01) as load:
        time.sleep(1)
        seconds = ring.launch(fourth)
        time.sleep(2)
    wait_for_ring(ring, ring.nodes[0], {node.host: "UN" for node in ring.nodes})
    return f"{seconds:.1f} s, {read_back(load, 'join')}"


def decommission(ring, session):
    leaver = ring.nodes[1]
    with Load(session, pause=0.01) as load:
        time.sleep(1)
        begun = time.monotonic()
        ring.nodetool(leaver, "decommission")
        seconds = time.monotonic() - begun
        time.sleep(2)
    stays = {node.host: "UN" for node in ring.nodes if node is not leaver}
    wait_for_ring(ring, ring.nodes[0], stays)
    check("DECOMMISSIONED" in ring.nodetool(leaver, "netstats"), "the node that left reports it")
    check(not answers(leaver.host, 9042), "the node that left lets no clients in")
    check(leaver.stop() == 0, f"it stops well:\n{leaver.log_tail()}")
    refused = ring.nodetool(ring.nodes[0], "decommission", fails=True)
    check("Not enough live nodes to maintain replication factor" in refused, refused)
    return f"{seconds:.1f} s, {read_back(load, 'decommission')}"


def remove(ring, session):
    """A node more joins, so that one can be missed for good."""
    ring.launch(ring.add())
    dead, asked = ring.nodes[2], ring.nodes[0]
    host = ring.host_id(dead)
    alive = ring.nodetool(asked, "removenode", host, fails=True)
    check("is alive and owns this ID" in alive, alive)
    with Load(session, pause=0.01) as load:
        time.sleep(1)
        dead.kill()
        wait_until(lambda: ring.states(asked).get(dead.host) == "DN", "the node is seen to be down")
        begun = time.monotonic()
        ring.nodetool(asked, "removenode", host)
        seconds = time.monotonic() - begun
        time.sleep(1)
    wait_for_ring(ring, asked, {node.host: "UN" for node in members(ring)})
    check("No token removals" in ring.nodetool(asked, "removenode", "status"), "nothing is being removed")
    return f"{seconds:.1f} s, {read_back(load, 'removenode')}"


def replace(ring, session, at_address):
    """Kills a node and replaces it; `at_address` when the new one has the dead one's address."""
    asked, dead = ring.nodes[0], members(ring)[-1]
    with Load(session, pause=0.01) as load:
        time.sleep(1)
        dead.kill()
        wait_until(lambda: ring.states(asked).get(dead.host) == "DN", "the node is seen to be down")
        options = ("--replace_address_first_boot", dead.host)
        new = ring.add(*options, address=dead.host if at_address else None)
        seconds = ring.launch(new)
        time.sleep(2)
    wait_for_ring(ring, asked, {node.host: "UN" for node in members(ring)})
    return f"{seconds:.1f} s, {read_back(load, 'replace')}"


def let_in(ring, session):
    """A node that is configured not to join coordinates and owns nothing, until it is let in."""
    late = ring.add("--join_ring", "false")
    with Load(session, pause=0.01) as load:
        ring.launch(late)
        check("is configured not to join" in ring.nodetool(late, "bootstrap", "resume"), "it says why it does not join")
        check(ring.states(ring.nodes[0])[late.host] == "UJ", "it is shown to be outside the ring still")
        wait_until(lambda: load.acknowledged, "the load has begun")
        query = f"SELECT count(*) FROM {KEYSPACE}.load"
        check(alone(late, query)[0][0] >= 1, "it answers by asking the replicas")
        begun = time.monotonic()
        ring.nodetool(late, "join")
        seconds = time.monotonic() - begun
        again = ring.nodetool(late, "join", fails=True)
        check("already joined" in again, again)
        check("already bootstrapped" in ring.nodetool(late, "bootstrap", "resume"), "it is in")
    wait_for_ring(ring, ring.nodes[0], {node.host: "UN" for node in members(ring)})
    return f"{seconds:.1f} s, {read_back(load, 'join by hand')}"


def datacenter(ring, session):
    """A second datacenter of two nodes is added as docs/operations/nodes.md says: empty, then given copies, then rebuilt from the first."""
    with Load(session, pause=0.01) as load:
        east = [ring.add("--datacenter", "east", "--auto_bootstrap", "false") for _ in range(2)]
        seconds = [ring.launch(node) for node in east]
        replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3, 'east': 2}"
        session.execute(f"ALTER KEYSPACE {KEYSPACE} WITH replication = {replication}")
        refused = ring.nodetool(east[0], "rebuild", "nowhere", fails=True)
        check("nowhere" in refused, refused)
        for node in east:
            ring.nodetool(node, "rebuild", "datacenter1")
        time.sleep(1)
    # The steps before have left rows, too.
    query = f"SELECT count(*) FROM {KEYSPACE}.load"
    expected = session.execute(query).one()[0]
    for node in east:
        found = alone(node, query)
        check(found == [(expected,)], f"{node.host} has {found} of {expected} rows by itself")
    dead = east[1]
    dead.kill()
    wait_until(lambda: ring.states(ring.nodes[0]).get(dead.host) == "DN", "a node of the other datacenter is seen to be down")
    ring.launch(dead)
    wait_for_ring(ring, ring.nodes[0], {node.host: "UN" for node in members(ring)})
    return f"two nodes in {', '.join(f'{s:.1f} s' for s in seconds)}, {read_back(load, 'datacenter')}"


def topology(node):
    """A node's report of the topology change and of its fetches; nothing while its REST port is closed."""
    try:
        return rest(node.host, "/torc/topology")
    except OSError:
        return None


def progress(ring, session):
    """A node that joins says how much comes as soon as its sources can tell, long before it is here, and when it will be."""
    session.execute(f"CREATE TABLE {KEYSPACE}.wide (k int PRIMARY KEY, v blob)")
    write = session.prepare(f"INSERT INTO {KEYSPACE}.wide (k, v) VALUES (?, ?)")
    # The more nodes, the less of it comes from each.
    for key in range(130 * len(members(ring))):
        session.execute(write, (key, os.urandom(32 << 10)))
    new, seen, failed = ring.add(), [], []

    def launch():
        try:
            ring.launch(new)
        except Failure as failure:
            failed.append(failure)

    joining = threading.Thread(target=launch)
    joining.start()
    while joining.is_alive():
        told = topology(new)
        if told and told["fetch"]["active"]:
            seen.append((time.monotonic(), told["fetch"], ring.nodetool(new, "netstats")))
        time.sleep(0.1)
    check(not failed, f"{failed}")
    whole = rest(new.host, "/torc/topology")["fetch"]["file_bytes"]
    check(whole > 1 << 20, f"{whole} bytes of files came")
    known = [(at, fetch, text) for at, fetch, text in seen if fetch["file_bytes_known"]]
    check(known, f"it was never known how much comes, in {len(seen)} looks")
    waited, took = known[0][0] - seen[0][0], seen[-1][0] - seen[0][0]
    check(took > 1.5, f"it came too fast to see anything: {took:.1f} s")
    check(waited < 1, f"it was known after {waited:.1f} s only")
    guessed = known[0][1]["file_bytes_total"]
    check(whole / 2 < guessed < whole * 2, f"{guessed} bytes were told at first, {whole} came")
    check(any(fetch["left_ms"] and " left" in text for _, fetch, text in known), f"it says when it is done: {known[-1][2]}")
    unknown = [text for _, fetch, text in seen if not fetch["file_bytes_known"]]
    check(all("not known yet" in text or "Comparing" in text for text in unknown), f"it does not say that it does not know: {unknown}")
    session.execute(f"DROP TABLE {KEYSPACE}.wide")
    wait_for_ring(ring, ring.nodes[0], {node.host: "UN" for node in members(ring)})
    return f"{whole >> 20} MiB in {took:.1f} s, {guessed >> 20} MiB told after {waited:.1f} s"


def together(ring, session):
    """Three nodes that start at the same moment all join, one after the other, without anybody's help."""
    new, took, failed = [ring.add() for _ in range(3)], {}, []

    def launch(node):
        try:
            took[node.host] = ring.launch(node)
        except Failure as failure:
            failed.append(failure)

    with Load(session, pause=0.01) as load:
        time.sleep(1)
        threads = [threading.Thread(target=launch, args=(node,)) for node in new]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not failed, f"{failed}")
        time.sleep(2)
    for node in members(ring):
        wait_for_ring(ring, node, {node.host: "UN" for node in members(ring)})
    for node in new:
        with open(node.log, encoding="utf-8") as log:
            text = log.read()
        check("joined the cluster" in text, f"{node.host} did not join:\n{node.log_tail()}")
        check("is tried again" not in text, f"{node.host} needed several attempts:\n{node.log_tail()}")
    waited = [node for node in new if "join is queued behind another topology change" in open(node.log, encoding="utf-8").read()]
    check(waited, "nobody says that it waits for another")
    return f"{', '.join(f'{s:.1f} s' for s in took.values())}, {len(waited)} said what they waited for, {read_back(load, 'three at once')}"


def derived_data(ring, session):
    """A node joins and is decommissioned, and another is killed in between, under writers of a base of a view, indexes and a log of changes."""
    derived.create(session)
    new, other = ring.add(), ring.nodes[2]
    with derived.Changes(session, time.time_ns()) as changes:
        time.sleep(2)
        seconds = ring.launch(new)
        time.sleep(2)
        other.kill()
        time.sleep(3)
        ring.launch(other)
        wait_for_ring(ring, ring.nodes[0], {node.host: "UN" for node in members(ring)})
        ring.nodetool(new, "decommission")
        time.sleep(2)
    wait_for_ring(ring, ring.nodes[0], {node.host: "UN" for node in members(ring) if node is not new})
    check(new.stop() == 0, f"it stops well:\n{new.log_tail()}")
    compared = derived.verify(session, ring.torc, ring.nodes[0].host)
    return f"joined in {seconds:.1f} s, {changes.acknowledged} changes, {len(changes.failures)} uncertain, {compared}"


STEPS = (
    ("derived", derived_data),
    ("join", join),
    ("decommission", decommission),
    ("removenode", remove),
    ("replace", lambda ring, session: replace(ring, session, False)),
    ("replace-same-address", lambda ring, session: replace(ring, session, True)),
    ("join-by-hand", let_in),
    ("datacenter", datacenter),
    ("progress", progress),
    ("three-at-once", together),
)


def run(ring, wanted):
    for _ in range(3):
        ring.launch(ring.add())
    for node in ring.nodes:
        others = {other.host for other in ring.nodes if other is not node}
        wait_until(lambda a=node.host, o=others: peers(a) == o, f"{node.host} knows {others}")
    with connect([ring.nodes[0].host]) as cluster:
        session = cluster.connect()
        session.execute(
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}"
        )
        session.execute(f"CREATE TABLE {KEYSPACE}.load (k int PRIMARY KEY, v int)")
        for name, step in STEPS:
            if wanted and name not in wanted:
                continue
            begun = time.monotonic()
            said = step(ring, session)
            print(f"{name}: ok, {time.monotonic() - begun:.1f} s, {said}", flush=True)
            known = {node.host for node in members(ring)}
            wait_until(lambda k=known: {h.address for h in cluster.metadata.all_hosts()} == k, f"the driver knows {known}")
            near = {host.address for host in cluster.metadata.all_hosts() if host.datacenter == "datacenter1"}
            wait_until(lambda n=near: all(is_up(cluster, host) for host in n), f"the driver sees {near} up")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    parser.add_argument("--address", default=os.environ.get("TEST_CLUSTER_ADDRESS", "127.0.5.21"), help="of the first node")
    parser.add_argument("step", nargs="*", choices=[[], *(name for name, _ in STEPS)], help="all, one after the other, when none is named")
    options = parser.parse_args()
    begun = time.monotonic()
    with Workspace("topology") as folder:
        ring = Ring(options.torc, folder, options.address)
        try:
            run(ring, options.step)
        except Exception:
            for node in ring.nodes:
                if os.path.exists(node.log):
                    print(f"--- {node.host}\n{node.log_tail()}")
            raise
        finally:
            ring.end()
        print(f"topology: ok, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"topology: {failure}")
