"""Nodes of an earlier version that are restarted one after the other with the present one, under load, while both versions are asked for everything
that nodes have to agree on: schema changes, lightweight transactions, counters, logged batches, hints, repairs, truncations."""

import time

from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import TruncateError
from cassandra.query import BatchStatement, BatchType

from repair import repaired
from world import KEYSPACE, Load, alone, check, wait_until

TABLE = f"{KEYSPACE}.upgraded"
# Rows that a node misses.
HINTED = 200


def agree(world, number):
    """Features on which nodes of two versions have to agree, through each node in turn."""
    session = world.session
    session.execute(f"ALTER TABLE {TABLE} ADD c{number} int")
    for at, address in enumerate(world.nodes.addresses):
        host = next(host for host in world.cluster.metadata.all_hosts() if host.address == address)
        key = number * 10 + at
        first = session.execute(f"INSERT INTO {TABLE} (k, c{number}) VALUES ({key}, 1) IF NOT EXISTS", host=host).one()
        check(first.applied, f"{address}: the first of two conditional writes was not applied")
        again = session.execute(f"INSERT INTO {TABLE} (k, c{number}) VALUES ({key}, 2) IF NOT EXISTS", host=host).one()
        check(not again.applied and getattr(again, f"c{number}") == 1, f"{address}: the second of two conditional writes shows {again}")
        session.execute(f"UPDATE {TABLE}_counts SET n = n + 1 WHERE k = {key}", host=host)
        batch = BatchStatement(batch_type=BatchType.LOGGED)
        for part in range(4):
            batch.add(f"INSERT INTO {TABLE}_parts (k, v) VALUES ({key * 4 + part}, {key})")
        session.execute(batch, host=host)
    return number


def hinted(world, number):
    """Writes that the last node misses while it is down reach it by hints of nodes of both versions."""
    table, away = f"{TABLE}_hinted", len(world.nodes.all) - 1
    world.nodes.all[away].kill()
    write = world.session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, {number})")
    write.consistency_level = ConsistencyLevel.QUORUM
    for key in range(HINTED):
        world.session.execute(write, (key,))
    world.nodes.start(away)
    world.sees(away)
    query, expected = f"SELECT k, v FROM {table}", [(key, number) for key in range(HINTED)]
    wait_until(lambda: alone(world.nodes.all[away], query) == expected, f"round {number}: the hints are delivered")


def truncated(world, number):
    """TRUNCATE removes everything, or fails with a word about versions: nodes of two of them may not know each other's way to do it. (One that fails at
    a node of the earlier version may have taken effect at others, as any that fails.) With one version it succeeds."""
    table = f"{TABLE}_cut"
    world.session.execute(f"INSERT INTO {table} (k, v) VALUES ({number}, {number})")
    try:
        world.session.execute(f"TRUNCATE {table}")
    except (TruncateError, NoHostAvailable) as error:  # the driver asks other hosts after the first refusal, and names all
        check("version" in str(error), f"TRUNCATE is refused without a word about versions: {error}")
        check(number < len(world.nodes.all), f"TRUNCATE is refused although all nodes have one version: {error}")
    else:
        check(not world.session.execute(f"SELECT k FROM {table}").all(), "rows are there after TRUNCATE")


def verify(world, rounds):
    session = world.session
    for number in rounds:
        for at in range(len(world.nodes.all)):
            key = number * 10 + at
            row = session.execute(f"SELECT c{number} FROM {TABLE} WHERE k = {key}").one()
            check(row and row[0] == 1, f"round {number}, key {key}: {row}")
            row = session.execute(f"SELECT n FROM {TABLE}_counts WHERE k = {key}").one()
            check(row and row.n == 1, f"round {number}, counter {key}: {row}")
            found = sum(bool(session.execute(f"SELECT v FROM {TABLE}_parts WHERE k = {key * 4 + part}").one()) for part in range(4))
            check(found == 4, f"round {number}: {found} of four parts of the logged batch {key}")


def rolling_upgrade(world):
    """Each node is stopped and started with the present version: nothing fails, nothing is lost, and everything works while versions are mixed."""
    nodes, session = world.nodes, world.session
    session.execute(f"CREATE TABLE {TABLE} (k int PRIMARY KEY)")
    session.execute(f"CREATE TABLE {TABLE}_counts (k int PRIMARY KEY, n counter)")
    session.execute(f"CREATE TABLE {TABLE}_parts (k int PRIMARY KEY, v int)")
    session.execute(f"CREATE TABLE {TABLE}_hinted (k int PRIMARY KEY, v int) WITH speculative_retry = 'NEVER'")
    session.execute(f"CREATE TABLE {TABLE}_cut (k int PRIMARY KEY, v int)")
    rounds = [agree(world, 0)]
    with Load(session) as load:
        for at, node in enumerate(nodes.all):
            time.sleep(1)
            check(node.stop() == 0, f"node {at + 1} did not stop well:\n{node.log_tail()}")
            node.command[0] = nodes.torc
            nodes.start(at)
            world.sees(at)
            rounds.append(agree(world, at + 1))
            hinted(world, at + 1)
            repaired(world, at, KEYSPACE)
            truncated(world, at + 1)
    verify(world, rounds)
    return load.verify("rolling upgrade")


SCENARIOS = (("rolling upgrade", rolling_upgrade),)
