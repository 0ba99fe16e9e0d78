"""Derived data under kill -9: a view, indexes of both kinds and a log of changes equal a recomputation of their base afterwards."""

import random
import subprocess
import threading
import time

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement
from world import KEYSPACE, Workers, check, wait_until

BASE = f"{KEYSPACE}.derived"
KEYS, ROWS, VALUES = 24, 4, 8
# Hints and batches reach a node that was down within half a minute of its start; a loaded machine may need some more.
SETTLED_SECONDS = 150

TABLES = (
    f"CREATE TABLE {BASE} (k int, c int, v int, s text, n int, PRIMARY KEY (k, c)) WITH cdc = {{'enabled': true}}",
    f"CREATE MATERIALIZED VIEW {BASE}_by_v AS SELECT * FROM {BASE} WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (v, k, c)",
    f"CREATE INDEX derived_s ON {BASE} (s)",
    f"CREATE CUSTOM INDEX derived_n ON {BASE} (n) USING 'StorageAttachedIndex'",
)

# Text, the names of its values, and its share of the statements.
STATEMENTS = (
    (f"INSERT INTO {BASE} (k, c, v, s, n) VALUES (?, ?, ?, ?, ?)", "kcvsn", 4),
    (f"UPDATE {BASE} SET v = ? WHERE k = ? AND c = ?", "vkc", 4),
    (f"UPDATE {BASE} SET s = ?, n = ? WHERE k = ? AND c = ?", "snkc", 4),
    (f"DELETE v, n FROM {BASE} WHERE k = ? AND c = ?", "kc", 1),
    (f"DELETE FROM {BASE} WHERE k = ? AND c = ?", "kc", 2),
    (f"DELETE FROM {BASE} WHERE k = ?", "k", 1),
)


class Changes(Workers):
    """Clients that change random rows at QUORUM; each has its own partitions, so that their changes have an order."""

    def __init__(self, session, seed, threads=4):
        super().__init__(threads)
        self.session, self.seed, self.per_thread = session, seed, KEYS // threads
        self.prepared = [(session.prepare(text), names) for text, names, _ in STATEMENTS]
        self.shares = [share for _, _, share in STATEMENTS]
        self.lock, self.acknowledged, self.failures = threading.Lock(), 0, []

    def work(self, number):
        draw = random.Random(f"{self.seed} {number}")
        while not self.stopping.is_set():
            statement, names = draw.choices(self.prepared, self.shares)[0]
            value = draw.randrange(VALUES)
            key = number * self.per_thread + draw.randrange(self.per_thread)
            drawn = {"k": key, "c": draw.randrange(ROWS), "v": value, "s": f"s{value}", "n": draw.randrange(VALUES)}
            try:
                self.session.execute(statement, [drawn[name] for name in names])
                with self.lock:
                    self.acknowledged += 1
            except Exception as error:  # noqa: BLE001 - it may have happened or not
                with self.lock:
                    self.failures.append(f"{type(error).__name__}: {error}")
            time.sleep(0.002)


def rows(session, query, level=ConsistencyLevel.ALL):
    return [tuple(row) for row in session.execute(SimpleStatement(query, consistency_level=level, fetch_size=500))]


def base_rows(session):
    return {row[:2]: row[2:] for row in rows(session, f"SELECT k, c, v, s, n FROM {BASE}")}


def differences_of_view(session, base):
    found = {row[:2]: row[2:] for row in rows(session, f"SELECT k, c, v, s, n FROM {BASE}_by_v")}
    expected = {key: row for key, row in base.items() if row[0] is not None}
    return [(key, found.get(key), expected.get(key)) for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]


def differences_of_index(session, base, column, position, literal):
    """The values for which the index has other rows than a filter over the base, each at QUORUM, as an application reads them."""
    wrong = []
    for value in range(VALUES):
        condition = literal.format(value)
        query = f"SELECT k, c FROM {BASE} WHERE {column} = {condition}"
        found = sorted(rows(session, query, ConsistencyLevel.QUORUM))
        expected = sorted(key for key, row in base.items() if str(row[position]) == condition.strip("'"))
        if found != expected:
            wrong.append((condition, found, expected))
    return wrong


def replayed(session):
    """The base as the log of changes gives it: its rows applied by the order of their times."""
    query = (
        'SELECT "cdc$time" AS at, "cdc$batch_seq_no" AS number, "cdc$operation" AS operation, k, c, v, s, n,'
        ' "cdc$deleted_v" AS no_v, "cdc$deleted_s" AS no_s, "cdc$deleted_n" AS no_n'
        f" FROM {BASE}_scylla_cdc_log"
    )
    log = list(session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.ALL, fetch_size=500)))
    log.sort(key=lambda row: (row.at.time, row.at.bytes, row.number))
    state, inserted = {}, set()
    for row in log:
        key = (row.k, row.c)
        if row.operation in (1, 2):
            cells = state.setdefault(key, {})
            for name in "vsn":
                if getattr(row, name) is not None:
                    cells[name] = getattr(row, name)
                elif getattr(row, "no_" + name):
                    cells.pop(name, None)
            if row.operation == 2:
                inserted.add(key)
        elif row.operation in (3, 4):
            for gone in [one for one in state if one[0] == row.k and (row.operation == 4 or one == key)]:
                state.pop(gone)
                inserted.discard(gone)
        else:
            raise AssertionError(f"operation {row.operation} of no statement of this test")
    return {key: tuple(cells.get(name) for name in "vsn") for key, cells in state.items() if cells or key in inserted}, len(log)


def verify(session, torc, address):
    """Waits until all that is derived equals its base; the sizes that were compared."""
    last = {}

    def equal():
        base = base_rows(session)
        replay, last["log"] = replayed(session)
        last["rows"] = len(base)
        last["wrong"] = {
            "view": differences_of_view(session, base)[:3],
            "index of s": differences_of_index(session, base, "s", 1, "'s{}'")[:3],
            "storage-attached index of n": differences_of_index(session, base, "n", 2, "{}")[:3],
            "log of changes": [(key, replay.get(key), base.get(key)) for key in replay.keys() | base.keys() if replay.get(key) != base.get(key)][:3],
        }
        return not any(last["wrong"].values())

    end = time.monotonic() + SETTLED_SECONDS
    while not equal():
        check(time.monotonic() < end, f"derived data differs from its base (found, expected) after {SETTLED_SECONDS} s: {last['wrong']}")
        time.sleep(2)
    for verb, table in (("verifyview", "derived_by_v"), ("verifycdc", "derived")):
        command = [torc, "nodetool", "-h", address, verb, KEYSPACE, table]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SETTLED_SECONDS)
        check(done.returncode == 0, f"{verb}: {done.stdout}{done.stderr}")
    check(last["rows"] > 0 and last["log"] > 0, f"there is something to compare: {last}")
    return f"{last['rows']} rows and {last['log']} of the log compared"


def create(session):
    for statement in TABLES:
        session.execute(statement)
    # The log's first generation of streams begins after the table: earlier writes would be refused.
    probe = f"INSERT INTO {BASE} (k, c) VALUES (-1, 0)"
    wait_until(lambda: accepts(session, probe), "the log of changes accepts writes", 30)


def accepts(session, statement):
    try:
        session.execute(statement)
        return True
    except Exception:  # noqa: BLE001 - asked again
        return False


def killed(world):
    """Writers at QUORUM while each node is killed and comes back, and at last all at once."""
    create(world.session)
    nodes = world.nodes
    with Changes(world.session, time.time_ns()) as changes:
        for at in range(len(nodes.all)):
            time.sleep(2)
            nodes.all[at].kill()
            time.sleep(3)
            nodes.start(at)
            world.sees(at)
        for node in nodes.all:
            node.kill()
    check(changes.acknowledged > 100, f"{changes.acknowledged} changes were acknowledged, {changes.failures[:3]}")
    for at in range(len(nodes.all)):
        nodes.start(at)
    for at in range(len(nodes.all)):
        world.sees(at)
    return f"{changes.acknowledged} changes, {len(changes.failures)} uncertain, {verify(world.session, nodes.torc, nodes.addresses[0])}"


SCENARIOS = (("derived data under kill -9", killed),)
