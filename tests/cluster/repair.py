"""Replicas that differ are made equal by repair, and deleted rows stay deleted."""

import subprocess
import time
from contextlib import contextmanager

from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from world import PATIENCE, alone, check, rest, wait_until

# As many copies as there are nodes: each alone can return its rows.
KEYSPACE = "cluster_test_everywhere"
ROWS = 2_000
# So slow that a repair can be met in its middle.
SLOW = ("--stream_throughput_outbound", "48KiB")


def nodetool(world, at, *arguments):
    """The output of a verb, and its exit status."""
    command = [world.nodes.torc, "nodetool", "-h", world.nodes.addresses[at], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def keyspace(world):
    copies = f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {len(world.nodes.all)}}}"
    world.session.execute(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {copies}")


def restart(world, at):
    if world.nodes.all[at].is_running():
        world.nodes.all[at].stop()
    world.nodes.start(at)
    world.sees(at)


@contextmanager
def without(world, at):
    """A node is down, and no hints are stored for it."""
    world.nodes.all[at].kill()
    address = world.nodes.addresses[at]
    others = [other for other in world.nodes.addresses if other != address]
    for other in others:
        wait_until(lambda other=other: address in rest(other, "/gossiper/endpoint/down"), f"{other} knows that {address} is down")
    yield
    world.nodes.start(at)
    world.sees(at)


def settled(world):
    """Waits until the driver has found out that its connections were cut, and has others; and until every node sees all."""

    def works():
        try:
            return all(world.session.execute("SELECT key FROM system.local") for _ in range(20))
        except NoHostAvailable:
            return False

    wait_until(works, "the driver is connected again")
    world.is_whole()


@contextmanager
def options(world, *added):
    """All nodes with other options, for a while."""
    before = [list(node.command) for node in world.nodes.all]
    for at, node in enumerate(world.nodes.all):
        node.command = [*node.command, *added]
        restart(world, at)
    settled(world)
    yield
    for at, (node, command) in enumerate(zip(world.nodes.all, before)):
        node.command = command
        restart(world, at)
    settled(world)


def write(world, statement, values, level=ConsistencyLevel.QUORUM):
    prepared = world.session.prepare(statement)
    prepared.consistency_level = level
    for ok, result in execute_concurrent_with_args(world.session, prepared, values, concurrency=64):
        check(ok, f"{statement}: {result}")


def same(world, query, expected, but=None):
    for at in (at for at in range(len(world.nodes.all)) if at != but):
        has = alone(world.nodes.all[at], query)
        lacks, surplus = set(expected) - set(has), set(has) - set(expected)
        check(not lacks and not surplus, f"node {at + 1} lacks {len(lacks)} rows and has {len(surplus)} that it should not have")


def repaired(world, at, *arguments):
    code, said = nodetool(world, at, "repair", *arguments)
    check(code == 0 and "Repair completed successfully" in said, f"repair ended with {code}:\n{said}")
    return said


def differ(world, table, away, text):
    """Rows, changes and deletions that one node misses; returns the rows that all should have then."""
    with without(world, away):
        write(world, f"INSERT INTO {table} (k, v) VALUES (?, ?)", [(k, text) for k in range(ROWS // 2, ROWS + ROWS // 2)])
        write(world, f"DELETE FROM {table} WHERE k = ?", [(k,) for k in range(100)])
    expected = [(k, "first") for k in range(100, ROWS // 2)]
    return expected + [(k, text) for k in range(ROWS // 2, ROWS + ROWS // 2)]


def begin(world, at, table):
    """A repair of everything that runs by itself; returns when it has sent something."""
    keyspace, name = table.split(".")
    address = world.nodes.addresses[at]
    number = rest(address, f"/storage_service/repair_async/{keyspace}?columnFamilies={name}&incremental=false", "POST")
    job = {}

    def under_way():
        job.update(next(job for job in rest(address, "/storage_service/repairs") if job["id"] == number))
        return job["rows_sent"] > 0

    wait_until(under_way, "the repair sends rows")
    check(job["state"] == "RUNNING", f"the repair was over before it could be met: {job}")
    return number, job


def interrupted(world):
    """A repair whose leader or follower is killed, or that is cancelled, ends, and the next one completes it."""
    keyspace(world)
    table = f"{KEYSPACE}.interrupted"
    world.session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text) WITH speculative_retry = 'NEVER'")
    query = f"SELECT k, v FROM {table}"
    with options(world, "--hinted_handoff_enabled", "false", "--auto_repair_enabled", "false", *SLOW):
        write(world, f"INSERT INTO {table} (k, v) VALUES (?, ?)", [(k, "first") for k in range(ROWS)], ConsistencyLevel.ALL)
        expected = differ(world, table, 2, "follower killed")
        check(alone(world.nodes.all[2], query) != sorted(expected), "the node that was down has the writes that it missed")
        number, _ = begin(world, 0, table)
        code, said = nodetool(world, 0, "netstats")
        check(f"Repair #{number} of {KEYSPACE} (interrupted)" in said and " left" in said, said)
        world.nodes.all[2].kill()
        address = world.nodes.addresses[0]
        job = {}

        def ended():
            job.update(next(job for job in rest(address, "/storage_service/repairs") if job["id"] == number))
            return job["state"] != "RUNNING"

        wait_until(ended, "a repair whose follower is gone ends")
        check(job["state"] == "FAILED" and job["failures"], f"{job}")
        world.nodes.start(2)
        world.sees(2)
        repaired(world, 0, *table.split("."))
        same(world, query, expected)

        expected = differ(world, table, 1, "leader killed")
        begin(world, 0, table)
        world.nodes.all[0].kill()
        time.sleep(1)
        world.nodes.start(0)
        world.sees(0)
        repaired(world, 2, *table.split("."))
        same(world, query, expected)

        expected = differ(world, table, 1, "cancelled")
        number, _ = begin(world, 0, table)
        code, said = nodetool(world, 0, "repair_admin", "list")
        check(code == 0 and "RUNNING" in said, said)
        code, said = nodetool(world, 0, "repair_admin", "cancel", "--session", str(number))
        check(code == 0, said)
        code, said = nodetool(world, 0, "repair_admin", "list")
        check((code, said) == (0, "no sessions\n"), said)
        for at in range(len(world.nodes.all)):
            repaired(world, at, "-pr", *table.split("."))
        same(world, query, expected)
    return f"{ROWS} rows, three interruptions"


def sstables(world, at, table):
    """SSTables of a table on a node after everything was compacted."""
    address, (keyspace, name) = world.nodes.addresses[at], table.split(".")
    for path in ("keyspace_flush", "keyspace_compaction"):
        rest(address, f"/storage_service/{path}/{keyspace}?cf={name}", "POST")
    return rest(address, f"/column_family/metrics/live_ss_table_count/{keyspace}:{name}")


def forgetting(world):
    """With tombstone_gc by repair a deletion outlives its grace until a repair has told it to all, and goes then."""
    keyspace(world)
    table = f"{KEYSPACE}.gone"
    world.session.execute(
        f"CREATE TABLE {table} (k int PRIMARY KEY, v text) WITH speculative_retry = 'NEVER' AND gc_grace_seconds = 1 "
        "AND tombstone_gc = {'mode': 'repair', 'propagation_delay_in_seconds': '0'}"
    )
    query = f"SELECT k, v FROM {table}"
    with options(world, "--hinted_handoff_enabled", "false", "--auto_repair_enabled", "false"):
        write(world, f"INSERT INTO {table} (k, v) VALUES (?, ?)", [(k, "dead") for k in range(200)], ConsistencyLevel.ALL)
        with without(world, 2):
            write(world, f"DELETE FROM {table} WHERE k = ?", [(k,) for k in range(200)])
            # More than the grace, which this mode does not go by.
            time.sleep(3)
            code, said = nodetool(world, 0, "repair", *table.split("."))
            check(code != 0 and "is down" in said, f"a repair without a replica: {code}, {said}")
            check(all(sstables(world, at, table) > 0 for at in (0, 1)), "the deletions were forgotten before a repair")
        stale = len(alone(world.nodes.all[2], query))
        check(stale == 200, f"the node that was away has {stale} rows of 200 that were deleted meanwhile")
        same(world, query, [], but=2)
        repaired(world, 0, *table.split("."))
        same(world, query, [])
        time.sleep(1.5)
        for at in range(len(world.nodes.all)):
            kept = sstables(world, at, table)
            check(kept == 0, f"node {at + 1} has {kept} SSTables of deletions that a repair has told to all")
        # Each of them alone, and again by each: nothing is left to come back.
        repaired(world, 2, *table.split("."))
        same(world, query, [])
        told = rest(world.nodes.addresses[1], "/storage_service/repair_history")
        age = next(one for one in told if one["table"] == "gone")
        check(age["share"] > 0.999 and age["oldest_seconds"] < PATIENCE, f"{age}")
        history = alone(world.nodes.all[1], "SELECT table_name, repair_time FROM system.repair_history")
        check("gone" in {name for name, _ in history}, f"{history}")
    return "200 deletions"


def last_job(world, at):
    return rest(world.nodes.addresses[at], "/storage_service/repairs")[-1]


def incremental(world):
    """After a first repair only new data is compared, whichever node leads, until a node has lost data on which the others count."""
    keyspace(world)
    table = f"{KEYSPACE}.fresh"
    world.session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text) WITH speculative_retry = 'NEVER'")
    query = f"SELECT k, v FROM {table}"
    name = table.split(".")
    with options(world, "--hinted_handoff_enabled", "false", "--auto_repair_enabled", "false"):
        write(world, f"INSERT INTO {table} (k, v) VALUES (?, ?)", [(k, "first") for k in range(ROWS)], ConsistencyLevel.ALL)
        repaired(world, 0, *name)
        first = last_job(world, 0)
        check(first["ranges_incremental"] == 0 and first["rows_compared"] >= ROWS, f"the first repair: {first}")
        _, said = nodetool(world, 1, "tablestats", table)
        check("Percent repaired: 100" in said, said)

        with without(world, 2):
            write(world, f"INSERT INTO {table} (k, v) VALUES (?, ?)", [(k, "second") for k in range(0, ROWS, 100)])
        expected = [(k, "first" if k % 100 else "second") for k in range(ROWS)]
        said = repaired(world, 1, *name)
        check("incremental: true" in said, said)
        second = last_job(world, 1)
        few = ROWS // 100
        check(second["ranges_incremental"] == second["ranges"], f"a repair that builds on the first: {second}")
        check(few <= second["rows_compared"] <= 3 * few and second["rows_sent"] >= few, f"only new data: {second}")
        check(second["bytes"] < ROWS * 20, f"{second}")
        same(world, query, expected)

        said = repaired(world, 2, "-full", *name)
        check("incremental: false" in said, said)
        full = last_job(world, 2)
        check(full["rows_compared"] >= ROWS and full["rows_differing"] == 0, f"a full one finds nothing that was left out: {full}")

        world.session.execute(f"INSERT INTO {table} (k, v) VALUES (0, 'third')")
        repaired(world, 0, *name)
        third = last_job(world, 0)
        check(third["ranges_incremental"] == third["ranges"] and third["rows_compared"] < few, f"{third}")
    return f"{ROWS} rows: {first['rows_compared']} compared, then {second['rows_compared']} in {second['bytes']} bytes"


SCENARIOS = (("repair", interrupted), ("incremental repair", incremental), ("tombstone_gc by repair", forgetting))
