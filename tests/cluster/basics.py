"""Without trouble: requests find a replica, every consistency level answers."""

from cassandra import ConsistencyLevel
from world import KEYSPACE, check

LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM")


def routing(world):
    """With one copy a request that reaches the replica needs no other node."""
    session = world.session
    statement = session.prepare(f"SELECT v FROM {KEYSPACE}_one.t WHERE k = ?")
    coordinators = set()
    for key in range(30):
        trace = session.execute(statement, (key,), trace=True).get_query_trace(max_wait_sec=20)
        sources = {str(event.source) for event in trace.events}
        check(sources <= {str(trace.coordinator)}, f"key {key}: {trace.coordinator} asked {sources}")
        coordinators.add(str(trace.coordinator))
    check(len(coordinators) >= 3, f"thirty keys lie on {coordinators} only")


def levels(world):
    """Each level writes, and reads what it wrote."""
    session = world.session
    for name in LEVELS:
        level = getattr(ConsistencyLevel, name)
        for statement, values in (("INSERT INTO {}.load (k, v) VALUES (?, ?)", (-1, level)), ("SELECT v FROM {}.load WHERE k = ?", (-1,))):
            prepared = session.prepare(statement.format(KEYSPACE))
            prepared.consistency_level = level
            rows = list(session.execute(prepared, values))
        check([row.v for row in rows] == [level], f"{name}: {rows}")


SCENARIOS = (("routing", routing), ("consistency levels", levels))
