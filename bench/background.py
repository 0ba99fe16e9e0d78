#!/usr/bin/env python3
"""Latency of an open loop on one node while work runs in the background: flushes, compactions, DDL, snapshots, a node that joins, a repair.

  bench/background.py [--quick] [--torc BINARY] [--rate OPS] [--name NAME]

The node has core 0, the client core 1. First the node's capacity is measured; the open loop then has half of it. In each phase one kind
of work is repeated as long as the loop runs. The table has p50, p99, p99.9 and the greatest latency of each phase, its p99 beside that at
rest, how steady the rate was, and the longest poll of a shard, from the log. The node that joins and the repair share the client's core.
Results go to bench/results/NAME.md and NAME.json (NAME is background-DATE).
"""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.path.insert(0, HERE)

from cassandra.cluster import Cluster  # noqa: E402
from environment import Failure  # noqa: E402
from node import STALLED, Torc  # noqa: E402
from run import Pinned, Run, begin, keep, pinned, say  # noqa: E402

KEYSPACE = "torc_bench"
# The ratio of p99 to that at rest, and the poll in milliseconds, that the project aims at.
RATIO_GOAL, POLL_GOAL = 1.5, 2
TABLES = 1_000
# With a second node the open loop has this part of its rate.
PART_OF_TWO_NODES = 8


class Background:
    """A node, and the work that runs on it beside the load."""

    def __init__(self, run, server):
        self.run, self.server = run, server
        self.stop, self.rounds, self.failure = threading.Event(), 0, None
        self.second = None

    def nodetool(self, *words):
        done = subprocess.run(
            [self.run.torc, "nodetool", "-h", self.server.server.host, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            raise Failure(f"nodetool {' '.join(words)}: {done.stdout}")

    def flush(self):
        self.nodetool("flush", KEYSPACE)
        self.stop.wait(0.5)

    def compact(self):
        self.nodetool("compact", KEYSPACE)

    def snapshot(self):
        self.nodetool("snapshot", "-t", f"background{self.rounds}", KEYSPACE)
        self.nodetool("clearsnapshot", "-t", f"background{self.rounds}", KEYSPACE)

    def ddl(self):
        name = f"background_ddl.t{self.rounds}"
        self.session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v text)")
        self.session.execute(f"ALTER TABLE {name} ADD w int")
        self.session.execute(f"DROP TABLE {name}")

    def repair(self):
        self.nodetool("repair", KEYSPACE)

    def join(self):
        if self.second is None:
            folder = os.path.join(self.run.folder, "second")
            os.makedirs(folder)
            start, last = self.server.server.host.rsplit(".", 1)
            self.second = Torc(self.run.torc, folder, f"{start}.{int(last) + 1}", 1, ("--seeds", self.server.server.host))
            self.second.command = pinned(self.run.options.client_core, 10, self.second.command)
            self.second.start(600)
        self.stop.wait(1)

    def connect(self):
        """A session for DDL, and the tables that the schema has beside those of the load."""
        cluster = Cluster([self.server.server.host])
        self.session = cluster.connect()
        self.session.default_timeout = 60
        self.session.execute("CREATE KEYSPACE IF NOT EXISTS background_ddl WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        tables = 50 if self.run.options.quick else TABLES
        say(f"creating {tables} tables")
        for at in range(tables):
            self.session.execute(f"CREATE TABLE background_ddl.other{at} (k int PRIMARY KEY, v text)")
        return cluster

    def repeat(self, work):
        """The work over and over, until the load has ended."""
        try:
            while not self.stop.is_set():
                work()
                self.rounds += 1
        except Exception as error:  # it is reported with the phase
            self.failure = error

    def phase(self, name, work, arguments, seconds):
        """One phase: the figures of the load, with the longest poll meanwhile and how often the work was done."""
        log = self.server.server.log
        position = os.path.getsize(log)
        self.stop.clear()
        self.rounds, self.failure = 0, None
        worker = threading.Thread(target=self.repeat, args=(work,)) if work else None
        if worker:
            worker.start()
        try:
            figures = self.run.load(self.server, [*arguments, "--no-load"], seconds, 2, self.run.options.value_size)
        finally:
            self.stop.set()
            if worker:
                worker.join(600)
        if self.failure:
            raise Failure(f"{name}: {self.failure}")
        if work and not self.rounds:
            raise Failure(f"{name}: the work did not end once while the load ran")
        figures["rounds"] = self.rounds
        figures["poll_millis"], where = polls(log, position)
        if where:
            say(f"{name}: the longest poll: {where}")
        say(f"{name}: {describe(figures)}")
        return figures


def polls(path, position):
    """The longest poll in a log from a position on: milliseconds by the wall, and of CPU time; and the line of the latter."""
    wall, cpu, where = 0, 0, None
    with open(path, encoding="utf-8", errors="replace") as log:
        log.seek(position)
        for line in log:
            found = STALLED.search(line)
            if found:
                wall = max(wall, int(found[1]))
                if int(found[2]) > cpu:
                    cpu, where = int(found[2]), line.strip()
    return {"wall": wall, "cpu": cpu}, where


def latency(figures, quantile):
    """Of the slower kind of operation, in milliseconds."""
    return max(kind[quantile] for kind in figures["latency_micros"].values()) / 1000


def describe(figures):
    shown = ", ".join(f"{name} {latency(figures, name):.2f}" for name in ("p50", "p99", "p999", "max"))
    return f"{shown} ms, longest poll {figures['poll_millis']['cpu']} ms, {figures['rounds']} rounds"


def markdown(results, options):
    """The report."""
    rest = results["phases"]["at rest"]
    lines = [
        f"# Latency beside work in the background, {results['date']}",
        "",
        f"{results['machine']}, commit {results['commit']}, {options.keys:,} keys of {options.value_size:,} bytes, one shard. The open loop has "
        f"{results['rate']:,} operations a second of a capacity of {results['capacity']:,.0f}, half of them writes; milliseconds, of the slower "
        f"kind. Load average at the start {results['load_average_before']:.1f}. Goals: p99 at most {RATIO_GOAL} × that at rest during flushes and "
        f"compactions, no poll above {POLL_GOAL} ms (0: none above {options.poll_millis} ms). From the node that joins on the loop has an eighth of "
        "the rate: the second node shares the client's core.",
        "",
        "| meanwhile | rounds | p50 | p99 | × rest | p99.9 | max | rate, variation by second | longest poll, CPU (wall) |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, figures in results["phases"].items():
        p50, p99, p999, most = (latency(figures, quantile) for quantile in ("p50", "p99", "p999", "max"))
        polls = figures["poll_millis"]
        lines.append(
            f"| {name} | {figures['rounds'] or ''} | {p50:.2f} | {p99:.2f} | {p99 / latency(rest, 'p99'):.1f} | {p999:.2f} | {most:.1f} "
            f"| {100 * (figures['rate_variation'] or 0):.1f} % | {polls['cpu']} ({polls['wall']}) |"
        )
    errors = [
        f"- {name}: {kind}: {error['count']} ({error['first']})"
        for name, figures in results["phases"].items() for kind, error in figures["errors"].items()
    ]  # fmt: skip
    return "\n".join([*lines, *(["", "Errors:", "", *errors] if errors else [])]) + "\n"


def measure(background, options, results):
    """All phases."""
    run, server = background.run, background.server
    seconds = 5 if options.quick else options.seconds
    say("capacity")
    full = run.load(server, ["mixed", "-c", "8", "-f", "32"], seconds, 2, options.value_size)
    results["capacity"] = full["operations_per_second"]
    results["rate"] = options.rate or int(results["capacity"] / 2)
    loop = ["mixed", "-c", "32", "-f", "64", "--rate", str(results["rate"])]
    phases = results["phases"] = {}
    # The second node takes its CPU from the client's core.
    smaller = ["mixed", "-c", "32", "-f", "64", "--rate", str(results["rate"] // PART_OF_TWO_NODES)]
    phases["at rest"] = background.phase("at rest", None, loop, seconds)
    phases["flushes"] = background.phase("flushes", background.flush, loop, seconds)
    phases["major compactions"] = background.phase("major compactions", background.compact, loop, seconds)
    phases["snapshots"] = background.phase("snapshots", background.snapshot, loop, seconds)
    cluster = background.connect()
    try:
        phases["DDL"] = background.phase("DDL", background.ddl, loop, seconds)
        phases["a node joins"] = background.phase("a node joins", background.join, smaller, max(seconds, 20))
        phases["two nodes at rest"] = background.phase("two nodes at rest", None, smaller, seconds)
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 2}"
        background.session.execute(f"ALTER KEYSPACE {KEYSPACE} WITH replication = {replication}")
        time.sleep(5)
        phases["repairs"] = background.phase("repairs", background.repair, smaller, max(seconds, 20))
    finally:
        cluster.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short phases and 50 tables, for a look")
    parser.add_argument("--torc", help="the program (built when not given)")
    parser.add_argument("--rate", type=int, help="operations a second (half of the capacity)")
    parser.add_argument("--name", default=f"background-{datetime.date.today().isoformat()}", help="name of the results")
    parser.add_argument("--address", default="127.0.5.20", help="loopback address of the node; the second has the next one")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--value-size", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=30, help="length of each phase")
    parser.add_argument("--poll-millis", type=int, default=2, help="polls from this length on are logged")
    parser.add_argument("--nice", type=int, default=-15, help="niceness of node and client alike (-15)")
    options = parser.parse_args()
    if options.quick:
        options.keys = min(options.keys, 20_000)
    results = begin(options.quick)
    folder = tempfile.mkdtemp(prefix="torc-background-")
    background = None
    try:
        run = Run(options, folder)
        place = os.path.join(folder, "first")
        os.makedirs(place)
        flags = ("--blocked_reactor_notify_ms", str(options.poll_millis))
        server = Pinned(Torc(run.torc, place, options.address, 1, flags), options.server_core, options.nice)
        server.server.start(60)
        background = Background(run, server)
        measure(background, options, results)
    finally:
        if background and background.second:
            background.second.stop(60)
        if background:
            background.server.server.stop(60)
        shutil.rmtree(folder, ignore_errors=True)
    results["load_average_after"] = os.getloadavg()[0]
    keep(results, options.name, markdown(results, options))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bench: {failure}")
