"""Words and full text with the Python driver: `texts.py HOST PORT torc`.

Random texts; the results of indexes with analyzers, of several indexes together and of ORDER BY BM25(…) are compared with the texts themselves,
in memory and on disk, after changes and deletions.
"""

import math
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

HOST, PORT = sys.argv[1], int(sys.argv[2])
NODES = int(os.environ.get("TEST_NODES", "1"))
KEYSPACE = "texts_" + uuid.uuid4().hex[:10]
ROWS = 3_000
WORDS = [f"word{n}" for n in range(200)]

random.seed(int(os.environ.get("TEST_SEED", "1")))
profile = ExecutionProfile(
    load_balancing_policy=RoundRobinPolicy(), request_timeout=30, consistency_level=ConsistencyLevel.QUORUM
)
cluster = Cluster([HOST], port=PORT, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
session = cluster.connect()
rows = {}


def sentence():
    # Few words are frequent and many are rare.
    return " ".join(WORDS[int(len(WORDS) * random.random() ** 3)] for _ in range(random.randint(1, 20)))


def write(wanted):
    insert = session.prepare("INSERT INTO items (k, c, kind, size, body) VALUES (?, ?, ?, ?, ?)")
    values = [(at % 50, at, at % 7, at % 100, sentence()) for at in wanted]
    for success, outcome in execute_concurrent_with_args(session, insert, values, concurrency=50):
        assert success, outcome
    rows.update({at: (at % 7, at % 100, text.split()) for (_, at, _, _, text) in values})


def wait_for(statement):
    until = time.monotonic() + 60
    while True:
        try:
            return list(session.execute(statement))
        except Exception as error:
            if time.monotonic() > until:
                raise error
            time.sleep(0.2)


def found(statement, *values):
    result = [row.c for row in session.execute(statement, values)]
    assert len(result) == len(set(result)), "a row comes twice"
    return set(result)


def compare():
    for _ in range(10):
        a, b = random.sample(WORDS[:60], 2)
        wanted = {at for at, (_, _, words) in rows.items() if a in words and b in words}
        assert found("SELECT c FROM items WHERE body : %s", f"{b} {a}") == wanted, (a, b)
        with_kind = {at for at in wanted if rows[at][0] == 3}
        assert found("SELECT c FROM items WHERE body : %s AND kind = 3", f"{b} {a}") == with_kind, (a, b)
        both = {at for at, (kind, size, _) in rows.items() if kind == 2 and size >= 90}
        assert found("SELECT c FROM items WHERE kind = 2 AND size >= 90") == both
        part = random.choice(WORDS)[2:]
        like = {at for at, (_, _, words) in rows.items() if any(part in word for word in words)}
        assert found("SELECT c FROM parts WHERE body LIKE %s", f"%{part}%") == like, part
    select = session.prepare("SELECT c, body FROM items WHERE BM25(body, ?) > 0 ORDER BY BM25(body, ?) LIMIT 1000")
    for _ in range(10):
        a, b = random.sample(WORDS[20:], 2)
        for query, holds in [
            (f"{a} {b}", lambda words: a in words or b in words),
            (f"{a} AND {b}", lambda words: a in words and b in words),
            (f"{a} -{b}", lambda words: a in words and b not in words),
            (f'"{a} {b}"', lambda words: any(one == (a, b) for one in zip(words, words[1:]))),
            (f"{a}*", lambda words: any(word.startswith(a) for word in words)),
        ]:
            result = [row.c for row in session.execute(select, [query, query])]
            wanted = {at for at, (_, _, words) in rows.items() if holds(words)}
            assert len(wanted) < 1000 and set(result) == wanted and len(result) == len(wanted), query
        mean = sum(len(words) for _, _, words in rows.values()) / len(rows)
        weight = lambda at: rows[at][2].count(a) * 2.2 / (rows[at][2].count(a) + 1.2 * (0.25 + 0.75 * len(rows[at][2]) / mean))  # noqa: E731
        order = [weight(row.c) for row in session.execute(select, [a, a])]
        # Older versions of texts count in the mean length.
        assert all(x >= y - 0.05 for x, y in zip(order, order[1:])), a
        top = [row.c for row in session.execute(f"SELECT c FROM items ORDER BY BM25(body, %s) LIMIT 5", [a])]
        assert len(top) == min(5, len(order)) and math.isclose(weight(top[0]), order[0], abs_tol=0.05), a


def test_tables():
    replication = f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {min(NODES, 3)}}}"
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
    session.set_keyspace(KEYSPACE)
    columns = "(k int, c int, kind int, size int, body text, PRIMARY KEY (k, c))"
    session.execute(f"CREATE TABLE items {columns}")
    session.execute(f"CREATE TABLE parts {columns}")
    for column in ("kind", "size"):
        session.execute(f"CREATE INDEX ON items ({column}) USING 'sai'")
    session.execute("CREATE CUSTOM INDEX ON items (body) USING 'sai' WITH OPTIONS = {'index_analyzer': 'standard'}")
    session.execute("CREATE CUSTOM INDEX items_text ON items (body) USING 'fulltext_index'")
    session.execute(
        "CREATE CUSTOM INDEX ON parts (body) USING 'org.apache.cassandra.index.sasi.SASIIndex' WITH OPTIONS = {'mode': 'CONTAINS'}"
    )
    wait_for("SELECT c FROM items WHERE body : 'a' AND kind = 1 AND size > 1")
    wait_for("SELECT c FROM items ORDER BY BM25(body, 'a') LIMIT 1")
    wait_for("SELECT c FROM parts WHERE body LIKE '%a%'")


def copy_parts():
    insert = session.prepare("INSERT INTO parts (k, c, body) VALUES (?, ?, ?)")
    values = [(at % 50, at, " ".join(words)) for at, (_, _, words) in rows.items()]
    for success, outcome in execute_concurrent_with_args(session, insert, values, concurrency=50):
        assert success, outcome


def test_texts_in_memory():
    write(range(ROWS))
    copy_parts()
    compare()


def test_updates_and_deletions():
    write(random.sample(range(ROWS), 500))
    copy_parts()
    for at in random.sample(sorted(rows), 100):
        for table in ("items", "parts"):
            session.execute(f"DELETE FROM {table} WHERE k = {at % 50} AND c = {at}")
        del rows[at]
    compare()


def test_read_your_write():
    for n in range(50):
        word = f"unique{n}x{uuid.uuid4().hex[:8]}"
        session.execute("INSERT INTO items (k, c, body) VALUES (%s, %s, %s)", (1, 1_000_000 + n, f"a {word}"))
        assert found("SELECT c FROM items ORDER BY BM25(body, %s) LIMIT 5", word) == {1_000_000 + n}
        session.execute("DELETE FROM items WHERE k = 1 AND c = %s", (1_000_000 + n,))
        assert found("SELECT c FROM items ORDER BY BM25(body, %s) LIMIT 5", word) == set()


def test_indexes_that_are_built_later():
    session.execute("DROP INDEX items_text")
    session.execute("CREATE CUSTOM INDEX items_later ON items (body) USING 'fulltext_index' WITH OPTIONS = {'analyzer': 'english'}")
    wait_for("SELECT c FROM items ORDER BY BM25(body, 'a') LIMIT 1")
    compare()


def test_refusals():
    for statement in (
        "SELECT c FROM items ORDER BY BM25(body, '(a') LIMIT 1",
        "SELECT c FROM items ORDER BY BM25(body, 'a')",
        "SELECT c FROM parts WHERE BM25(body, 'a') > 0 ORDER BY BM25(body, 'a') LIMIT 1",
        "CREATE CUSTOM INDEX ON parts (c) USING 'fulltext_index'",
    ):
        try:
            session.execute(statement)
        except InvalidRequest:
            continue
        raise AssertionError(f"{statement} is not refused")
    session.execute(f"DROP KEYSPACE {KEYSPACE}")


run_all(globals(), cluster.shutdown)
