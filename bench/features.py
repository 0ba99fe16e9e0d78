#!/usr/bin/env python3
"""Features of CQL on Torc beside Apache Cassandra: the same statements on both, and the server's CPU a statement.

  bench/features.py [--quick] [--torc BINARY] [--only torc|cassandra] [--name NAME] [CASE...]

Each server runs alone on core 0, the Python driver on core 1, with many statements in flight. The driver is slower than the servers, so
that only CPU is compared: throughput and latency say nothing here. Each case is run until it is warm, then measured. Results go to
bench/results/features-NAME.md and .json.
"""

import argparse
import datetime
import itertools
import math
import os
import random
import socket
import struct
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))

from run import Failure, Pinned, begin, build, cpu_seconds, keep, say  # noqa: E402
from node import Oracle, Torc  # noqa: E402
from cassandra.auth import PlainTextAuthProvider  # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile  # noqa: E402
from cassandra.concurrent import execute_concurrent_with_args  # noqa: E402
from cassandra.policies import RoundRobinPolicy  # noqa: E402

IN_FLIGHT, SCANS_IN_FLIGHT = 64, 4
DIMENSIONS, CLUSTERS, NEIGHBOURS = 64, 40, 10
WORDS = [f"{a}{b}{c}" for a in "bdfklmnprst" for b in "aeiou" for c in "lmnrst"]
PASSWORD_OPTIONS = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}


@dataclass
class Case:
    """A statement and its values, with the tables and data that it needs."""

    name: str
    statement: str
    values: Callable[[random.Random, "Bench"], tuple]
    before: tuple = ()
    fill: tuple = ()
    # Statements that follow the data, whose CPU is reported as a build.
    built: tuple = ()
    # Rows that the answer must have; None when any number is right.
    rows: Callable[[list], bool] | None = None
    # Statements of one server only.
    torc: dict = field(default_factory=dict)
    cassandra: dict = field(default_factory=dict)
    goal: str = "8×"
    # Statements under way at once. Cassandra fails scans of a table when there are many.
    in_flight: int = IN_FLIGHT


def vector(rng, bench):
    centre = bench.centres[rng.randrange(CLUSTERS)]
    return [x + rng.gauss(0, 0.25) for x in centre]


def text_of(rng):
    return " ".join(rng.choices(WORDS, k=12))


def kv(rng, bench):
    return rng.randrange(bench.keys)


PAIR = "INSERT INTO kv (k, v, n) VALUES (?, ?, ?)"
VALUE = "x" * 100
KV = ("CREATE TABLE kv (k int PRIMARY KEY, v text, n int)",)
FILL_KV = (PAIR, lambda rng, bench: ((k, VALUE, k) for k in range(bench.keys)))
WIDE = ("CREATE TABLE wide (p int, c int, v int, PRIMARY KEY (p, c))",)
FILL_WIDE = ("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)", lambda rng, bench: ((p, c, c) for p in range(bench.rows // 1000) for c in range(1000)))
SASI = "USING 'org.apache.cassandra.index.sasi.SASIIndex' WITH OPTIONS = {'mode': 'CONTAINS', 'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.StandardAnalyzer', 'case_sensitive': 'false'}"
FUNCTION = "CREATE FUNCTION twice(v int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE {}"

CASES = [
    Case("write", PAIR, lambda r, b: (kv(r, b), VALUE, 1), KV, FILL_KV),
    Case("read", "SELECT * FROM kv WHERE k = ?", lambda r, b: (kv(r, b),), rows=lambda rows: len(rows) == 1),
    Case("conditional update (LWT)", "UPDATE kv SET n = ? WHERE k = ? IF EXISTS", lambda r, b: (1, kv(r, b)), rows=lambda rows: rows[0][0]),
    Case("INSERT JSON", "INSERT INTO kv JSON ?", lambda r, b: ('{"k": %d, "v": "%s", "n": 2}' % (kv(r, b), VALUE),)),
    Case("SELECT JSON", "SELECT JSON * FROM kv WHERE k = ?", lambda r, b: (kv(r, b),), rows=lambda rows: rows[0][0].startswith("{")),
    Case("GROUP BY over ROWS rows", "SELECT p, count(*), sum(v), max(v) FROM wide GROUP BY p", lambda r, b: (), WIDE, FILL_WIDE,
         rows=lambda rows: all(row[1] == 1000 and row[3] == 999 for row in rows), in_flight=SCANS_IN_FLIGHT),
    Case("count(*) of ROWS rows", "SELECT count(*) FROM wide", lambda r, b: (), rows=lambda rows: len(rows) == 1, in_flight=SCANS_IN_FLIGHT),
    Case("function over 100 rows (Lua; Java)", "SELECT twice(v) FROM wide WHERE p = ? LIMIT 100", lambda r, b: (r.randrange(b.rows // 1000),),
         torc={"before": (FUNCTION.format("lua AS 'return v * 2'"),)}, cassandra={"before": (FUNCTION.format("java AS 'return v * 2;'"),)},
         rows=lambda rows: [row[0] for row in rows] == list(range(0, 200, 2))),
    Case("write with a view", "INSERT INTO viewed (k, v, s) VALUES (?, ?, ?)", lambda r, b: (kv(r, b), r.randrange(1000), VALUE),
         ("CREATE TABLE viewed (k int PRIMARY KEY, v int, s text)",
          "CREATE MATERIALIZED VIEW by_v AS SELECT * FROM viewed WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)")),
    Case("write with captured changes (CDC)", "INSERT INTO captured (k, v, n) VALUES (?, ?, ?)", lambda r, b: (kv(r, b), VALUE, 1),
         torc={"before": ("CREATE TABLE captured (k int PRIMARY KEY, v text, n int) WITH cdc = {'enabled': true}",)},
         cassandra={"before": ("CREATE TABLE captured (k int PRIMARY KEY, v text, n int) WITH cdc = true",)}),
    Case("read of 10 rows by a secondary index", "SELECT k FROM indexed WHERE g = ?", lambda r, b: (r.randrange(b.keys // 10),),
         ("CREATE TABLE indexed (k int PRIMARY KEY, g int)", "CREATE INDEX indexed_g ON indexed (g)"),
         ("INSERT INTO indexed (k, g) VALUES (?, ?)", lambda rng, bench: ((k, k % (bench.keys // 10)) for k in range(bench.keys))),
         rows=lambda rows: len(rows) == 10),
    Case("two predicates by storage-attached indexes, ROWS rows", "SELECT k FROM attached WHERE a = ? AND b = ?",
         lambda r, b: (lambda k: (k % 1000, k % 97))(r.randrange(b.rows)),
         ("CREATE TABLE attached (k int PRIMARY KEY, a int, b int)",),
         ("INSERT INTO attached (k, a, b) VALUES (?, ?, ?)", lambda rng, bench: ((k, k % 1000, k % 97) for k in range(bench.rows))),
         ("CREATE INDEX attached_a ON attached (a) USING 'sai'", "CREATE INDEX attached_b ON attached (b) USING 'sai'"),
         rows=lambda rows: len(rows) >= 1),
    Case("word in a text (SASI)", "SELECT k FROM texts WHERE t LIKE ? LIMIT 10", lambda r, b: (f"%{r.choice(WORDS)}%",),
         ("CREATE TABLE texts (k int PRIMARY KEY, t text)", f"CREATE CUSTOM INDEX texts_t ON texts (t) {SASI}"),
         ("INSERT INTO texts (k, t) VALUES (?, ?)", lambda rng, bench: ((k, text_of(rng)) for k in range(bench.keys))),
         rows=lambda rows: len(rows) == 10),
    Case("nearest neighbours (ANN)", f"SELECT k FROM nearest ORDER BY v ANN OF ? LIMIT {NEIGHBOURS}", lambda r, b: (vector(r, b),),
         (f"CREATE TABLE nearest (k int PRIMARY KEY, v vector<float, {DIMENSIONS}>)", "CREATE INDEX nearest_v ON nearest (v) USING 'sai'"),
         ("INSERT INTO nearest (k, v) VALUES (?, ?)", lambda rng, bench: enumerate(bench.vectors)), rows=lambda rows: len(rows) == NEIGHBOURS),
]  # fmt: skip


class Bench:
    """Options, and the data that both servers get."""

    def __init__(self, options):
        self.seconds, self.heat = (3, 4) if options.quick else (8, 25)
        self.keys, self.rows = (5_000, 50_000) if options.quick else (20_000, 1_000_000)
        rng = random.Random(7)
        self.centres = [[rng.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(CLUSTERS)]
        self.vectors = [vector(rng, self) for _ in range(self.keys)]

    def shown(self, name):
        return name.replace("ROWS", f"{self.rows:,}")


def connect(host, auth=None):
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=600)
    return Cluster([host], protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, auth_provider=auth)


def run_all(session, prepared, values, judge=None, in_flight=IN_FLIGHT):
    """Runs a statement for each tuple of values; the number of answers, all of which were right."""
    count = 0
    for good, result in execute_concurrent_with_args(session, prepared, values, concurrency=in_flight, results_generator=True):
        if not good:
            raise Failure(f"{prepared.query_string}: {result}")
        if judge and not judge(list(result)):
            raise Failure(f"{prepared.query_string}: a wrong answer")
        count += 1
    return count


def for_seconds(seconds, make):
    """Values until the time is over."""
    end = time.monotonic() + seconds
    while True:
        yield make()
        if time.monotonic() > end:
            return


def measure(case, bench, session, server, is_torc):
    """CPU of a case in microseconds: a statement, and a row of its data and of what is built over it."""
    own, rng, result = (case.torc if is_torc else case.cassandra), random.Random(3), {}
    for statement in (*case.before, *own.get("before", ())):
        session.execute(statement)
    if "CDC" in case.name:
        time.sleep(3)
    if case.fill:
        text, rows = case.fill
        begun = cpu_seconds(server.pid)
        count = run_all(session, session.prepare(text), rows(rng, bench))
        result["fill_micros_per_row"] = (cpu_seconds(server.pid) - begun) * 1e6 / count
    if case.built:
        begun = cpu_seconds(server.pid)
        for statement in case.built:
            session.execute(statement)
        settle(server.pid)
        result["build_micros_per_row"] = (cpu_seconds(server.pid) - begun) * 1e6 / bench.rows / len(case.built)
    prepared = session.prepare(case.statement)
    make = lambda: case.values(rng, bench)  # noqa: E731
    run_all(session, prepared, for_seconds(bench.seconds if is_torc else bench.heat, make), case.rows, case.in_flight)
    begun = cpu_seconds(server.pid)
    count = run_all(session, prepared, for_seconds(bench.seconds, make), case.rows, case.in_flight)
    result["micros"], result["count"] = (cpu_seconds(server.pid) - begun) * 1e6 / count, count
    if "ANN" in case.name:
        result["recall"] = recall(bench, session, prepared)
    return result


def settle(pid):
    """Waits until a server works no more."""
    while True:
        before = cpu_seconds(pid)
        time.sleep(2)
        if cpu_seconds(pid) - before < 0.1:
            return


def recall(bench, session, prepared):
    """The part of the true nearest neighbours by cosine that the index finds, of 50 queries."""
    rng, found = random.Random(11), 0

    def unit(v):
        length = math.sqrt(sum(x * x for x in v))
        return [x / length for x in v]

    units = [unit(v) for v in bench.vectors]
    for _ in range(50):
        query = vector(rng, bench)
        direction = unit(query)
        likeness = [sum(map(float.__mul__, direction, u)) for u in units]
        best = set(sorted(range(len(units)), key=likeness.__getitem__)[-NEIGHBOURS:])
        found += len(best & {row[0] for row in session.execute(prepared, (query,))})
    return found / 50 / NEIGHBOURS


def frame(stream, opcode, body):
    return struct.pack(">BBhBi", 4, 0, stream, opcode, len(body)) + body


def log_in(host):
    """One login by STARTUP and AUTH_RESPONSE of protocol v4."""
    with socket.create_connection((host, 9042), 30) as connection:
        options = struct.pack(">HH11sH5s", 1, 11, b"CQL_VERSION", 5, b"3.0.0")
        token = b"\0cassandra\0cassandra"
        for opcode, body, expected in ((1, options, 3), (15, struct.pack(">i", len(token)) + token, 16)):
            connection.sendall(frame(1, opcode, body))
            head = connection.recv(9, socket.MSG_WAITALL)
            connection.recv(struct.unpack(">i", head[5:])[0], socket.MSG_WAITALL)
            if head[4] != expected:
                raise Failure(f"a login was answered with opcode {head[4]}")


def secured(bench, server):
    """The cost of a read with permissions, and of a login."""
    auth = PlainTextAuthProvider("cassandra", "cassandra")
    end = time.monotonic() + 60
    while True:
        try:
            log_in(server.server.host)
            break
        except (Failure, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(1)
    results = {}
    with connect(server.server.host, auth) as cluster:
        session = open_keyspace(cluster)
        session.execute("CREATE ROLE reader WITH PASSWORD = 'reader' AND LOGIN = true")
        session.execute(KV[0])
        session.execute("GRANT SELECT ON TABLE bench.kv TO reader")
        run_all(session, session.prepare(PAIR), FILL_KV[1](None, bench))
    with connect(server.server.host, PlainTextAuthProvider("reader", "reader")) as cluster:
        case = next(case for case in CASES if case.name == "read")
        results["read with permissions"] = measure(case, bench, cluster.connect("bench"), server, isinstance(server.server, Torc))
    for seconds in (bench.heat, bench.seconds):
        begun, count, end = cpu_seconds(server.pid), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            log_in(server.server.host)
            count += 1
    results["login"] = {"micros": (cpu_seconds(server.pid) - begun) * 1e6 / count, "count": count}
    return results


def open_keyspace(cluster):
    session = cluster.connect()
    session.execute("CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.set_keyspace("bench")
    return session


def all_cases(bench, server, wanted):
    results = {}
    with connect(server.server.host) as cluster:
        session = open_keyspace(cluster)
        for case in CASES:
            # Later cases use the tables of earlier ones.
            if wanted and case.name not in wanted and not case.fill:
                continue
            results[case.name] = measure(case, bench, session, server, isinstance(server.server, Torc))
            say(f"{type(server.server).__name__}: {bench.shown(case.name)}: {results[case.name]}")
    return results


def run(name, bench, options, folder):
    """All figures of one server, in two lives: without and with passwords."""
    results = {}
    for secure in (False, True):
        place = os.path.join(folder, f"{name}-{secure}")
        os.makedirs(place)
        if name == "torc":
            extra = [part for key, value in PASSWORD_OPTIONS.items() if secure for part in (f"--{key}", value)]
            server = Torc(options.torc, place, host=options.address, shards=1, options=("--user_defined_functions_enabled", "true", *extra))
        else:
            lines = {"cdc_enabled": "true", **(PASSWORD_OPTIONS if secure else {})}
            extra = "".join(f"{key}: {value}\n" for key, value in lines.items())
            server = Oracle(place, host=options.address, environment={"HEAP": "2G", "EXTRA": extra})
        pinned = Pinned(server, 0, options.nice)
        server.start(600)
        try:
            results |= secured(bench, pinned) if secure else all_cases(bench, pinned, options.case)
        finally:
            server.stop(60)
    return results


def markdown(results, bench):
    torc, cassandra = (results["servers"].get(name, {}) for name in ("torc", "cassandra"))
    lines = [
        f"# Features of CQL beside Cassandra, {results['date']}",
        "",
        f"{results['machine']}, commit {results['commit']}. CPU of the server, microseconds. Load average at the start {results['load_average_before']:.1f}, "
        f"at the end {results['load_average_after']:.1f}." + (" A quick run: little data, and Cassandra barely warm." if results["quick"] else ""),
        "",
        "| | Torc | Cassandra 5.0.6 | ratio | goal |",
        "|---|---:|---:|---:|---:|",
    ]
    goals = {case.name: case.goal for case in CASES}

    def row(title, figure, name, digits=1, goal="8×"):
        left, right = (server.get(name, {}).get(figure) for server in (torc, cassandra))
        ratio = f"{right / left:.1f}×" if left and right and figure != "recall" else ""
        cells = ["–" if value is None else f"{value:,.{digits}f}" for value in (left, right)]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {ratio} | {goal} |")

    for name in dict.fromkeys(itertools.chain(torc, cassandra)):
        row(bench.shown(name), "micros", name, goal=goals.get(name, "8×"))
        if any("build_micros_per_row" in server.get(name, {}) for server in (torc, cassandra)):
            row(f"{bench.shown(name)}: building an index, a row", "build_micros_per_row", name)
        if "ANN" in name:
            row("nearest neighbours: an insertion", "fill_micros_per_row", name)
            row("nearest neighbours: recall of 10", "recall", name, 3, "0.95")
    plain = {name: server.get("write", {}).get("micros") for name, server in results["servers"].items()}
    for case, goal in (("write with a view", "2.5"), ("write with captured changes (CDC)", "1.7")):
        shares = [results["servers"].get(name, {}).get(case, {}).get("micros", 0) / plain[name] if plain.get(name) else 0 for name in ("torc", "cassandra")]
        lines.append(f"| {case}, in plain writes | {shares[0]:.2f} | {shares[1]:.2f} | | at most {goal} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data and short runs, for a look")
    parser.add_argument("--torc", help="the program (built when not given)")
    parser.add_argument("--only", choices=["torc", "cassandra"], help="measure one server only")
    parser.add_argument("--name", default=datetime.date.today().isoformat(), help="name of the results")
    parser.add_argument("--address", default="127.0.5.6", help="loopback address of the servers")
    parser.add_argument("--nice", type=int, default=-15, help="niceness of the servers (-15)")
    parser.add_argument("case", nargs="*", help="all when none is named")
    options = parser.parse_args()
    options.torc = options.torc or build()
    os.sched_setaffinity(0, {1})
    bench, results = Bench(options), begin(options.quick)
    with tempfile.TemporaryDirectory(prefix="torc-features-") as folder:
        for name in ("torc", "cassandra"):
            if options.only in (None, name):
                results["servers"][name] = run(name, bench, options, folder)
    results["load_average_after"] = os.getloadavg()[0]
    keep(results, f"features-{options.name}", markdown(results, bench))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bench: {failure}")
