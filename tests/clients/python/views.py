"""Materialized views with the Python driver: `views.py HOST PORT torc|cassandra`.

Random writes of a base table, of all kinds; then each view has to equal its definition over the rows of the base.
"""

import os
import random
import sys
import time
import uuid

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy, WhiteListRoundRobinPolicy
from cassandra.query import BatchStatement, BatchType, SimpleStatement, dict_factory

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import run_all  # noqa: E402

HOST, PORT, FLAVOUR = sys.argv[1], int(sys.argv[2]), sys.argv[3]
NODES = int(os.environ.get("TEST_NODES", "1"))
SEED = int(os.environ.get("TEST_SEED", "1"))
KEYSPACE = "views_" + uuid.uuid4().hex[:10]
WRITES = 400

# Each view: its key and columns as CQL, and its form of a row of the base.
VIEWS = {
    "by_v": ("*", "v, k, c", "v IS NOT NULL", lambda row: row["v"] is not None),
    "by_c": ("k, c, w", "c, k", "", lambda row: True),
    "some": ("k, c, w", "k, w, c", "w > 1 AND c IN (0, 2)", lambda row: (row["w"] or 0) > 1 and row["c"] in (0, 2)),
    "of_a": ("k, c, v, l", "v, c, k", "v = 'a'", lambda row: row["v"] == "a"),
}
SHOWN = {"by_v": ("k", "c", "v", "w", "l"), "by_c": ("k", "c", "w"), "some": ("k", "c", "w"), "of_a": ("k", "c", "v", "l")}


def connect(host=None):
    policy = WhiteListRoundRobinPolicy([host]) if host else RoundRobinPolicy()
    profile = ExecutionProfile(
        load_balancing_policy=policy, row_factory=dict_factory, request_timeout=30,
        consistency_level=ConsistencyLevel.QUORUM,
    )  # fmt: skip
    return Cluster([host or HOST], port=PORT, execution_profiles={EXEC_PROFILE_DEFAULT: profile})


cluster = connect()
session = cluster.connect()


def wait_until(condition, what, seconds=60):
    """Waits until the condition gives none, or fails with its last result."""
    end = time.monotonic() + seconds
    while (left := condition()) is not None:
        if time.monotonic() > end:
            raise AssertionError(f"{what}: {left}")
        time.sleep(0.1)


def table(rows, columns):
    """Rows without their order, as text."""
    def text(value):
        return sorted(value) if hasattr(value, "__iter__") and not isinstance(value, str) else value

    return sorted(str([text(row[column]) for column in columns]) for row in rows)


def difference(name):
    """How a view differs from its definition over the base; none when it does not."""
    shows, columns = VIEWS[name][3], SHOWN[name]
    query = SimpleStatement(f"SELECT * FROM {name}", consistency_level=ConsistencyLevel.ALL, fetch_size=50)
    base = SimpleStatement("SELECT * FROM base", consistency_level=ConsistencyLevel.ALL, fetch_size=50)
    expected = table([row for row in session.execute(base) if row["c"] is not None and shows(row)], columns)
    found = table(session.execute(query), columns)
    if found == expected:
        return None
    return f"too many {[row for row in found if row not in expected]}, too few {[row for row in expected if row not in found]}"


def same():
    for name in VIEWS:
        wait_until(lambda view=name: difference(view), name)


def write(rng, at):
    """One random write of the base."""
    k, c, v, w = rng.randrange(6), rng.randrange(4), rng.choice("abc"), rng.randrange(4)
    using = rng.choice(["", "", "", f" USING TIMESTAMP {at // 3 + 1}", " USING TTL 1", " USING TTL 1000"])
    kind = rng.randrange(12)
    if kind < 3:
        return f"INSERT INTO base (k, c, v, w) VALUES ({k}, {c}, '{v}', {w}){using}"
    if kind < 5:
        return f"UPDATE base{using} SET v = '{v}' WHERE k = {k} AND c = {c}"
    if kind == 5:
        return f"UPDATE base{using} SET w = {w}, l = l + {{'{v}'}} WHERE k = {k} AND c = {c}"
    if kind == 6:
        return f"UPDATE base{using} SET l = l - {{'{v}'}}, u = {w} WHERE k = {k} AND c = {c}"
    if kind == 7:
        return f"DELETE {rng.choice(['v', 'w', 'l', 'u'])} FROM base WHERE k = {k} AND c = {c}"
    if kind == 8:
        return f"DELETE FROM base WHERE k = {k} AND c = {c}"
    if kind == 9:
        return f"DELETE FROM base WHERE k = {k} AND c > {c}"
    if kind == 10:
        return f"DELETE FROM base WHERE k = {k}"
    return f"UPDATE base{using} SET u = {w} WHERE k = {k} AND c = {c}"


def writes(rng, count):
    waiting = []
    for at in range(count):
        kind = rng.randrange(20)
        if kind == 0:
            batch = BatchStatement(rng.choice([BatchType.LOGGED, BatchType.UNLOGGED]))
            for _ in range(rng.randrange(2, 6)):
                batch.add(write(rng, at))
            waiting.append(session.execute_async(batch))
        elif kind == 1:
            for request in waiting:
                request.result()
            waiting.clear()
            k, c = rng.randrange(6), rng.randrange(4)
            session.execute(f"INSERT INTO base (k, c, v, w) VALUES ({k}, {c}, 'a', 3) IF NOT EXISTS")
            session.execute(f"UPDATE base SET v = 'b' WHERE k = {k} AND c = {c} IF w = 3")
        else:
            waiting.append(session.execute_async(write(rng, at)))
    for request in waiting:
        request.result()


def create_views():
    for name, (columns, key, condition, _) in VIEWS.items():
        key_names = [part.strip() for part in key.split(",")]
        where = [f"{part} IS NOT NULL" for part in key_names if f"{part} " not in condition]
        where += [condition] if condition else []
        session.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT {columns} FROM base WHERE {' AND '.join(where)} PRIMARY KEY ({key})"
        )


def unbuilt(node):
    rows = node.execute(f"SELECT view_name FROM system.built_views WHERE keyspace_name = '{KEYSPACE}'")
    return sorted(set(VIEWS) - {row["view_name"] for row in rows}) or None


def test_views_of_rows_that_are_there():
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', "
        f"'replication_factor': {min(NODES, 3)}}}"
    )
    session.set_keyspace(KEYSPACE)
    session.execute(
        "CREATE TABLE base (k int, c int, v text, w int, u int, l set<text>, PRIMARY KEY (k, c))"
    )
    writes(random.Random(SEED), WRITES)
    create_views()
    hosts = [host.address for host in cluster.metadata.all_hosts()]
    assert len(hosts) == NODES, hosts
    for host in hosts:
        with connect(host) as own:
            node = own.connect()
            wait_until(lambda: unbuilt(node), f"built on {host}")
            assert not list(node.execute("SELECT * FROM system.view_builds_in_progress"))
    same()


def test_views_follow():
    for seed in range(3):
        writes(random.Random(SEED + 100 + seed), WRITES)
        same()
    # Rows with a TTL are gone from both.
    time.sleep(1.5)
    same()


def test_own_writes():
    if NODES > 1:
        return
    for value in ("x", "y", "z"):
        session.execute(f"UPDATE base SET v = '{value}' WHERE k = 77 AND c = 1")
        found = [row["v"] for row in session.execute("SELECT v, k FROM by_v") if row["k"] == 77]
        assert found == [value], found
    session.execute("DELETE FROM base WHERE k = 77")


def test_a_wide_partition_goes():
    session.execute("CREATE TABLE wide (k int, c int, v int, PRIMARY KEY (k, c))")
    session.execute(
        "CREATE MATERIALIZED VIEW wide_by_v AS SELECT * FROM wide WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL "
        "PRIMARY KEY (v, k, c)"
    )
    insert = session.prepare("INSERT INTO wide (k, c, v) VALUES (1, ?, ?)")
    for request in [session.execute_async(insert, (c, c % 300)) for c in range(1500)]:
        request.result()

    def count():
        return session.execute("SELECT count(*) AS n FROM wide_by_v").one()["n"]

    wait_until(lambda: None if count() == 1500 else count(), "rows of a view")
    session.execute("DELETE FROM wide WHERE k = 1 AND c < 1000")
    wait_until(lambda: None if count() == 500 else count(), "rows of a view after a range deletion")
    session.execute("DELETE FROM wide WHERE k = 1")
    wait_until(lambda: None if count() == 0 else count(), "rows of a view after a deletion")
    session.execute("DROP MATERIALIZED VIEW wide_by_v")
    session.execute("DROP TABLE wide")


def test_truncate():
    session.execute("TRUNCATE base")
    for name in VIEWS:
        assert not list(session.execute(f"SELECT * FROM {name}")), name
    writes(random.Random(SEED + 500), WRITES)
    same()


def refused(statement, text):
    try:
        session.execute(statement)
    except InvalidRequest as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {statement}")


def test_refusals():
    refused("DROP TABLE base", "Cannot drop a table when materialized views still depend on it")
    refused("INSERT INTO by_c (c, k) VALUES (1, 1)", "Cannot directly modify a materialized view")
    refused("TRUNCATE by_c", "Cannot TRUNCATE materialized view directly; must truncate base table instead")
    refused("DROP TABLE by_c", "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead.")


def test_metadata():
    assert set(cluster.metadata.keyspaces[KEYSPACE].views) == set(VIEWS)
    text = session.execute("DESCRIBE MATERIALIZED VIEW by_c").one()["create_statement"]
    assert f"CREATE MATERIALIZED VIEW {KEYSPACE}.by_c AS\n    SELECT c, k, w\n    FROM {KEYSPACE}.base" in text, text


def test_columns_come():
    session.execute("ALTER TABLE base ADD x int")
    session.execute("UPDATE base SET x = 5 WHERE k = 50 AND c = 5")
    session.execute("UPDATE base SET v = 'q' WHERE k = 50 AND c = 5")

    def found():
        rows = [row["x"] for row in session.execute("SELECT k, x FROM by_v") if row["k"] == 50]
        return None if rows == [5] else rows

    wait_until(found, "a column that was added")
    hidden = [row for row in session.execute("SELECT * FROM by_c") if row["k"] == 50]
    assert len(hidden) == 1, hidden
    refused("ALTER TABLE base DROP w", "Cannot drop column w on base table base with materialized views")


def test_views_go():
    for name in VIEWS:
        session.execute(f"DROP MATERIALIZED VIEW {name}")
    assert not list(session.execute(f"SELECT * FROM system_schema.views WHERE keyspace_name = '{KEYSPACE}'"))
    session.execute("DROP TABLE base")
    session.execute(f"DROP KEYSPACE {KEYSPACE}")


run_all(globals(), cluster.shutdown)
