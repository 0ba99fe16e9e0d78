#!/usr/bin/env python3
"""`SELECT count(*)` of a large table on three nodes, inside the default timeout of a range read.

  bench/count.py [--rows N] [--torc BINARY] [--address A] [--tries N]

Three processes, three copies of everything, one row of 8 bytes a partition: ten million of them unless `--rows` says otherwise. They are
loaded by `torc bench load` and flushed; then the count runs at ONE and at QUORUM. Printed are its seconds, rows a second, and the CPU of all
nodes; a count that is wrong, or that does not end in time, fails. Needs cassandra-driver: `./dev bench count` brings it.
"""

import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))
sys.path.insert(0, HERE)

from cassandra import ConsistencyLevel  # noqa: E402
from cassandra.cluster import Cluster  # noqa: E402
from cassandra.query import SimpleStatement  # noqa: E402
from environment import Failure  # noqa: E402
from node import CQL_PORT, Torc, Workspace  # noqa: E402
from run import build, cpu_seconds, say  # noqa: E402

NODES = 3
KEYSPACE = "torc_bench"
VALUE_BYTES = 8
# The node's own timeout, `range_request_timeout_in_ms`, ends a count long before.
CLIENT_SECONDS = 120


def start(binary, folder, addresses):
    """Three nodes of one cluster."""
    nodes = []
    for at, address in enumerate(addresses):
        place = os.path.join(folder, f"torc{at + 1}")
        os.makedirs(place)
        node = Torc(binary, place, address, 1, ("--seeds", addresses[0], "--auto_repair_enabled", "false"))
        nodes.append(node)
        say(f"node {at + 1} was ready in {node.start(120):.1f} s")
    return nodes


def load(binary, addresses, rows):
    """Writes the rows to all copies, and the memtables to disk."""
    begun = time.monotonic()
    command = [
        binary, "bench", "load", "write", "-c", "8", "-f", "64", "--keys", str(rows), "--distribution", "sequential", "-n", str(rows),
        "--value-size", str(VALUE_BYTES), "--warmup", "0s", "--host", ",".join(addresses), "--keyspace", KEYSPACE,
        "--replication", str(NODES), "--consistency", "ALL", "--quiet", "--stall", "120s",
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}:\n{done.stdout}")
    for address in addresses:
        subprocess.run([binary, "nodetool", "-h", address, "flush"], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    say(f"{rows} rows were loaded in {seconds:.0f} s, {rows / seconds:.0f}/s")


def count(session, nodes, table, rows, level):
    """One count: its seconds, and the CPU seconds of all nodes."""
    statement = SimpleStatement(f"SELECT count(*) FROM {table}", consistency_level=level)
    before, begun = sum(cpu_seconds(node.process.pid) for node in nodes), time.monotonic()
    found = session.execute(statement, timeout=CLIENT_SECONDS).one()[0]
    seconds, used = time.monotonic() - begun, sum(cpu_seconds(node.process.pid) for node in nodes) - before
    if found != rows:
        raise Failure(f"{found} rows were counted, {rows} were written")
    return seconds, used


def measure(binary, folder, options):
    """Loads, counts and prints."""
    start_of, last = options.address.rsplit(".", 1)
    addresses = [f"{start_of}.{int(last) + at}" for at in range(NODES)]
    nodes = []
    try:
        nodes = start(binary, folder, addresses)
        load(binary, addresses, options.rows)
        with Cluster([addresses[0]], port=CQL_PORT, protocol_version=5, connect_timeout=60) as cluster:
            session = cluster.connect()
            names = session.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", (KEYSPACE,))
            # The generator notes in `loaded` what it has written.
            (name,) = [row.table_name for row in names if row.table_name != "loaded"]
            table = f"{KEYSPACE}.{name}"
            for level in ("ONE", "QUORUM"):
                for _ in range(options.tries):
                    seconds, used = count(session, nodes, table, options.rows, getattr(ConsistencyLevel, level))
                    print(
                        f"count(*) of {options.rows} rows at {level}: {seconds:.2f} s, {options.rows / seconds:.0f} rows/s,"
                        f" {used:.2f} s of CPU, {1e9 * used / options.rows:.0f} ns a row",
                        flush=True,
                    )
    finally:
        for node in nodes:
            node.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table (10,000,000)")
    parser.add_argument("--tries", type=int, default=3, help="counts at each level")
    parser.add_argument("--torc", help="the program (built when not given)")
    parser.add_argument("--address", default="127.0.5.31", help="loopback address of the first node; the others follow")
    options = parser.parse_args()
    binary = os.path.abspath(options.torc or build())
    with Workspace("bench-count") as folder:
        measure(binary, folder, options)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bench: {failure}")
