"""The Python drivers against a running node: `client.py HOST PORT torc|cassandra`.

The same program runs under `cassandra-driver` and under `scylla-driver`, which share the module name `cassandra` and
so have environments of their own. With `torc`, scylla-driver must find every shard.
"""

import decimal
import ipaddress
import os
import sys
import threading
import time
import uuid
from datetime import datetime, timedelta

from cassandra import (
    AlreadyExists,
    ConsistencyLevel,
    FunctionFailure,
    InvalidRequest,
    OperationTimedOut,
    ProtocolVersion,
    ReadFailure,
    Unavailable,
)
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import FallthroughRetryPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import SyntaxException
from cassandra.query import (
    BatchStatement,
    BatchType,
    SimpleStatement,
    UNSET_VALUE,
    dict_factory,
    tuple_factory,
)
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time, uuid_from_time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import check, finish  # noqa: E402

HOST, PORT, FLAVOUR = sys.argv[1], int(sys.argv[2]), sys.argv[3]
NODES = int(os.environ.get("TEST_NODES", "1"))
IS_SCYLLA_DRIVER = hasattr(Cluster, "is_shard_aware")
KEYSPACE = "py_" + uuid.uuid4().hex[:10]


def equal(found, expected, what=""):
    if found != expected:
        raise AssertionError(f"{what} found {found!r}, expected {expected!r}")


def raises(kind, action, *words):
    """The error of `action`, which must be of `kind` and say `words` (in any case)."""
    try:
        action()
    except kind as error:
        for word in words:
            if word.lower() not in str(error).lower():
                raise AssertionError(f"{error!r} does not say {word!r}") from None
        return error
    raise AssertionError(f"no {kind} was raised")


def wait_until(condition, what, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen in {seconds} s")
        time.sleep(0.02)


def open_cluster(version=None, compression=True, **options):
    options.setdefault("schema_event_refresh_window", 0)
    options.setdefault("topology_event_refresh_window", 0)
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        request_timeout=30,
        row_factory=options.pop("row_factory", tuple_factory),
    )
    if version is not None:
        options["protocol_version"] = version
    return Cluster(
        [HOST],
        port=PORT,
        compression=compression,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        control_connection_timeout=20,
        connect_timeout=20,
        **options,
    )


cluster = open_cluster(ProtocolVersion.V5)
session = cluster.connect()


def rows(statement, values=None, **options):
    return list(session.execute(statement, values, **options))


# One column a type: its name, its CQL type, and values that must come back as they went.
def type_table():
    one, two = uuid.UUID(int=1), uuid.uuid4()
    timed = uuid_from_time(1_700_000_000.5)
    return [
        ("a_ascii", "ascii", ["", "plain", "x" * 5000]),
        ("a_bigint", "bigint", [0, -1, 2**63 - 1, -(2**63)]),
        ("a_blob", "blob", [b"", b"\x00\xff" * 300]),
        ("a_boolean", "boolean", [True, False]),
        ("a_date", "date", [Date(0), Date("1969-07-20"), Date("9999-12-31"), Date(-(2**31))]),
        ("a_decimal", "decimal", [decimal.Decimal(text) for text in ("0", "-1.50", "1E+20", "3.14159265358979323846")]),
        ("a_double", "double", [0.0, -1.5, 1e308, float("inf"), float("-inf")]),
        ("a_duration", "duration", [Duration(0, 0, 0), Duration(14, 3, 5_000_000_007), Duration(-1, -2, -3)]),
        ("a_float", "float", [0.0, -1.5, 3.5, float("inf")]),
        ("a_inet", "inet", ["127.0.0.1", "255.1.2.3", "2001:db8::ff00:42:8329", "::"]),
        ("a_int", "int", [0, -1, 2**31 - 1, -(2**31)]),
        ("a_smallint", "smallint", [0, -1, 32767, -32768]),
        ("a_text", "text", ["", "žluťoučký kůň 🐎", "line\nline'quote"]),
        ("a_time", "time", [Time(0), Time("13:45:59.123456789"), Time(86_400_000_000_000 - 1)]),
        ("a_timestamp", "timestamp", [datetime(1970, 1, 1), datetime(2026, 11, 21, 5, 20, 0, 123000), datetime(1900, 1, 1)]),
        ("a_timeuuid", "timeuuid", [timed]),
        ("a_tinyint", "tinyint", [0, -1, 127, -128]),
        ("a_uuid", "uuid", [one, two]),
        ("a_varchar", "varchar", ["", "same as text"]),
        ("a_varint", "varint", [0, -1, 127, 128, -129, 2**200, -(2**200)]),
        ("c_list", "list<int>", [[1], [3, 1, 2, 2]]),
        ("c_set", "set<text>", [{"b", "a"}, {""}]),
        ("c_map", "map<text, bigint>", [{"a": 1, "b": -2}]),
        ("f_list", "frozen<list<timeuuid>>", [[timed, timed], []]),
        ("f_set", "frozen<set<double>>", [{1.5, -2.5}, set()]),
        ("f_map", "frozen<map<int, blob>>", [{1: b"x", -1: b""}, {}]),
        ("f_nested", "frozen<map<text, frozen<list<frozen<set<int>>>>>>", [{"a": [{1, 2}, set()], "": []}]),
        ("c_nested", "map<int, frozen<tuple<int, text>>>", [{1: (1, "x"), 2: (None, None)}]),
        ("t_tuple", "tuple<int, text, frozen<list<int>>>", [(1, "a", [1, 2]), (None, "b", None)]),
        ("v_float", "vector<float, 3>", [[1.0, -2.5, 0.0]]),
        ("v_text", "vector<text, 2>", [["", "longer"]]),
        ("v_nested", "vector<frozen<list<int>>, 2>", [[[1], [2, 3]]]),
        ("u_frozen", "frozen<address>", [("Main", 7, {"home": "1"}), (None, None, None)]),
        ("u_open", "address", [("Side", 8, {"work": "2"}), ("Only street", None, None)]),
        ("u_list", "list<frozen<address>>", [[("Main", 7, {"home": "1"}), ("x", 0, {})]]),
    ]


def plain(value):
    """A value without the driver's own containers, so that it compares with the sent one."""
    if isinstance(value, (OrderedMapSerializedKey, dict)):
        return {repr(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (SortedSet, set, frozenset)):
        return {"set": sorted(repr(plain(item)) for item in value)}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def test_connect():
    equal(rows("SELECT key FROM system.local"), [("local",)])
    equal(len(cluster.metadata.all_hosts()), NODES)
    version = rows("SELECT release_version, cql_version, native_protocol_version FROM system.local")[0]
    assert version[0][0].isdigit() and version[1].startswith("3."), version


def test_ddl():
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.set_keyspace(KEYSPACE)
    session.execute("CREATE TYPE address (street text, number int, phones frozen<map<text, text>>)")
    session.execute("CREATE TABLE t (k int, c int, v text, s text STATIC, PRIMARY KEY (k, c)) WITH comment = 'first' AND CLUSTERING ORDER BY (c DESC)")
    session.execute("ALTER TABLE t ADD extra map<text, int>")
    session.execute("ALTER TABLE t RENAME c TO cc")
    session.execute("ALTER TABLE t WITH gc_grace_seconds = 77")
    meta = cluster.metadata.keyspaces[KEYSPACE].tables["t"]
    equal(list(meta.columns), ["k", "cc", "extra", "s", "v"])
    equal([column.name for column in meta.clustering_key], ["cc"])
    assert meta.columns["cc"].is_reversed and meta.columns["s"].is_static
    equal(meta.options["gc_grace_seconds"], 77)
    equal(meta.options["comment"], "first")
    session.execute("ALTER TABLE t DROP extra")
    assert "extra" not in cluster.metadata.keyspaces[KEYSPACE].tables["t"].columns
    session.execute("ALTER TYPE address ADD zip text")
    equal(cluster.metadata.keyspaces[KEYSPACE].user_types["address"].field_names[-1], "zip")
    session.execute("CREATE TYPE gone (a int)")
    session.execute("DROP TYPE gone")
    assert "gone" not in cluster.metadata.keyspaces[KEYSPACE].user_types
    session.execute("CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)")
    session.execute("DROP TABLE IF EXISTS nothing_here")
    text = cluster.metadata.keyspaces[KEYSPACE].tables["t"].as_cql_query()
    assert "CLUSTERING ORDER BY (cc DESC)" in text, text


def test_types():
    columns = type_table()
    body = ", ".join(f"{name} {kind}" for name, kind, _ in columns)
    session.execute(f"CREATE TABLE types (id int PRIMARY KEY, {body})")
    for position, (name, kind, values) in enumerate(columns):
        insert = session.prepare(f"INSERT INTO types (id, {name}) VALUES (?, ?)")
        select = session.prepare(f"SELECT {name} FROM types WHERE id = ?")
        for index, value in enumerate(values):
            key = position * 100 + index
            sent = value + (None,) if name.startswith("u_") and isinstance(value, tuple) else value
            if name == "u_list":
                sent = [item + (None,) for item in value]
            session.execute(insert, (key, sent))
            found = rows(select, (key,))[0][0]
            equal(plain(found), plain(sent), f"{kind}:")
        session.execute(insert, (position * 100 + 99, None))
        equal(rows(select, (position * 100 + 99,)), [(None,)], f"null {kind}:")
    # A collection that is not frozen and holds nothing is null.
    session.execute("INSERT INTO types (id, c_list, c_set, c_map) VALUES (-1, [], {}, {})")
    equal(rows("SELECT c_list, c_set, c_map FROM types WHERE id = -1"), [(None, None, None)])


def test_types_as_literals():
    literals = {
        "a_ascii": ("'x'", "x"),
        "a_blob": ("0xCAFE", b"\xca\xfe"),
        "a_date": ("'2026-11-21'", Date("2026-11-21")),
        "a_decimal": ("-1.50", decimal.Decimal("-1.50")),
        "a_double": ("NaN", None),
        "a_duration": ("1y2mo3w4d5h6m7s8ms9us10ns", Duration(14, 25, 18_367_008_009_010)),
        "a_inet": ("'::1'", "::1"),
        "a_time": ("'01:02:03.000000004'", Time("01:02:03.000000004")),
        "a_timestamp": ("'2026-11-21 05:20:00.123+0100'", datetime(2026, 11, 21, 4, 20, 0, 123000)),
        "a_uuid": ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
        "a_text": ("$$it's$$", "it's"),
        "t_tuple": ("(1, 'a', [1])", (1, "a", [1])),
        "v_float": ("[1, 2.5, -3]", [1.0, 2.5, -3.0]),
        "u_open": ("{street: 'S', number: 3}", ("S", 3, None, None)),
    }
    for name, (literal, expected) in literals.items():
        session.execute(f"INSERT INTO types (id, {name}) VALUES (-2, {literal})")
        found = rows(f"SELECT {name} FROM types WHERE id = -2")[0][0]
        if name == "a_double":
            assert found != found, found
        else:
            equal(plain(found), plain(expected), f"{name}:")


def test_udt_as_class():
    class Address:
        def __init__(self, street, number, phones, zip):
            self.street, self.number, self.phones, self.zip = street, number, phones, zip

    cluster.register_user_type(KEYSPACE, "address", Address)
    insert = session.prepare("INSERT INTO types (id, u_frozen) VALUES (?, ?)")
    session.execute(insert, (-3, Address("Main", 5, {"a": "b"}, "10000")))
    found = rows("SELECT u_frozen FROM types WHERE id = -3")[0][0]
    equal((type(found), found.street, found.number, dict(found.phones), found.zip), (Address, "Main", 5, {"a": "b"}, "10000"))


def test_collections():
    session.execute("CREATE TABLE coll (k int PRIMARY KEY, l list<int>, s set<int>, m map<text, int>)")
    for text in (
        "INSERT INTO coll (k, l, s, m) VALUES (1, [1, 2], {1, 2}, {'a': 1})",
        "UPDATE coll SET l = l + [3], s = s + {3}, m = m + {'b': 2} WHERE k = 1",
        "UPDATE coll SET l = [0] + l, s = s - {1}, m['c'] = 3 WHERE k = 1",
        "UPDATE coll SET l[1] = 11, m = m - {'a'} WHERE k = 1",
        "DELETE l[0], m['b'] FROM coll WHERE k = 1",
    ):
        session.execute(text)
    found = rows("SELECT l, s, m FROM coll WHERE k = 1")[0]
    equal((list(found[0]), set(found[1]), dict(found[2])), ([11, 2, 3], {2, 3}, {"c": 3}))
    equal(rows("SELECT m['c'], s[2], m['none'] FROM coll WHERE k = 1"), [(3, 2, None)])


def test_prepared():
    session.execute("CREATE TABLE prep (k int, c text, v int, PRIMARY KEY (k, c))")
    positional = session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)")
    session.execute(positional, (1, "a", 10))
    named = session.prepare("INSERT INTO prep (k, c, v) VALUES (:key, :cluster, :value)")
    session.execute(named, {"key": 1, "cluster": "b", "value": 20})
    equal([column.name for column in named.column_metadata], ["key", "cluster", "value"])
    equal(positional.routing_key_indexes, [0])
    select = session.prepare("SELECT c, v FROM prep WHERE k = ? AND c > ? LIMIT ?")
    equal(rows(select, (1, "a", 5)), [("b", 20)])
    many = session.prepare("SELECT c FROM prep WHERE k IN ? AND c IN ?")
    equal(rows(many, ([1, 2], ["b", "a", "z"])), [("a",), ("b",)])
    equal(rows("SELECT v FROM prep WHERE k = %s AND c = %s", (1, "a")), [(10,)])
    session.execute(positional, (2, "u", UNSET_VALUE))
    equal(rows("SELECT v FROM prep WHERE k = 2"), [(None,)])
    session.execute(positional, (1, "a", UNSET_VALUE))
    equal(rows("SELECT v FROM prep WHERE k = 1 AND c = 'a'"), [(10,)])
    stamped = session.prepare("UPDATE prep USING TIMESTAMP ? AND TTL ? SET v = ? WHERE k = ? AND c = ?")
    session.execute(stamped, (2**50, 1000, 5, 3, "t"))
    (stamp, ttl) = rows("SELECT writetime(v), ttl(v) FROM prep WHERE k = 3")[0]
    assert stamp == 2**50 and 990 <= ttl <= 1000, (stamp, ttl)


def test_batches():
    session.execute("CREATE TABLE bat (k int, c int, v int, PRIMARY KEY (k, c))")
    session.execute("CREATE TABLE cnt (k int PRIMARY KEY, n counter, m counter)")
    insert = session.prepare("INSERT INTO bat (k, c, v) VALUES (?, ?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(batch_type=kind)
        for index in range(20):
            batch.add(insert, (kind.value, index, index))
        batch.add("DELETE FROM bat WHERE k = %s AND c = 19", (kind.value,))
        batch.add(SimpleStatement(f"INSERT INTO bat (k, c, v) VALUES ({kind.value}, 100, 1)"))
        session.execute(batch)
        equal(len(rows("SELECT c FROM bat WHERE k = %s", (kind.value,))), 20)
    counters = BatchStatement(batch_type=BatchType.COUNTER)
    bump = session.prepare("UPDATE cnt SET n = n + ? WHERE k = ?")
    for _ in range(3):
        counters.add(bump, (7, 1))
    counters.add("UPDATE cnt SET m = m - 1 WHERE k = 1")
    session.execute(counters)
    equal(rows("SELECT k, n, m FROM cnt"), [(1, 21, -1)])
    mixed = BatchStatement(batch_type=BatchType.LOGGED)
    mixed.add(bump, (7, 1))
    raises(InvalidRequest, lambda: session.execute(mixed), "counter")
    session.execute("BEGIN BATCH USING TIMESTAMP 42 INSERT INTO bat (k, c, v) VALUES (9, 1, 1); INSERT INTO bat (k, c, v) VALUES (9, 2, 2) APPLY BATCH")
    equal(rows("SELECT c, writetime(v) FROM bat WHERE k = 9"), [(1, 42), (2, 42)])


def test_counters():
    add = session.prepare("UPDATE cnt SET n = n + ? WHERE k = 2")
    for result in execute_concurrent_with_args(session, add, [(step,) for step in range(100)], concurrency=16):
        assert result.success, result
    equal(rows("SELECT n FROM cnt WHERE k = 2"), [(4950,)])
    session.execute("DELETE FROM cnt WHERE k = 2")
    equal(rows("SELECT n FROM cnt WHERE k = 2"), [])
    raises(InvalidRequest, lambda: session.execute("INSERT INTO cnt (k, n) VALUES (1, 1)"), "counter")


PAGED_ROWS = 10_000


def test_paging():
    session.execute("CREATE TABLE paged (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO paged (k, c, v) VALUES (?, ?, ?)")
    values = [(index % 4, index, "value %d" % index) for index in range(PAGED_ROWS)]
    results = execute_concurrent_with_args(session, insert, values, concurrency=64)
    assert all(result.success for result in results)
    for size in (777, 5000):
        found = rows(SimpleStatement("SELECT k, c FROM paged", fetch_size=size))
        equal(len(found), PAGED_ROWS)
        equal(len(set(found)), PAGED_ROWS)
    for order, expected in (("ASC", range(0, PAGED_ROWS, 4)), ("DESC", range(PAGED_ROWS - 4, -1, -4))):
        paged = SimpleStatement(f"SELECT c FROM paged WHERE k = 0 ORDER BY c {order}", fetch_size=100)
        equal([row[0] for row in session.execute(paged)], list(expected), order)
    # A page can be asked for by its state, from any session.
    one = SimpleStatement("SELECT c FROM paged WHERE k = 1", fetch_size=10)
    first = session.execute(one)
    equal(len(first.current_rows), 10)
    assert first.has_more_pages and first.paging_state
    second = session.execute(one, paging_state=first.paging_state)
    equal(second.current_rows[0], (41,))
    limited = rows(SimpleStatement("SELECT c FROM paged WHERE k = 1 LIMIT 25", fetch_size=10))
    equal(len(limited), 25)
    equal(rows(SimpleStatement("SELECT count(*) FROM paged", fetch_size=100)), [(PAGED_ROWS,)])
    per = rows(SimpleStatement("SELECT k, c FROM paged PER PARTITION LIMIT 3", fetch_size=2))
    equal(len(per), 12)


def test_errors():
    raises(SyntaxException, lambda: session.execute("SELEC * FROM t"), "line 1:0")
    raises(SyntaxException, lambda: session.execute("SELECT * FROM"))
    raises(InvalidRequest, lambda: session.execute("SELECT * FROM no_such_table"), "no_such_table")
    raises(InvalidRequest, lambda: session.execute("SELECT nope FROM t"), "nope")
    raises(InvalidRequest, lambda: session.execute("SELECT * FROM nowhere.t"), "nowhere")
    raises(InvalidRequest, lambda: session.execute("INSERT INTO prep (k, c, v) VALUES (1, 2, 3)"), "c")
    raises(InvalidRequest, lambda: session.execute("SELECT * FROM prep WHERE v = 1"), "ALLOW FILTERING")
    raises(InvalidRequest, lambda: session.execute("INSERT INTO prep (k) VALUES (1)"), "c")
    raises(InvalidRequest, lambda: session.prepare("SELECT * FROM no_such_table WHERE k = ?"), "no_such_table")
    raises(InvalidRequest, lambda: session.execute("CREATE TABLE bad (k nosuchtype PRIMARY KEY)"), "nosuchtype")
    error = raises(AlreadyExists, lambda: session.execute("CREATE TABLE prep (k int PRIMARY KEY)"))
    equal((error.keyspace, error.table), (KEYSPACE, "prep"))
    error = raises(AlreadyExists, lambda: session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"))
    equal((error.keyspace, error.table or None), (KEYSPACE, None))
    raises(InvalidRequest, lambda: session.execute("DROP TABLE no_such_table"), "no_such_table")
    raises(InvalidRequest, lambda: session.execute("USE no_such_keyspace"), "no_such_keyspace")
    bound = session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)")
    raises(Exception, lambda: session.execute(bound, ("not an int", "c", 1)))
    # After every error the connection still works.
    equal(rows("SELECT key FROM system.local"), [("local",)])


def test_unavailable():
    # So many copies that a quorum is one more than there are nodes.
    session.execute(f"CREATE KEYSPACE {KEYSPACE}_three WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {2 * NODES + 1}}}")
    try:
        session.execute(f"CREATE TABLE {KEYSPACE}_three.t (k int PRIMARY KEY, v int)")
        write = SimpleStatement(f"INSERT INTO {KEYSPACE}_three.t (k, v) VALUES (1, 1)", consistency_level=ConsistencyLevel.QUORUM, retry_policy=FallthroughRetryPolicy())
        error = raises(Unavailable, lambda: session.execute(write))
        equal((error.required_replicas, error.alive_replicas, error.consistency), (NODES + 1, NODES, ConsistencyLevel.QUORUM))
        write.consistency_level = ConsistencyLevel.ONE
        session.execute(write)
        for level in (ConsistencyLevel.ONE, ConsistencyLevel.LOCAL_ONE):
            read = SimpleStatement(f"SELECT v FROM {KEYSPACE}_three.t WHERE k = 1", consistency_level=level)
            # One replica has acknowledged it; another may be read.
            wait_until(lambda read=read: rows(read) == [(1,)], "the row is at every replica")
    finally:
        session.execute(f"DROP KEYSPACE {KEYSPACE}_three")


def test_reprepare():
    session.execute("CREATE TABLE rep (k int PRIMARY KEY, a int)")
    session.execute("INSERT INTO rep (k, a) VALUES (1, 1)")
    select = session.prepare("SELECT * FROM rep WHERE k = ?")
    equal(rows(select, (1,)), [(1, 1)])
    session.execute("ALTER TABLE rep ADD b text")
    session.execute("UPDATE rep SET b = 'new' WHERE k = 1")
    # Protocol 5 notifies the driver that the result has changed.
    equal(rows(select, (1,)), [(1, 1, "new")])
    equal(rows(select, (1,)), [(1, 1, "new")])
    # A table that went and came back makes the statement unknown: the driver prepares it again.
    insert = session.prepare("INSERT INTO rep (k, a) VALUES (?, ?)")
    session.execute("DROP TABLE rep")
    session.execute("CREATE TABLE rep (k int PRIMARY KEY, a int)")
    session.execute(insert, (5, 6))
    equal(rows("SELECT k, a FROM rep"), [(5, 6)])


def test_schema_events():
    other = open_cluster()
    watcher = other.connect()
    try:
        session.execute("CREATE TABLE seen (k int PRIMARY KEY)")
        seen = lambda: other.metadata.keyspaces[KEYSPACE].tables
        wait_until(lambda: "seen" in seen(), "CREATE TABLE event")
        session.execute("ALTER TABLE seen ADD v int")
        wait_until(lambda: "v" in seen()["seen"].columns, "ALTER TABLE event")
        session.execute("CREATE TYPE seen_type (a int)")
        wait_until(lambda: "seen_type" in other.metadata.keyspaces[KEYSPACE].user_types, "CREATE TYPE event")
        session.execute("DROP TABLE seen")
        wait_until(lambda: "seen" not in seen(), "DROP TABLE event")
        session.execute(f"CREATE KEYSPACE {KEYSPACE}_event WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}")
        wait_until(lambda: KEYSPACE + "_event" in other.metadata.keyspaces, "CREATE KEYSPACE event")
        session.execute(f"DROP KEYSPACE {KEYSPACE}_event")
        wait_until(lambda: KEYSPACE + "_event" not in other.metadata.keyspaces, "DROP KEYSPACE event")
        equal(list(watcher.execute("SELECT key FROM system.local")), [("local",)])
    finally:
        other.shutdown()


def test_metadata():
    tokens = cluster.metadata.token_map
    assert tokens and len(tokens.ring) >= 1, "no token map"
    hosts = cluster.metadata.all_hosts()
    for host in hosts:
        assert host.datacenter and host.rack and host.host_id and host.release_version, vars(host)
    replicas = cluster.metadata.get_replicas(KEYSPACE, b"\x00\x00\x00\x01")
    assert len(replicas) == 1 and replicas[0] in hosts, replicas
    assert cluster.metadata.partitioner.endswith("Murmur3Partitioner"), cluster.metadata.partitioner
    text = cluster.metadata.keyspaces[KEYSPACE].export_as_string()
    for word in ("CREATE KEYSPACE", "CREATE TYPE", "CREATE TABLE", "compaction"):
        assert word in text, text
    for keyspace in ("system", "system_schema", "system_traces"):
        assert keyspace in cluster.metadata.keyspaces, keyspace


def test_tracing():
    result = session.execute("SELECT * FROM prep WHERE k = 1", trace=True)
    trace = result.get_query_trace(max_wait_sec=10)
    assert trace.duration >= timedelta(0) and trace.started_at and trace.coordinator, vars(trace)
    assert trace.events, "the trace has no events"
    assert all(event.description and event.source for event in trace.events)


def test_warnings_and_payload():
    future = session.execute_async("SELECT count(*) FROM prep")
    future.result()
    assert future.warnings and "aggregation" in future.warnings[0].lower(), future.warnings
    future = session.execute_async("SELECT key FROM system.local", custom_payload={"a": b"1"})
    equal(len(future.result().current_rows), 1)


def test_json():
    session.execute("""INSERT INTO prep JSON '{"k": 50, "c": "j", "v": 5}'""")
    equal(rows("SELECT JSON * FROM prep WHERE k = 50"), [('{"k": 50, "c": "j", "v": 5}',)])
    equal(rows("SELECT toJson(v) FROM prep WHERE k = 50"), [("5",)])


def test_concurrency():
    session.execute("CREATE TABLE many (k int PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO many (k, v) VALUES (?, ?)")
    select = session.prepare("SELECT v FROM many WHERE k = ?")
    values = [(key, bytes([key % 256]) * (key % 3000)) for key in range(2000)]
    results = execute_concurrent_with_args(session, insert, values, concurrency=500)
    assert all(result.success for result in results)
    found = execute_concurrent_with_args(session, select, [(key,) for key, _ in values], concurrency=500)
    for (key, value), result in zip(values, found):
        equal(result.result_or_exc.one()[0], value, f"key {key}:")


def test_large_values():
    session.execute("CREATE TABLE large (k int PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO large (k, v) VALUES (?, ?)")
    for size in (131_071, 131_072, 1_000_000, 4_000_000, 10_000_000):
        value = bytes(range(256)) * (size // 256) + b"\x01" * (size % 256)
        session.execute(insert, (size, value))
        equal(rows("SELECT v FROM large WHERE k = %s", (size,))[0][0] == value, True, f"{size} bytes:")


def test_conditions():
    session.execute("CREATE TABLE lwt (k int PRIMARY KEY, v int)")
    statement = "INSERT INTO lwt (k, v) VALUES (1, 1) IF NOT EXISTS"
    if FLAVOUR == "cassandra":
        equal(rows(statement), [(True,)])
        equal(rows(statement), [(False, 1, 1)])
        return
    try:
        found = rows(statement)
    except InvalidRequest as error:
        assert "condition" in str(error).lower() or "lightweight" in str(error).lower() or " if" in str(error).lower(), error
        equal(rows("SELECT * FROM lwt"), [])
    else:
        equal(found, [(True,)])


def test_describe():
    found = session.execute("DESCRIBE TABLE prep").one()
    assert any(isinstance(value, str) and value.startswith("CREATE TABLE") for value in found), found
    found = [row for row in session.execute("DESCRIBE KEYSPACES")]
    assert any(KEYSPACE in row for row in found), found


def test_indexes():
    session.execute("CREATE TABLE ix (k int, c int, v text, n int, m map<text, int>, PRIMARY KEY (k, c))")
    for k in range(10):
        for c in range(20):
            session.execute(
                "INSERT INTO ix (k, c, v, n, m) VALUES (%s, %s, %s, %s, %s)", (k, c, "even" if c % 2 == 0 else "odd", c, {"k": k})
            )
    session.execute("CREATE INDEX ON ix (v)")
    session.execute("CREATE INDEX ix_n ON ix (n) USING 'sai'")
    session.execute("CREATE INDEX ix_m ON ix (entries(m)) USING 'sai'")
    session.execute("CREATE TABLE near (k int, c int, v text, PRIMARY KEY (k, c))")
    session.execute("CREATE INDEX ON near ((k), v)")
    for c in range(2000):
        session.execute("INSERT INTO near (k, c, v) VALUES (1, %s, %s)", (c, "rare" if c % 500 == 7 else "often"))
    raises(InvalidRequest, lambda: session.execute("CREATE INDEX again ON ix (v)"), "duplicate of existing index ix_v_idx")
    found = cluster.metadata.keyspaces[KEYSPACE].tables["ix"].indexes
    equal(sorted(found), ["ix_m", "ix_n", "ix_v_idx"], "indexes in the driver's metadata")
    equal(found["ix_n"].index_options["class_name"], "sai", "class of the index")

    def ready():
        conditions = {"n = 3": 10, "v = 'odd'": 100, "m['k'] = 4": 20}
        try:
            # An index is not available until it is built, on each replica.
            return all(
                len(rows(SimpleStatement(f"SELECT k FROM ix WHERE {condition}", consistency_level=ConsistencyLevel.ALL))) == count
                for condition, count in conditions.items()
            )
        except ReadFailure:
            return False

    wait_until(ready, "the indexes to be built")
    equal([row[0] for row in rows("SELECT c FROM near WHERE k = 1 AND v = 'rare'")], [7, 507, 1007, 1507], "a local index")
    raises(InvalidRequest, lambda: session.execute("SELECT c FROM near WHERE v = 'rare'"), "ALLOW FILTERING")
    target = session.execute(f"SELECT options FROM system_schema.indexes WHERE keyspace_name = '{KEYSPACE}' AND table_name = 'near'")
    equal(target.one()[0]["target"], '{"pk":["k"],"ck":["v"]}', "target of a local index")
    equal(sorted(row[0] for row in rows("SELECT c FROM ix WHERE n > 17")), [18] * 10 + [19] * 10, "a range")
    equal(len(rows("SELECT c FROM ix WHERE m['k'] = 4")), 20, "entries")
    paged = session.execute(SimpleStatement("SELECT k, c FROM ix WHERE v = 'odd'", fetch_size=7))
    equal(len({(row[0], row[1]) for row in paged}), 100, "pages")
    prepared = session.prepare("SELECT c FROM ix WHERE k = ? AND v = ?")
    equal(len(rows(prepared, (3, "odd"))), 10, "within a partition")
    session.execute("UPDATE ix SET v = 'odd' WHERE k = 1 AND c = 0")
    session.execute("DELETE FROM ix WHERE k = 2 AND c = 1")
    equal(len(rows("SELECT c FROM ix WHERE v = 'odd'")), 100, "after an update and a deletion")
    equal(len(rows("SELECT c FROM ix WHERE v = 'even'")), 99, "after an update")
    raises(InvalidRequest, lambda: session.execute("SELECT * FROM ix WHERE v = 'odd' AND n = 1"), "ALLOW FILTERING")
    session.execute("DROP INDEX ix_v_idx")
    raises(InvalidRequest, lambda: session.execute("SELECT * FROM ix WHERE v = 'odd'"), "ALLOW FILTERING")


def test_row_factory():
    other = open_cluster(row_factory=dict_factory)
    try:
        found = other.connect(KEYSPACE).execute("SELECT k AS key, v AS \"Value\" FROM prep WHERE k = 1 AND c = 'a'")
        equal(list(found), [{"key": 1, "Value": 10}])
    finally:
        other.shutdown()


def test_truncate():
    session.execute("TRUNCATE prep")
    equal(rows("SELECT * FROM prep"), [])


def test_protocol(version, compression):
    other = open_cluster(version, compression)
    try:
        link = other.connect(KEYSPACE)
        equal(other.protocol_version, version)
        text = "squeeze me " * 1000
        key = abs(hash((version, compression))) % 1_000_000 + 1000
        insert = link.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)")
        link.execute(insert, (key, text, 1))
        equal(list(link.execute("SELECT c, v FROM prep WHERE k = %s", (key,))), [(text, 1)])
        if version >= 4:
            link.execute(insert, (key, "unset", UNSET_VALUE))
        paged = SimpleStatement("SELECT c FROM paged WHERE k = 2", fetch_size=500)
        equal(len(list(link.execute(paged))), PAGED_ROWS // 4)
        raises(InvalidRequest, lambda: link.execute("SELECT * FROM no_such_table"), "no_such_table")
        raises(SyntaxException, lambda: link.execute("nonsense"), "line 1:0")
        raises(AlreadyExists, lambda: link.execute("CREATE TABLE prep (k int PRIMARY KEY)"))
        connection = next(iter(other.get_connection_holders()[0].get_connections()))
        if compression:
            assert connection.compressor is not None, "no compression was agreed on"
    finally:
        other.shutdown()


def test_fragments_of_mutations():
    if FLAVOUR == "cassandra":
        return  # a statement of ScyllaDB
    session.execute("CREATE TABLE fragments (k int, c int, v text, PRIMARY KEY (k, c))")
    for c in range(30):
        session.execute("INSERT INTO fragments (k, c, v) VALUES (1, %s, 'v') USING TIMESTAMP 5", (c,))
    session.execute("DELETE FROM fragments USING TIMESTAMP 6 WHERE k = 1 AND c > 10 AND c <= 12")
    # Each node shows its own data, so with several nodes all pages are asked of one: there is one page.
    columns = "mutation_fragment_kind, partition_region, c, position_weight, value, metadata"
    text = f"SELECT {columns} FROM MUTATION_FRAGMENTS(fragments) WHERE k = 1 AND mutation_source = 'memtable:0'"
    rows = list(session.execute(SimpleStatement(text, fetch_size=7 if NODES == 1 else 5000)))
    if NODES == 1:
        kinds = [row[0] for row in rows]
        equal(kinds[0], "partition start")
        equal(kinds[-1], "partition end")
        equal(kinds.count("clustering row"), 30)
        equal(kinds.count("range tombstone change"), 2)
        row = next(row for row in rows if row[2] == 3)
        equal(tuple(row[1:5]), (2, 3, 0, '{"v":"v"}'))
        assert '"is_live":true,"type":"regular","timestamp":5' in row[5], row[5]
    select = session.prepare("SELECT count(*) FROM MUTATION_FRAGMENTS(fragments) WHERE k = ?")
    assert session.execute(select, (1,)).one()[0] >= (34 if NODES == 1 else 0)
    raises(InvalidRequest, lambda: session.execute("SELECT ttl(value) FROM MUTATION_FRAGMENTS(fragments)"), "not supported")


def test_user_defined_functions():
    if FLAVOUR != "torc":
        return  # Cassandra has no functions in Lua
    create = "CREATE OR REPLACE FUNCTION {}({}) CALLED ON NULL INPUT RETURNS {} LANGUAGE lua AS $$ {} $$"
    session.execute("CREATE TABLE udf (k int PRIMARY KEY, v varint, m map<text, int>)")
    session.execute(create.format("twice", "v varint", "varint", "return v and v * 2"))
    session.execute(create.format("keys", "m map<text, int>", "list<text>", "local t = {} for k in pairs(m or {}) do t[#t + 1] = k end return t"))
    session.execute(create.format("more", "s varint, v varint", "varint", "return s + v"))
    session.execute("CREATE AGGREGATE total(varint) SFUNC more STYPE varint INITCOND 0")
    insert = session.prepare("INSERT INTO udf (k, v, m) VALUES (?, twice(?), ?)")
    for key in range(20):
        session.execute(insert, (key, 10**30 + key, {"b": 1, "a": key}))
    row = session.execute("SELECT twice(v) AS v, keys(m) AS m FROM udf WHERE k = 3").one()
    equal(tuple(row), (4 * (10**30 + 3), ["a", "b"]))
    equal(session.execute("SELECT total(v) FROM udf").one()[0], 2 * (20 * 10**30 + 190))
    # WebAssembly: numbers as themselves, a text by way of the module's memory.
    module = """(module (memory (export "memory") 2) (global (export "_scylla_abi") i32 (i32.const 0)) (data (i32.const 0) "\\02")
        (global $next (mut i32) (i32.const 64))
        (func (export "_scylla_malloc") (param i32) (result i32)
            (global.get $next) (global.set $next (i32.add (global.get $next) (local.get 0))))
        (func (export "_scylla_free") (param i32)) {})"""
    wasm = "CREATE FUNCTION {} LANGUAGE wasm AS $$ {} $$"
    square = module.format('(func (export "square") (param i32) (result i32) (i32.mul (local.get 0) (local.get 0)))')
    same = module.format('(func (export "same") (param i64) (result i64) (local.get 0))')
    session.execute(wasm.format("square(n int) RETURNS NULL ON NULL INPUT RETURNS int", square))
    session.execute(wasm.format("same(m map<text, int>) CALLED ON NULL INPUT RETURNS map<text, int>", same))
    row = session.execute("SELECT square(k) AS k, same(m) AS m FROM udf WHERE k = 7").one()
    equal((row[0], dict(row[1])), (49, {"a": 7, "b": 1}))
    spin = module.format('(func (export "spin") (param i32) (result i32) (loop (br 0)) (i32.const 0))')
    session.execute(wasm.format("spin(n int) RETURNS NULL ON NULL INPUT RETURNS int", spin))
    raises(FunctionFailure, lambda: session.execute("SELECT spin(k) FROM udf WHERE k = 1"), "ran longer than")
    raises(InvalidRequest, lambda: session.execute(wasm.format("none(n int) CALLED ON NULL INPUT RETURNS int", "(module)")), "memory")
    # A function that loops ends with an error, and other clients do not wait for it.
    session.execute(create.format("forever", "v varint", "varint", "while true do end"))
    began = time.time()
    looping = [session.execute_async("SELECT forever(v) FROM udf WHERE k = 1") for _ in range(4)]
    longest = 0
    for key in range(200):
        before = time.time()
        session.execute("SELECT v FROM udf WHERE k = %s", (key % 20,))
        longest = max(longest, time.time() - before)
    for future in looping:
        raises(FunctionFailure, future.result, "forever : (varint) -> varint ran longer than")
    assert time.time() - began > 0.3, "the loops ended before they could disturb anybody"
    assert longest < 0.5, f"a read beside looping functions took {longest:.3f} s"
    session.execute(create.format("bomb", "v varint", "varint", "local s = 'x' while true do s = s .. s end"))
    raises(FunctionFailure, lambda: session.execute("SELECT bomb(v) FROM udf WHERE k = 1"), "not enough memory")
    cluster.refresh_schema_metadata()
    functions = cluster.metadata.keyspaces[KEYSPACE].functions
    assert "twice(varint)" in functions and functions["twice(varint)"].language == "lua", functions
    session.execute("DROP FUNCTION twice")
    raises(InvalidRequest, lambda: session.execute(insert, (1, 1, {})), "nknown function")


def test_shards():
    assert cluster.is_shard_aware(), "the driver found no shards"

    def connected():
        stats = list(cluster.shard_aware_stats().values())
        return stats and all(entry["connected"] == entry["shards_count"] for entry in stats)

    wait_until(connected, "a connection to every shard")
    stats = cluster.shard_aware_stats().values()
    assert len(stats) == NODES and all(entry["shards_count"] >= 2 for entry in stats), stats
    host = cluster.metadata.all_hosts()[0]
    equal(host.sharding_info.partitioner.rsplit(".", 1)[-1], "Murmur3Partitioner")
    # The shard that the driver computes is the one that the connection is on.
    insert = session.prepare("INSERT INTO many (k, v) VALUES (?, ?)")
    for key in range(50):
        session.execute(insert, (key, b"s"))


def test_virtual_tables():
    query = "SELECT column_name, type FROM system_virtual_schema.columns WHERE keyspace_name = 'system_views' AND table_name = %s"
    for table, column in (("max_sstable_duration", "max_sstable_duration"), ("max_sstable_size", "mebibytes")):
        equal(dict(rows(query, (table,))), {"keyspace_name": "text", "table_name": "text", column: "bigint"}, table)
    found = dict(rows(query, ("snapshots",)))
    equal((found["created_at"], found["true_size"], found["ephemeral"]), ("timestamp", "bigint", "boolean"))
    if FLAVOUR != "torc":
        return
    found = rows("SELECT is_running, protocol, listen_addresses FROM system.protocol_servers WHERE name = 'native'")
    equal(found[0][:2], (True, "cql"))
    assert any(address.endswith(f":{PORT}") for address in found[0][2]), found
    equal(rows("SELECT compatible_version FROM system.versions"), [("5.0.6",)])
    # Two statements may go to two nodes, whose addresses differ; the rest is alike.
    settings = dict(rows("SELECT name, value FROM system_views.settings"))
    options = {name: (kind, value) for name, kind, value in rows("SELECT name, type, value FROM system.config")}
    assert set(settings) <= set(options), set(settings) - set(options)
    # Those with a unit are there by the names that have it, too, which are ScyllaDB's.
    by_unit = set(options) - set(settings)
    assert {options[name][0] for name in by_unit} == {"integer"}, by_unit
    equal(options["read_request_timeout_in_ms"], ("integer", "5000"))
    assert {"alternator_streams_time_window_s", "alternator_ttl_period_in_seconds"} <= by_unit, by_unit
    equal(options["num_tokens"], ("integer", settings["num_tokens"]))
    equal(options["auto_snapshot"], ("bool", settings["auto_snapshot"]))
    equal(options["cluster_name"], ("string", f'"{settings["cluster_name"]}"'))
    items = {(group, item): value for group, item, value in rows('SELECT "group", item, value FROM system.runtime_info')}
    used, free = int(items["memtable", "memory_used"]), int(items["memtable", "memory_free"])
    equal(used + free, int(items["memtable", "memory_total"]))
    assert items["generic", "uptime"].endswith(" seconds"), items
    ring = rows("SELECT start_token, end_token, endpoint FROM system.token_ring WHERE keyspace_name = %s", (KEYSPACE,))
    ranges = {(start, end) for start, end, _ in ring}
    equal(sorted(start for start, _ in ranges), sorted(end for _, end in ranges), "the ranges are a ring:")
    equal(len(ranges), len(cluster.metadata.token_map.ring))
    equal(len({endpoint for _, _, endpoint in ring}), NODES)


def test_idle_connection_survives():
    done = threading.Event()
    future = session.execute_async("SELECT key FROM system.local")
    future.add_callbacks(lambda _: done.set(), lambda _: None)
    assert done.wait(10)


def main():
    try:
        for name, test in list(globals().items()):
            if not name.startswith("test_") or name in ("test_protocol", "test_shards", "test_truncate"):
                continue
            check(name[5:], test)
        if IS_SCYLLA_DRIVER and FLAVOUR == "torc":
            check("shards", test_shards)
        for version in (3, 4, 5):
            for compression in (False, "lz4", "snappy"):
                if version == 5 and compression == "snappy":
                    continue  # protocol 5 has LZ4 only
                check(f"protocol_v{version}_{compression or 'plain'}", lambda: test_protocol(version, compression))
        check("truncate", test_truncate)
    finally:
        try:
            session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}", timeout=30)
        except (OperationTimedOut, Exception) as error:
            print(f"could not clean up: {error}")
        cluster.shutdown()
    finish()


main()
