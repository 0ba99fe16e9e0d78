"""Kills a node in the middle of writing, again and again, and reads acknowledged writes back.

  kill9.py --torc BINARY [--rounds 100] [--seed N]

Each round starts the server on the same directory, checks every key by scans and some by their partition, writes from two
drivers with many requests in flight while the node's memtables are flushed and its files merged, and sends SIGKILL at a
random moment. A key has at most one request in flight,
so after the restart it holds either the value acknowledged last or that of the one request; nothing else. Deletions
stay, counters are off by at most the one increment, and a logged batch is there wholly or not at all.
"""

import argparse
import itertools
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra import DriverException  # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable  # noqa: E402
from cassandra.policies import FallthroughRetryPolicy, RoundRobinPolicy  # noqa: E402

from environment import Failure  # noqa: E402
from node import ADDRESS, CQL_PORT, Torc, Workspace  # noqa: E402

KEYSPACE = "kill9"
SLOTS = 96
KEYS_PER_SLOT = 12
DRIVERS = 2
# Partitions that a check also reads by their key.
PARTITIONS_READ = 16


class Key:
    """The state of one key: the one that was acknowledged last, and perhaps one that may or may not be there."""

    __slots__ = ("known", "pending")

    def __init__(self, known):
        self.known, self.pending = known, None

    def allows(self, found):
        return found == self.known or (self.pending is not None and found == self.pending[0])

    def settle(self, found):
        self.known, self.pending = found, None


class Lost(Exception):
    """The database broke its promise."""


class Model:
    """Everything that was acknowledged. `None` is a row that is not there."""

    def __init__(self):
        self.rows = {(slot, key): Key(None) for slot in range(SLOTS) for key in range(KEYS_PER_SLOT)}
        self.counters = {slot: Key(0) for slot in range(SLOTS)}
        self.pairs = {slot: Key(None) for slot in range(SLOTS)}
        self.acknowledged = 0
        self.versions = itertools.count(1)


class Writer:
    """The load of one round: every slot has one request in flight, and sends the next when that is answered."""

    def __init__(self, session, model, rng, slots):
        self.session, self.model, self.rng, self.slots = session, model, rng, slots
        self.lock = threading.Lock()
        self.stopped = False
        self.acknowledged = 0
        prepare = session.prepare
        self.put = prepare("INSERT INTO rows (p, c, v, pad) VALUES (?, ?, ?, ?)")
        self.drop = prepare("DELETE FROM rows WHERE p = ? AND c = ?")
        self.drop_range = prepare("DELETE FROM rows WHERE p = ? AND c >= ? AND c < ?")
        self.count = prepare("UPDATE counters SET n = n + ? WHERE k = ?")
        self.pair = prepare(
            "BEGIN BATCH INSERT INTO pairs (k, v) VALUES (?, ?); INSERT INTO pairs (k, v) VALUES (?, ?); APPLY BATCH"
        )

    def start(self):
        for slot in self.slots:
            self.send(slot)

    def send(self, slot):
        with self.lock:
            if self.stopped:
                return
            statement, values, touched = self.choose(slot)
        future = self.session.execute_async(statement, values)
        future.add_callbacks(lambda _: self.done(slot, touched), lambda _: None)

    def choose(self, slot):
        """The next request of a slot, and the keys that it changes."""
        model, rng = self.model, self.rng
        version, draw = next(model.versions), rng.random()
        if draw < 0.6:
            key = rng.randrange(KEYS_PER_SLOT)
            touched = [self.expect(model.rows[slot, key], version)]
            pad = bytes([version % 256]) * rng.choice((10, 100, 2000))
            return self.put, (slot, key, version, pad), touched
        if draw < 0.72:
            key = rng.randrange(KEYS_PER_SLOT)
            return self.drop, (slot, key), [self.expect(model.rows[slot, key], None)]
        if draw < 0.77:
            first = rng.randrange(KEYS_PER_SLOT)
            last = min(KEYS_PER_SLOT, first + rng.randint(1, 5))
            touched = [self.expect(model.rows[slot, key], None) for key in range(first, last)]
            return self.drop_range, (slot, first, last), touched
        if draw < 0.9:
            step = rng.choice((1, 1000))
            counter = model.counters[slot]
            return self.count, (step, slot), [self.expect(counter, counter.known + step)]
        touched = [self.expect(model.pairs[slot], version)]
        return self.pair, (slot, version, slot + SLOTS, version), touched

    @staticmethod
    def expect(key, state):
        key.pending = (state,)
        return key

    def done(self, slot, touched):
        with self.lock:
            if self.stopped:
                return
            for key in touched:
                key.settle(key.pending[0])
            self.acknowledged += 1
        self.send(slot)

    def stop(self):
        """No answer counts any more; how many did."""
        with self.lock:
            self.stopped = True
            return self.acknowledged


def connect():
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(), retry_policy=FallthroughRetryPolicy(), request_timeout=20
    )
    cluster = Cluster(
        [ADDRESS], port=CQL_PORT, protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=10, control_connection_timeout=10, schema_metadata_enabled=False, token_metadata_enabled=False,
    )  # fmt: skip
    return cluster, cluster.connect()


def create(session):
    session.execute(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    for table in (
        "rows (p int, c int, v bigint, pad blob, PRIMARY KEY (p, c))",
        "counters (k int PRIMARY KEY, n counter)",
        "pairs (k int PRIMARY KEY, v bigint)",
    ):
        session.execute(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{table}")


def check(session, model, rng):
    """Reads everything and holds it against the model; then the found state is the known one."""
    rows = {(row.p, row.c): row for row in session.execute("SELECT p, c, v, pad FROM rows")}
    unknown = set(rows) - set(model.rows)
    if unknown:
        raise Lost(f"rows that nobody wrote: {sorted(unknown)[:5]}")
    for place, key in model.rows.items():
        row = rows.get(place)
        found = None if row is None else row.v
        expect(f"row {place}", key, found)
        if row is not None and any(byte != row.v % 256 for byte in row.pad):
            raise Lost(f"row {place}: the value is not the one that was written with version {row.v}")
    one = session.prepare("SELECT c, v FROM rows WHERE p = ?")
    for slot in rng.sample(range(SLOTS), PARTITIONS_READ):
        found = {(slot, row.c): row.v for row in session.execute(one, (slot,))}
        scanned = {place: row.v for place, row in rows.items() if place[0] == slot}
        if found != scanned:
            raise Lost(f"partition {slot} holds {found} by its key, {scanned} in a scan")
    counters = {row.k: row.n for row in session.execute("SELECT k, n FROM counters")}
    for slot, key in model.counters.items():
        expect(f"counter {slot}", key, counters.get(slot, 0))
    pairs = {row.k: row.v for row in session.execute("SELECT k, v FROM pairs")}
    for slot, key in model.pairs.items():
        if pairs.get(slot) != pairs.get(slot + SLOTS):
            raise Lost(f"half a batch: {slot} holds {pairs.get(slot)}, {slot + SLOTS} holds {pairs.get(slot + SLOTS)}")
        expect(f"pair {slot}", key, pairs.get(slot))


def expect(what, key, found):
    if not key.allows(found):
        pending = "" if key.pending is None else f", or {key.pending[0]} which was in flight"
        raise Lost(f"{what} holds {found}; acknowledged was {key.known}{pending}")
    key.settle(found)


def post(path):
    """Asks the node to flush or compact; it may be dead by then."""
    try:
        request = urllib.request.Request(f"http://{ADDRESS}:10000/storage_service/{path}/{KEYSPACE}", method="POST")
        urllib.request.urlopen(request, timeout=5).read()
    except (urllib.error.URLError, OSError):
        pass


def maintain(server, rng, ended):
    """Flushes and merges until the end."""
    while not ended.wait(rng.uniform(0, 0.15)) and server.is_running():
        post(rng.choice(("keyspace_flush", "keyspace_flush", "keyspace_compaction")))


def round_of(server, model, rng, is_first):
    """One round; how many writes were acknowledged in it."""
    server.start()
    connections = [connect() for _ in range(DRIVERS)]
    ended = threading.Event()
    try:
        if is_first:
            create(connections[0][1])
        for _, session in connections:
            session.set_keyspace(KEYSPACE)
        check(connections[0][1], model, rng)
        writers = []
        for number, (_, session) in enumerate(connections):
            slots = range(number, SLOTS, DRIVERS)
            writers.append(Writer(session, model, random.Random(rng.random()), slots))
        for writer in writers:
            writer.start()
        # Two of three rounds are disturbed; the others leave everything to the log.
        maintainer = threading.Thread(target=maintain, args=(server, random.Random(rng.random()), ended))
        if rng.random() < 0.67:
            maintainer.start()
        time.sleep(rng.uniform(0.02, 0.6))
        if not server.is_running():
            raise Lost(f"the server ended by itself with {server.process.returncode}")
        server.kill()
        time.sleep(0.03)  # answers that were sent before the end are still to be read
        done = sum(writer.stop() for writer in writers)
        ended.set()
        if maintainer.ident is not None:
            maintainer.join()
        return done
    finally:
        ended.set()
        for cluster, _ in connections:
            cluster.shutdown()


def run(server, rounds, seed):
    rng, model = random.Random(seed), Model()
    begun = time.monotonic()
    for number in range(1, rounds + 1):
        model.acknowledged += round_of(server, model, rng, number == 1)
        if number % 10 == 0:
            print(f"kill9: {number} kills, {model.acknowledged} acknowledged writes, {time.monotonic() - begun:.0f} s", flush=True)
    server.start()
    cluster, session = connect()
    session.set_keyspace(KEYSPACE)
    check(session, model, rng)
    cluster.shutdown()
    if server.stop() != 0:
        raise Lost(f"after SIGTERM the server ended with {server.process.returncode}")
    if model.acknowledged < rounds:
        raise Lost(f"only {model.acknowledged} writes were acknowledged: the test shows nothing")
    return model.acknowledged


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    with Workspace("kill9") as folder:
        # Small segments: many of them are begun, ended and taken again between two kills.
        server = Torc(options.torc, folder, options=("--commitlog_segment_size", "8MiB"))
        try:
            acknowledged = run(server, options.rounds, options.seed)
        except (Lost, Failure, DriverException, NoHostAvailable) as error:
            print(f"FAIL kill9 (seed {options.seed}): {type(error).__name__}: {error}\n{server.log_tail()}")
            sys.exit(1)
        finally:
            server.kill()
        print(f"kill9: {options.rounds} kills, {acknowledged} acknowledged writes, none lost")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"kill9: {failure}")
