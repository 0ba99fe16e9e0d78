"""Vectors with the Python driver: `vectors.py HOST PORT torc|cassandra`.

Random vectors around a few centres; the result of ORDER BY … ANN OF is compared with the distances to all of them, in memory and on disk.
"""

import array
import os
import random
import sys
import time
import uuid

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import RoundRobinPolicy

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import run_all  # noqa: E402

HOST, PORT, FLAVOUR = sys.argv[1], int(sys.argv[2]), sys.argv[3]
NODES = int(os.environ.get("TEST_NODES", "1"))
KEYSPACE = "vectors_" + uuid.uuid4().hex[:10]
DIMENSIONS, ROWS, QUERIES, TOP = 24, 2_000, 40, 10
# Cassandra answers only at ONE; Torc at any level.
LEVEL = ConsistencyLevel.QUORUM if FLAVOUR == "torc" else ConsistencyLevel.ONE

random.seed(int(os.environ.get("TEST_SEED", "1")))
CENTRES = [[random.uniform(-1, 1) for _ in range(DIMENSIONS)] for _ in range(8)]

profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=30, consistency_level=LEVEL)
cluster = Cluster([HOST], port=PORT, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
session = cluster.connect()
rows = {}


def vector():
    centre = random.choice(CENTRES)
    return array.array("f", [component + random.gauss(0, 0.3) for component in centre]).tolist()


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def write(wanted):
    insert = session.prepare("INSERT INTO items (k, c, kind, v) VALUES (?, ?, ?, ?)")
    values = [(at % 50, at, at % 7, vector()) for at in wanted]
    for success, outcome in execute_concurrent_with_args(session, insert, values, concurrency=50):
        assert success, outcome
    rows.update({at: (at % 7, one) for (_, at, _, one) in values})


def recall(condition="", passes=lambda kind: True):
    select = session.prepare(f"SELECT c FROM items {condition} ORDER BY v ANN OF ? LIMIT {TOP}")
    hits = 0
    for _ in range(QUERIES):
        target = vector()
        near = sorted((at for at in rows if passes(rows[at][0])), key=lambda at: -cosine(rows[at][1], target))[:TOP]
        found = [row.c for row in session.execute(select, [target])]
        assert len(found) == len(near), found
        closeness = [cosine(rows[at][1], target) for at in found]
        assert all(a >= b - 1e-5 for a, b in zip(closeness, closeness[1:])), closeness
        hits += len(set(found) & set(near))
    return hits / (QUERIES * TOP)


def wait_for_index():
    until = time.monotonic() + 60
    while True:
        try:
            session.execute("SELECT c FROM items ORDER BY v ANN OF %s LIMIT 1" % vector())
            return
        except Exception as error:
            if time.monotonic() > until:
                raise error
            time.sleep(0.2)


def test_tables():
    replication = f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {min(NODES, 3)}}}"
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
    session.set_keyspace(KEYSPACE)
    session.execute(f"CREATE TABLE items (k int, c int, kind int, v vector<float, {DIMENSIONS}>, PRIMARY KEY (k, c))")
    session.execute("CREATE INDEX items_v ON items (v) USING 'sai'")
    session.execute("CREATE INDEX items_kind ON items (kind) USING 'sai'")
    wait_for_index()


def test_nearest_in_memory():
    write(range(ROWS))
    reached = recall()
    assert reached >= 0.95, f"recall@{TOP} {reached}"


def test_updates_and_deletions():
    write(random.sample(range(ROWS), 300))
    for at in random.sample(sorted(rows), 100):
        session.execute(f"DELETE FROM items WHERE k = {at % 50} AND c = {at}")
        del rows[at]
    reached = recall()
    assert reached >= 0.95, f"recall@{TOP} {reached}"


def test_conditions():
    assert recall("WHERE kind = 3", lambda kind: kind == 3) >= 0.95
    target = vector()
    found = [row.c for row in session.execute("SELECT c FROM items WHERE k = 7 ORDER BY v ANN OF %s LIMIT 5" % target)]
    near = sorted((at for at in rows if at % 50 == 7), key=lambda at: -cosine(rows[at][1], target))[:5]
    assert found == near, (found, near)


def test_an_index_that_is_built_later():
    session.execute("DROP INDEX items_v")
    session.execute("CREATE INDEX items_later ON items (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'cosine'}")
    wait_for_index()
    reached = recall()
    assert reached >= 0.95, f"recall@{TOP} {reached}"
    print(f"recall@{TOP} over {len(rows)} rows: {reached:.3f}")


def test_refusals():
    try:
        session.execute("SELECT c FROM items ORDER BY v ANN OF [1, 2] LIMIT 1")
    except InvalidRequest:
        pass
    else:
        raise AssertionError("a vector of another dimension is not refused")
    session.execute(f"DROP KEYSPACE {KEYSPACE}")


run_all(globals(), cluster.shutdown)
