"""Clients, files and statements that no well-meaning user would send: `hostile.py --torc BINARY [SCENARIO...]`.

All scenarios but the last run against one fresh node, one after the other. Meanwhile a client that behaves reads and writes, and
the node is watched: it stays up, nothing panics, its memory stays within a bound, and the client that behaves is served in time.
"""

import argparse
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import damage
import ports
import statements
from client import Behaved, Connection
from environment import Failure
from node import Torc, Workspace

ADDRESS = os.environ.get("TEST_HOSTILE_ADDRESS", "127.0.5.31")
# Other clients come from this address, the hostile ones from the usual one.
SOURCE = "127.0.5.39"
MEMORY = 1 << 30
# Of the resident memory: the node's own limit, and a half of it for the process around that.
RSS_MAX = MEMORY * 3 // 2
# On a machine with two busy cores and a debug build.
P99_MAX = 2.5
SECONDS_MAX = 90


class World:
    """The node, and what watches it."""

    def __init__(self, torc, folder):
        self.torc, self.folder, self.host, self.source = torc, folder, ADDRESS, SOURCE
        self.node = Torc(torc, folder, ADDRESS, 2, ("--memory_size", f"{MEMORY >> 20}MiB", "--commitlog_segment_size", "8MiB"))
        self.rss_most = 0
        self.stopped = threading.Event()

    def watch(self):
        while not self.stopped.wait(0.05):
            self.rss_most = max(self.rss_most, self.rss())

    def rss(self):
        try:
            with open(f"/proc/{self.node.process.pid}/status", encoding="utf-8") as status:
                return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) << 10
        except (OSError, TypeError):
            return 0

    def cpu_seconds(self):
        with open(f"/proc/{self.node.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self, **options):
        return Connection(self.host, **options)

    def check_log(self, log=None):
        with open(log or self.node.log, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if "panicked at" in line:
                    raise Failure(f"the node panicked: {line.strip()}")


SCENARIOS = (*ports.SCENARIOS, *statements.SCENARIOS, *damage.SCENARIOS)


def run_one(world, name, scenario):
    begun = time.monotonic()
    world.rss_most = world.rss()
    with Behaved(world.host, world.source) as behaved:
        said = scenario(world)
    if not world.node.is_running():
        raise Failure(f"{name}: the node has ended:\n{world.node.log_tail()}")
    world.check_log()
    if world.rss_most > RSS_MAX:
        raise Failure(f"{name}: {world.rss_most >> 20} MiB are resident, of {MEMORY >> 20} MiB of memory_size")
    # Damaged files need restarts, which the client that behaves sees as well.
    if name not in damage.RESTARTING:
        if behaved.failed:
            raise Failure(f"{name}: the client that behaves failed: {behaved.failed[:3]}")
        if behaved.p99() > P99_MAX:
            raise Failure(f"{name}: p99 of the client that behaves was {behaved.p99():.2f} s")
    took = time.monotonic() - begun
    print(
        f"{name}: ok, {took:.1f} s, longest poll so far {world.node.longest_stall()} ms of CPU, p99 {behaved.p99() * 1000:.0f} ms of {len(behaved.took)}, "
        f"{world.rss_most >> 20} MiB{', ' + said if said else ''}",
        flush=True,
    )


def run(world, wanted):
    print(f"the node was ready in {world.node.start():.1f} s", flush=True)
    watching = threading.Thread(target=world.watch, daemon=True)
    watching.start()
    with world.connect(source=world.source) as connection:
        connection.query("CREATE KEYSPACE good WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        connection.query("CREATE TABLE good.t (k int PRIMARY KEY, v int)")
        connection.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    for name, scenario in SCENARIOS:
        if not wanted or name in wanted:
            run_one(world, name, scenario)
    world.stopped.set()
    watching.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    names = [name for name, _ in SCENARIOS]
    parser.add_argument("scenario", nargs="*", help="all when none is named: " + ", ".join(names))
    options = parser.parse_args()
    unknown = [name for name in options.scenario if name not in names]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(names)}")
    begun = time.monotonic()
    with Workspace("hostile") as folder:
        world = World(options.torc, folder)
        try:
            run(world, options.scenario)
            if world.node.stop() != 0:
                raise Failure(f"the node ended with {world.node.process.returncode}:\n{world.node.log_tail()}")
        finally:
            world.node.kill()
        took = time.monotonic() - begun
        print(f"hostile: ok, {took:.0f} s{' (more than the minute that it should take)' if took > SECONDS_MAX else ''}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"hostile: {failure}")
