"""Change data capture with the Python driver: `cdc.py HOST PORT torc`.

Random writes of a table, of all kinds; then its log, read by generations and streams as ScyllaDB's libraries read it, is replayed into another
table, which has to become equal. Elements of lists are left out: no statement writes one at a given place.
"""

import os
import random
import sys
import time
import uuid

from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy
from cassandra.query import BatchStatement, BatchType, SimpleStatement, dict_factory

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import run_all  # noqa: E402

HOST, PORT = sys.argv[1], int(sys.argv[2])
NODES = int(os.environ.get("TEST_NODES", "1"))
SEED = int(os.environ.get("TEST_SEED", "1"))
KEYSPACE = "cdc_" + uuid.uuid4().hex[:10]
WRITES = 500
UUID_EPOCH = 0x01B21DD213814000
COLUMNS = "k int, c int, v text, w int, s int static, m map<text, int>, e set<int>, u frozen<map<int, int>>, PRIMARY KEY (k, c)"
SIMPLE, MULTI = ("v", "w", "u"), ("m", "e")

profile = ExecutionProfile(
    load_balancing_policy=RoundRobinPolicy(), row_factory=dict_factory, request_timeout=30,
    consistency_level=ConsistencyLevel.QUORUM,
)  # fmt: skip
cluster = Cluster([HOST], port=PORT, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
session = cluster.connect()


def read(query, *values):
    return list(session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.ALL, fetch_size=100), values or None))


def write(rng):
    """One random write of the base."""
    k, c, v, w = rng.randrange(8), rng.randrange(4), rng.choice("abc"), rng.randrange(4)
    now = int(time.time() * 1e6)
    using = rng.choice(["", "", "", f" USING TIMESTAMP {now - rng.randrange(1000)}", " USING TTL 1", " USING TTL 1000"])
    key = f"WHERE k = {k} AND c = {c}"
    return rng.choice([
        f"INSERT INTO base (k, c, v, w) VALUES ({k}, {c}, '{v}', {w}){using}",
        f"INSERT INTO base (k, c, v, m) VALUES ({k}, {c}, null, {{'{v}': {w}}}){using}",
        f"INSERT INTO base (k, c) VALUES ({k}, {c}){using}",
        f"INSERT INTO base (k, s) VALUES ({k}, {w}){using}",
        f"UPDATE base{using} SET v = '{v}', w = {w} {key}",
        f"UPDATE base{using} SET w = {w}, m = m + {{'{v}': {w}}}, e = e + {{{w}, {w + 1}}} {key}",
        f"UPDATE base{using} SET m = {{'{v}': {w}}}, e = {{}}, u = {{{w}: {w}}} {key}",
        f"UPDATE base{using} SET m['{v}'] = {w}, e = e - {{{w}}} {key}",
        f"UPDATE base{using} SET m = m - {{'{v}'}}, s = {w} {key}",
        f"DELETE {rng.choice(['v', 'w', 'm', 'e', 'u'])} FROM base {key}",
        f"DELETE s FROM base WHERE k = {k}",
        f"DELETE FROM base {key}",
        f"DELETE FROM base WHERE k = {k} AND c > {c}",
        f"DELETE FROM base WHERE k = {k} AND c >= {c} AND c < {c + 2}",
        f"DELETE FROM base WHERE k = {k}",
    ])  # fmt: skip


def writes(rng, count):
    waiting = []
    for _ in range(count):
        kind = rng.randrange(20)
        if kind == 0:
            batch = BatchStatement(rng.choice([BatchType.LOGGED, BatchType.UNLOGGED]))
            for _ in range(rng.randrange(2, 6)):
                batch.add(write(rng))
            waiting.append(session.execute_async(batch))
        elif kind == 1:
            for request in waiting:
                request.result()
            waiting.clear()
            k, c = rng.randrange(8), rng.randrange(4)
            session.execute(f"INSERT INTO base (k, c, v, w) VALUES ({k}, {c}, 'a', 3) IF NOT EXISTS")
            session.execute(f"UPDATE base SET v = 'b' WHERE k = {k} AND c = {c} IF w = 3")
        else:
            waiting.append(session.execute_async(write(rng)))
    for request in waiting:
        request.result()


def streams():
    """The streams of all generations, as readers of logs find them."""
    generations = read("SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'")
    found = []
    for generation in generations:
        query = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = %s"
        ranges = read(query, generation["time"])
        ends = [row["range_end"] for row in ranges]
        assert ends == sorted(ends) and ends, ends
        found += [stream for row in ranges for stream in row["streams"]]
    return found


def log(name):
    """The rows of a log by stream and time, each time's rows in order."""
    changes = []
    for stream in streams():
        assert len(stream) == 16 and stream[15] & 15 == 1, stream
        batch = []
        for row in read(f'SELECT * FROM {name} WHERE "cdc$stream_id" = %s', stream):
            batch.append(row)
            if row["cdc$end_of_batch"]:
                assert len({row["cdc$time"] for row in batch}) == 1, "rows of one change have one time"
                changes.append(batch)
                batch = []
        assert not batch, f"a change without an end: {batch}"
    rows = read(f"SELECT count(*) AS count FROM {name}")[0]["count"]
    assert rows == sum(map(len, changes)), f"{rows} rows of the log are not all in its streams"
    return sorted(changes, key=lambda batch: (batch[0]["cdc$time"].time, batch[0]["cdc$time"].bytes))


def literal(value):
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"'{value}'"
    if hasattr(value, "items"):
        return "{" + ", ".join(f"{literal(key)}: {literal(one)}" for key, one in value.items()) + "}"
    return "{" + ", ".join(map(literal, value)) + "}" if hasattr(value, "__iter__") else str(value)


def statements(batch):
    """The statements that repeat a change."""
    at = (batch[0]["cdc$time"].time - UUID_EPOCH) // 10
    start = None
    for row in batch:
        operation, k, c = row["cdc$operation"], row["k"], row["c"]
        key = f"WHERE k = {k}" + ("" if c is None else f" AND c = {c}")
        using = f"USING TIMESTAMP {at}" + (f" AND TTL {row['cdc$ttl']}" if row["cdc$ttl"] else "")
        if operation in (1, 2):
            sets, deletes, wholes = [], [], []
            for name in SIMPLE + (("s",) if c is None else ()):
                if row[name] is not None or row[f"cdc$deleted_{name}"]:
                    sets.append(f"{name} = {literal(row[name])}")
            for name in MULTI:
                gone = row[f"cdc$deleted_elements_{name}"]
                if row[f"cdc$deleted_{name}"] and row[name] is None:
                    wholes.append(name)
                elif row[name] is not None:
                    sets.append(f"{name} = " + ("" if row[f"cdc$deleted_{name}"] else f"{name} + ") + literal(row[name]))
                deletes += [f"{name}[{literal(path)}]" for path in gone or ()]
            if operation == 2:
                yield f"INSERT INTO copy (k, c) VALUES ({k}, {c}) {using}"
            if wholes:
                # As by a statement that sets the whole: just below its own timestamp, at which elements may follow.
                yield f"DELETE {', '.join(wholes)} FROM copy USING TIMESTAMP {at - 1} {key}"
            if sets:
                yield f"UPDATE copy {using} SET {', '.join(sets)} {key}"
            if deletes:
                yield f"DELETE {', '.join(deletes)} FROM copy USING TIMESTAMP {at} {key}"
        elif operation in (3, 4):
            yield f"DELETE FROM copy USING TIMESTAMP {at} {key}"
        elif operation in (5, 6):
            start = "" if c is None else f" AND c >{'=' if operation == 5 else ''} {c}"
        elif operation in (7, 8):
            end = "" if c is None else f" AND c <{'=' if operation == 7 else ''} {c}"
            yield f"DELETE FROM copy USING TIMESTAMP {at} WHERE k = {k}{start}{end}"
        else:
            assert operation in (0, 9), row


def content(name):
    rows = read(f"SELECT k, c, v, writetime(v) AS tv, w, writetime(w) AS tw, s, writetime(s) AS ts, m, e, u FROM {name}")
    return sorted((str(sorted(row.items(), key=lambda item: item[0])) for row in rows), key=str)


def same(changes):
    for batch in changes:
        for statement in statements(batch):
            session.execute(statement)
    # Rows with a TTL of a second in one of them.
    time.sleep(2)
    base, copy = content("base"), content("copy")
    assert base, "nothing was written"
    assert base == copy, f"lacks {[row for row in base if row not in copy]}, has {[row for row in copy if row not in base]}"


def test_a_replayed_log_is_its_table():
    factor = min(NODES, 3)
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {factor}}}"
    )
    session.set_keyspace(KEYSPACE)
    session.execute(f"CREATE TABLE base ({COLUMNS}) WITH cdc = {{'enabled': true}}")
    session.execute(f"CREATE TABLE copy ({COLUMNS})")
    writes(random.Random(SEED), WRITES)
    changes = log("base_scylla_cdc_log")
    assert len(changes) > WRITES // 2, len(changes)
    same(changes)


def test_a_log_follows_alterations_of_its_table():
    session.execute("ALTER TABLE base ADD added int")
    session.execute("UPDATE base SET added = 5 WHERE k = 100 AND c = 1")
    row = log("base_scylla_cdc_log")[-1][0]
    assert (row["k"], row["added"]) == (100, 5), row
    session.execute("ALTER TABLE base DROP added")
    assert "added" not in log("base_scylla_cdc_log")[-1][0]


def test_images_show_rows_before_and_after():
    session.execute("ALTER TABLE base WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}")
    session.execute("INSERT INTO base (k, c, v, w) VALUES (101, 1, 'a', 1)")
    session.execute("UPDATE base SET w = 2 WHERE k = 101 AND c = 1")
    session.execute("DELETE FROM base WHERE k = 101 AND c = 1")
    batches = [batch for batch in log("base_scylla_cdc_log") if batch[0]["k"] == 101]
    seen = [[(row["cdc$operation"], row["v"], row["w"]) for row in batch] for batch in batches]
    assert seen == [
        [(2, "a", 1), (9, "a", 1)],
        [(0, "a", 1), (1, None, 2), (9, "a", 2)],
        [(0, "a", 2), (3, None, None)],
    ], seen
    session.execute("ALTER TABLE base WITH cdc = {'enabled': true}")


def refused(statement, error, text):
    try:
        session.execute(statement)
    except error as refusal:
        assert text in str(refusal), refusal
    else:
        raise AssertionError(f"{statement} was taken")


def test_times_without_streams_are_refused():
    refused("UPDATE base USING TIMESTAMP 1 SET w = 1 WHERE k = 1 AND c = 1", InvalidRequest, 'a stream "from the past"')
    late = int((time.time() + 3600) * 1e6)
    refused(f"DELETE FROM base USING TIMESTAMP {late} WHERE k = 1", InvalidRequest, 'a stream "from the future"')


def test_nobody_but_the_server_writes_to_a_log():
    refused("DELETE FROM base_scylla_cdc_log WHERE \"cdc$stream_id\" = 0x00", Unauthorized, "only the server writes to it")
    refused("DROP TABLE base_scylla_cdc_log", Unauthorized, "Cannot DROP cdc log table")


def test_a_log_goes_with_its_table():
    session.execute("DROP TABLE base")
    names = read("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", KEYSPACE)
    assert [row["table_name"] for row in names] == ["copy"], names
    session.execute(f"DROP KEYSPACE {KEYSPACE}")


run_all(globals(), cluster.shutdown)
