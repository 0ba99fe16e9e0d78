"""Without faults: requests find a replica, every consistency level answers."""

import os
import socket
import tempfile

from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster
from node import Torc
from world import KEYSPACE, PATIENCE, check, wait_until

LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM")


def routing(world):
    """With one copy a request that reaches the replica needs no other node."""
    session = world.session
    statement = session.prepare(f"SELECT v FROM {KEYSPACE}_one.t WHERE k = ?")
    coordinators = set()
    for key in range(30):
        trace = session.execute(statement, (key,), trace=True).get_query_trace(max_wait_sec=20)
        sources = {str(event.source) for event in trace.events}
        check(sources <= {str(trace.coordinator)}, f"key {key}: {trace.coordinator} asked {sources}")
        coordinators.add(str(trace.coordinator))
    check(len(coordinators) >= 3, f"thirty keys lie on {coordinators} only")


def levels(world):
    """Each level writes, and reads the written row."""
    session = world.session
    for name in LEVELS:
        level = getattr(ConsistencyLevel, name)
        for statement, values in (("INSERT INTO {}.load (k, v) VALUES (?, ?)", (-1, level)), ("SELECT v FROM {}.load WHERE k = ?", (-1,))):
            prepared = session.prepare(statement.format(KEYSPACE))
            prepared.consistency_level = level
            rows = list(session.execute(prepared, values))
        check([row.v for row in rows] == [level], f"{name}: {rows}")


def free_ports(host, count):
    """Ports that nothing listens on just now."""
    probes = [socket.socket(socket.AF_INET6) for _ in range(count)]
    for probe in probes:
        probe.bind((host, 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def ipv6(world):
    """Two nodes on the one loopback address of IPv6, told apart by their ports: a cluster of its own."""
    names = ("storage_port", "native_transport_port", "native_shard_aware_transport_port", "api_port", "prometheus_port", "alternator_port")
    nodes, seed = [], None
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number in range(2):
                ports = dict(zip(names, free_ports("::1", len(names))))
                seed = seed or f"[::1]:{ports['storage_port']}"
                place = os.path.join(folder, str(number))
                os.makedirs(place)
                options = [word for name, port in ports.items() for word in (f"--{name}", str(port))]
                node = Torc(world.nodes.torc, place, "::1", 1, ("--seeds", seed, *options))
                node.port = ports["native_transport_port"]
                node.start(PATIENCE)
                nodes.append(node)
            with Cluster(["::1"], port=nodes[0].port, protocol_version=5) as cluster:
                session = cluster.connect()
                wait_until(lambda: len(cluster.metadata.all_hosts()) == 2, "the driver knows both nodes")
                peers = [(str(row.native_address), row.native_port) for row in session.execute("SELECT * FROM system.peers_v2")]
                check(peers == [("::1", nodes[1].port)] or peers == [("::1", nodes[0].port)], f"{peers}")
                session.execute("CREATE KEYSPACE six WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
                session.execute("CREATE TABLE six.t (k int PRIMARY KEY)")
                write = session.prepare("INSERT INTO six.t (k) VALUES (?)")
                write.consistency_level = ConsistencyLevel.ALL
                for key in range(50):
                    session.execute(write, (key,))
            nodes[1].kill()
            with Cluster(["::1"], port=nodes[0].port, protocol_version=5) as cluster:
                found = cluster.connect().execute("SELECT count(*) FROM six.t").one()[0]
                check(found == 50, f"{found} of 50 rows are on the node that is left")
        finally:
            for node in nodes:
                node.kill()


SCENARIOS = (("routing", routing), ("consistency levels", levels), ("ipv6", ipv6))
