#!/usr/bin/env python3
"""Three nodes of Torc beside three of Apache Cassandra: the same load, a node that joins, a repair.

  bench/cluster.py [--quick] [--torc BINARY] [--only torc|cassandra] [--name NAME]

Three copies of everything, QUORUM. The nodes of one database share core 0, the client has core 1; figures are the CPU of all nodes
(from /proc), for each operation, or for each megabyte that a fourth node fetches, or for the repair of a table of which one node lacks
one row in a hundred. Cassandra is warmed first. Results go to bench/results/NAME.md and NAME.json (NAME is cluster-DATE). Needs
cassandra-driver: `./dev bench cluster` brings it.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.path.insert(0, HERE)

from cassandra.cluster import Cluster  # noqa: E402
from environment import Failure  # noqa: E402
from node import Oracle, Torc, answers  # noqa: E402
from run import begin, build, cpu_seconds, keep, pinned, resident_megabytes, say  # noqa: E402

NODES = 3
# A JVM that shares its core may take minutes.
START_SECONDS = 900
VALUE_BYTES = 1000
# Name, workload, and which figure has which goal.
LOADS = [
    ("write at QUORUM", ["write", "-c", "8", "-f", "32"]),
    ("read at QUORUM", ["read", "-c", "8", "-f", "32"]),
]
OPEN_LOOP = ["mixed", "-c", "32", "-f", "64"]


def folder_megabytes(path):
    """The bytes of users' tables below a data directory."""
    total = 0
    for place, _, names in os.walk(path):
        if "torc_bench" in place and "snapshots" not in place:
            total += sum(os.path.getsize(os.path.join(place, name)) for name in names if name.endswith("Data.db"))
    return total / 1e6


class TorcCluster:
    """Nodes of Torc."""

    name, title, heat = "torc", "Torc", False

    def __init__(self, run):
        self.run, self.nodes = run, []

    def start(self, at):
        """Starts a node, or starts it again; the seconds until it lets clients in."""
        if at == len(self.nodes):
            self.nodes.append(self.make(at))
        return self.nodes[at].start(START_SECONDS)

    def make(self, at):
        place = os.path.join(self.run.folder, f"torc{at + 1}")
        os.makedirs(place)
        seeds = ("--seeds", self.run.address(0), "--hinted_handoff_enabled", "false", "--auto_repair_enabled", "false")
        node = Torc(self.run.torc, place, self.run.address(at), 1, seeds)
        node.command = pinned(self.run.options.server_core, self.run.options.nice, node.command)
        return node

    def nodetool(self, at, *words):
        return [self.run.torc, "nodetool", "-h", self.run.address(at), *words]

    def data(self, at):
        return self.nodes[at].data


class CassandraCluster(TorcCluster):
    """Nodes of Cassandra."""

    name, title, heat = "cassandra", "Cassandra", True

    def make(self, at):
        place = os.path.join(self.run.folder, f"cassandra{at + 1}")
        extra = "hinted_handoff_enabled: false\n"
        environment = {"HEAP": "1G", "SEEDS": self.run.address(0), "EXTRA": extra, "RING_DELAY": "30000" if at else "1000"}
        node = Oracle(place, self.run.address(at), environment)
        node.command = pinned(self.run.options.server_core, self.run.options.nice, node.command)
        return node

    def nodetool(self, at, *words):
        launcher = os.path.join(ROOT, "tests", "oracle", "cassandra")
        return ["env", f"JMX={self.nodes[at].environment['JMX']}", launcher, "nodetool", *words]

    def data(self, at):
        return os.path.join(self.nodes[at].folder, "data")


class Run:
    """The options, and one comparison."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.torc = os.path.abspath(options.torc or build())

    def address(self, at):
        start, last = self.options.address.rsplit(".", 1)
        return f"{start}.{int(last) + at}"

    def load(self, keyspace, *arguments, nodes=NODES):
        """One run of the load generator at QUORUM with three copies: its figures."""
        file = os.path.join(self.folder, "load.json")
        hosts = ",".join(self.address(at) for at in range(nodes))
        command = [
            *pinned(self.options.client_core, self.options.nice, [self.torc]), "bench", "load", *arguments, "--host", hosts,
            "--keyspace", keyspace, "--replication", str(NODES), "--consistency", "QUORUM", "--json", file, "--quiet", "--stall", "120s",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)}:\n{done.stdout}")
        with open(file, encoding="utf-8") as figures:
            return json.load(figures)

    def make_table(self, keyspace):
        """Has the generator make its table; some databases need a while until all nodes know of it."""
        try:
            self.load(keyspace, "write", "-c", "1", "-f", "1", "--keys", "1", "-n", "1", "--warmup", "0s")
        except Failure as failure:
            if "INCOMPATIBLE_SCHEMA" not in str(failure):
                raise
            time.sleep(5)

    def measure(self, cluster):
        """All figures of one database."""
        result = {}
        try:
            for at in range(NODES):
                say(f"{cluster.title}: node {at + 1} was ready in {cluster.start(at):.1f} s")
            self.wait_for(NODES)
            for keyspace in ("torc_bench", "torc_bench_heat", "torc_bench_large"):
                self.make_table(keyspace)
            if cluster.heat:
                say(f"{cluster.title}: warming for {self.options.heat} s")
                self.load("torc_bench_heat", "mixed", "-c", "8", "-f", "32", "--keys", str(self.options.keys), "--duration", f"{self.options.heat}s", "--warmup", "0s")
            self.requests(cluster, result)
            self.joining(cluster, result)
            self.repairing(cluster, result)
        finally:
            for node in cluster.nodes:
                node.kill()
        return result

    def used(self, cluster):
        return sum(cpu_seconds(node.process.pid) for node in cluster.nodes if node.is_running())

    def requests(self, cluster, result):
        """CPU of all nodes for a request, and the latency when there is room."""
        keys, count = str(self.options.keys), self.options.operations
        self.load("torc_bench", "write", "-c", "8", "-f", "32", "--keys", keys, "--distribution", "sequential", "-n", keys, "--warmup", "0s")
        for title, arguments in LOADS:
            before = self.used(cluster)
            figures = self.load("torc_bench", *arguments, "--keys", keys, "-n", str(count), "--warmup", "0s", "--no-load")
            micros = 1e6 * (self.used(cluster) - before) / count
            result[title] = {"cpu_micros": round(micros, 2), "per_second": round(figures["operations_per_second"]), "errors": figures["errors"]}
            say(f"{cluster.title}: {title}: {micros:.1f} us of CPU, {figures['operations_per_second']:.0f}/s")
        rate = str(self.options.rate)
        figures = self.load("torc_bench", *OPEN_LOOP, "--rate", rate, "--keys", keys, "--duration", f"{self.options.seconds}s", "--no-load")
        latency = {kind: {name: value / 1000 for name, value in micros.items() if name.startswith("p")} for kind, micros in figures["latency_micros"].items()}
        result["open loop"] = {"rate": self.options.rate, "latency_millis": latency, "unsent": figures["unsent"]}
        say(f"{cluster.title}: open loop of {rate}/s: {latency}")
        result["memory_megabytes"] = [round(resident_megabytes(node.process.pid)) for node in cluster.nodes]

    def joining(self, cluster, result):
        """A fourth node fetches its share of a table of large rows."""
        rows = str(self.options.rows)
        self.load("torc_bench_large", "write", "-c", "8", "-f", "16", "--keys", rows, "--distribution", "sequential", "--value-size", str(VALUE_BYTES), "-n", rows, "--warmup", "0s")
        for at in range(NODES):
            subprocess.run(cluster.nodetool(at, "flush"), check=True, stdout=subprocess.DEVNULL)
        time.sleep(5)
        held = sum(folder_megabytes(cluster.data(at)) for at in range(NODES)) / NODES
        before, begun = self.used(cluster), time.monotonic()
        cluster.start(NODES)
        self.wait_for(NODES + 1)
        seconds, used = time.monotonic() - begun, self.used(cluster) - before
        subprocess.run(cluster.nodetool(NODES, "flush"), check=True, stdout=subprocess.DEVNULL)
        fetched = folder_megabytes(cluster.data(NODES))
        result["a fourth node"] = {
            "seconds": round(seconds, 1), "cpu_seconds": round(used, 2), "megabytes": round(fetched, 1),
            "megabytes_per_cpu_second": round(fetched / used, 1), "megabytes_of_another": round(held, 1),
        }  # fmt: skip
        say(f"{cluster.title}: a fourth node: {result['a fourth node']}")

    def repairing(self, cluster, result):
        """One node misses writes to one row in a hundred, and the table is repaired."""
        missing = self.options.rows // 100
        cluster.nodes[NODES - 1].kill()
        time.sleep(30)
        self.load("torc_bench_large", "write", "-c", "4", "-f", "8", "--keys", str(self.options.rows), "--value-size", str(VALUE_BYTES), "-n", str(missing), "--warmup", "0s", "--no-load", "--seed", "7", nodes=NODES - 1)
        cluster.start(NODES - 1)
        self.wait_for(NODES + 1)
        for at in range(NODES + 1):
            subprocess.run(cluster.nodetool(at, "flush"), check=True, stdout=subprocess.DEVNULL)
        time.sleep(5)
        before, begun = self.used(cluster), time.monotonic()
        words = ["repair", "-full", "torc_bench_large"]
        done = subprocess.run(cluster.nodetool(0, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            result["repair"] = {"failed": done.stdout[-400:]}
            say(f"{cluster.title}: repair failed: {done.stdout[-400:]}")
            return
        seconds, used = time.monotonic() - begun, self.used(cluster) - before
        result["repair"] = {"seconds": round(seconds, 1), "cpu_seconds": round(used, 2), "rows_missing": missing}
        say(f"{cluster.title}: repair: {result['repair']}")

    def wait_for(self, count):
        """Waits until every node that runs knows all others and lets clients in."""
        end = time.monotonic() + START_SECONDS
        for at in range(count):
            while True:
                if answers(self.address(at), 9042):
                    with Cluster([self.address(at)], protocol_version=5, connect_timeout=60, control_connection_timeout=60) as cluster:
                        if len(list(cluster.connect().execute("SELECT peer FROM system.peers_v2", timeout=60))) == count - 1:
                            break
                if time.monotonic() > end:
                    raise Failure(f"{self.address(at)} does not know {count} nodes")
                time.sleep(1)


def markdown(results):
    """The comparison as a table."""
    torc, cassandra = (results["servers"].get(name, {}) for name in ("torc", "cassandra"))

    def row(title, get, unit, goal, more=False):
        values = []
        for figures in (torc, cassandra):
            try:
                values.append(get(figures))
            except (KeyError, ValueError):
                values.append(None)
        shown = ["-" if value is None else f"{value:g} {unit}" for value in values]
        ratio = "-"
        if None not in values and 0 not in values:
            ratio = f"{(values[0] / values[1] if more else values[1] / values[0]):.1f}x"
        return f"| {title} | {shown[0]} | {shown[1]} | {ratio} | {goal} |"

    def slowest(figures):
        return max(kind["p99"] for kind in figures["open loop"]["latency_millis"].values())

    lines = [
        f"# Three nodes beside three of Cassandra, {results['date']}",
        "",
        f"{results['machine']}, commit {results['commit']}; all nodes of a database on one core, the client on another; three copies, QUORUM;",
        f"load average before {results['load_average_before']:.1f}, after {results['load_average_after']:.1f}."
        + (" A short run, for a look only." if results["quick"] else ""),
        "",
        "| | Torc | Cassandra 5.0.6 | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    lines += [row(f"CPU of all nodes, a {title}", lambda f, t=title: f[t]["cpu_micros"], "µs", "8x") for title, _ in LOADS]
    lines += [
        row("p99 in an open loop", slowest, "ms", "-"),
        row("a fourth node joins: fetched for each second of CPU", lambda f: f["a fourth node"]["megabytes_per_cpu_second"], "MB", "5x", more=True),
        row("CPU to repair 1 % of rows", lambda f: f["repair"]["cpu_seconds"], "s", "5x"),
        row("memory of the largest node", lambda f: max(f["memory_megabytes"]), "MB", "-"),
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs, for a look")
    parser.add_argument("--torc", help="the program (built when not given)")
    parser.add_argument("--only", choices=["torc", "cassandra"], help="measure one database only")
    parser.add_argument("--name", default=f"cluster-{datetime.date.today().isoformat()}", help="name of the results")
    parser.add_argument("--address", default="127.0.5.21", help="loopback address of the first node; the others follow")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--keys", type=int, help="keys (100,000; quick 20,000)")
    parser.add_argument("--operations", type=int, help="requests of a load (300,000; quick 30,000)")
    parser.add_argument("--rows", type=int, help="rows that a fourth node has to do with (300,000; quick 30,000)")
    parser.add_argument("--rate", type=int, default=1_000, help="requests a second of the open loop")
    parser.add_argument("--seconds", type=int, default=15, help="length of the open loop")
    parser.add_argument("--heat", type=int, help="seconds for which Cassandra is warmed (90; quick 20)")
    parser.add_argument("--nice", type=int, default=-15, help="niceness of servers and clients alike (-15)")
    options = parser.parse_args()
    for name, long, quick in (("keys", 100_000, 20_000), ("operations", 300_000, 30_000), ("rows", 300_000, 30_000), ("heat", 90, 20)):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else long)
    results = begin(options.quick)
    folder = tempfile.mkdtemp(prefix="torc-bench-")
    run = Run(options, folder)
    for kind in (TorcCluster, CassandraCluster):
        if options.only in (None, kind.name):
            results["servers"][kind.name] = run.measure(kind(run))
    results["load_average_after"] = os.getloadavg()[0]
    keep(results, options.name, markdown(results))
    shutil.rmtree(folder)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bench: {failure}")
