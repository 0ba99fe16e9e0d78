"""Nodes of an earlier version that are restarted one after the other with the present one, under load, while both versions are asked for everything
that nodes have to agree on: schema changes, lightweight transactions, counters, logged batches."""

import time

from cassandra.query import BatchStatement, BatchType

from world import KEYSPACE, Load, check

TABLE = f"{KEYSPACE}.upgraded"


def agree(world, number):
    """What nodes of two versions have to agree on, through each node in turn."""
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
    """Each node is stopped and started with the present version: nothing fails, nothing is lost, and everything goes on while versions are mixed."""
    nodes, session = world.nodes, world.session
    session.execute(f"CREATE TABLE {TABLE} (k int PRIMARY KEY)")
    session.execute(f"CREATE TABLE {TABLE}_counts (k int PRIMARY KEY, n counter)")
    session.execute(f"CREATE TABLE {TABLE}_parts (k int PRIMARY KEY, v int)")
    rounds = [agree(world, 0)]
    with Load(session) as load:
        for at, node in enumerate(nodes.all):
            time.sleep(1)
            check(node.stop() == 0, f"node {at + 1} did not stop well:\n{node.log_tail()}")
            node.command[0] = nodes.torc
            nodes.start(at)
            world.sees(at)
            rounds.append(agree(world, at + 1))
    verify(world, rounds)
    return load.verify("rolling upgrade")


SCENARIOS = (("rolling upgrade", rolling_upgrade),)
