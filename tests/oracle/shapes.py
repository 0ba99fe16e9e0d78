"""Tables for the crossing of SSTables whose shape the statement generator does not reach, as pure functions of a seed.

`wide`: partitions of many index blocks, with range tombstones that begin in one block and end in another, static rows,
reversed clustering, rows and cells that expire. `types`: every type in the partition key, in the clustering key in both
orders, and as a value, alone and inside collections.
"""

import random

import values
from generate import Case, Statement

ROWS = 900
SMALL_PARTITIONS = 300
TTL_SECONDS = 500_000


def wide(seed):
    """A table with wide partitions."""
    rng, case = random.Random(seed), Case(seed)
    orders = ("DESC", "ASC") if rng.random() < 0.5 else ("ASC", "DESC")
    case.ddl = [
        "CREATE TABLE {t} (p int, c int, d text, s text STATIC, t set<int> STATIC, v blob, m map<int, text>, n int, "
        f"PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY (c {orders[0]}, d {orders[1]})"
    ]
    add = case.statements.append
    for partition in (0, 1):
        for row in range(ROWS):
            add(wide_row(rng, partition, row))
        add(Statement("UPDATE {t} USING TIMESTAMP 50 SET s = ?, t = ? WHERE p = ?", ["static " * 9, {1, 2, row}, partition]))
        add(Statement("DELETE FROM {t} USING TIMESTAMP 3 WHERE p = ?", [partition]))
        for _ in range(12):
            add(wide_deletion(rng, partition))
    # A row that is longer than a block, a partition of a static row alone, one of nothing but range tombstones.
    add(Statement("INSERT INTO {t} (p, c, d, v) VALUES (2, 1, 'long', ?) USING TIMESTAMP 9", [rng.randbytes(200_000)]))
    add(Statement("INSERT INTO {t} (p, c, d, n) VALUES (2, 2, 'short', 1) USING TIMESTAMP 9", []))
    add(Statement("INSERT INTO {t} (p, s) VALUES (3, 'alone') USING TIMESTAMP 9 AND TTL 500000", []))
    for row in range(40):
        add(Statement("DELETE FROM {t} USING TIMESTAMP ? WHERE p = 4 AND c > ? AND c <= ?", [row, row * 2, row * 2 + 7]))
    for partition in range(10, 10 + SMALL_PARTITIONS):
        add(Statement("INSERT INTO {t} (p, c, d, n) VALUES (?, 1, 'x', 1) USING TIMESTAMP 9", [partition]))
    rng.shuffle(case.statements)
    return case


def wide_row(rng, partition, row):
    key = [partition, row // 3, "abc"[row % 3] * rng.randint(1, 20)]
    timestamp, draw = rng.randint(1, 100), rng.random()
    if draw < 0.7:
        text = "INSERT INTO {t} (p, c, d, v, n) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        return Statement(text, [*key, rng.randbytes(rng.randint(0, 600)), rng.choice((None, 1, row)), timestamp])
    if draw < 0.8:
        text = "INSERT INTO {t} (p, c, d, n) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
        return Statement(text, [*key, row, timestamp, TTL_SECONDS])
    if draw < 0.95:
        entries = {number: "entry" * number for number in rng.sample(range(20), rng.randint(0, 6))}
        operation = rng.choice(("m = ?", "m = m + ?"))
        return Statement(f"UPDATE {{t}} USING TIMESTAMP ? SET {operation} WHERE p = ? AND c = ? AND d = ?", [timestamp, entries, *key])
    return Statement("DELETE FROM {t} USING TIMESTAMP ? WHERE p = ? AND c = ? AND d = ?", [timestamp, *key])


def wide_deletion(rng, partition):
    """A range tombstone, which may cover hundreds of rows, or a few."""
    span, timestamp = rng.choice((2, 20, 150)), rng.randint(1, 60)
    first = rng.randint(0, ROWS // 3)
    if rng.random() < 0.3:
        return Statement(
            "DELETE FROM {t} USING TIMESTAMP ? WHERE p = ? AND c = ? AND d >= ?", [timestamp, partition, first, rng.choice("abc")]
        )
    low, high = rng.choice((">", ">=")), rng.choice(("<", "<="))
    text = f"DELETE FROM {{t}} USING TIMESTAMP ? WHERE p = ? AND c {low} ? AND c {high} ?"
    return Statement(text, [timestamp, partition, first, first + span])


def types(seed):
    """A table with every type everywhere."""
    rng, case = random.Random(seed), Case(seed)
    udt = ("udt", "{t}_udt", tuple((f"f_{name}", name) for name in values.SIMPLE))
    case.ddl = ["CREATE TYPE {t}_udt (" + ", ".join(f"{name} {kind}" for name, kind in udt[2]) + ")"]
    keys = [(f"p_{name}", name) for name in values.ORDERED]
    clustering = [(f"c_{name}", name) for name in values.ORDERED]
    others = [(f"v_{name}", name) for name in values.SIMPLE] + [("u", udt), ("fu", ("frozen", udt))]
    for name in values.SIMPLE:
        others += [(f"l_{name}", ("list", name)), (f"n_{name}", ("vector", name, 2)), (f"t_{name}", ("tuple", name, name))]
        others += [(f"fl_{name}", ("frozen", ("list", name)))]
    for name in values.ORDERED:
        others += [(f"s_{name}", ("set", name)), (f"m_{name}", ("map", name, name)), (f"fs_{name}", ("frozen", ("set", name)))]
    lines = [f"{name} {values.name_of(kind)}" for name, kind in keys + clustering + others]
    names = [", ".join(name for name, _ in columns) for columns in (keys, clustering)]
    order = ", ".join(f"{name} {rng.choice(('ASC', 'DESC'))}" for name, _ in clustering)
    lines.append(f"PRIMARY KEY (({names[0]}), {names[1]})")
    case.ddl.append(f"CREATE TABLE {{t}} ({', '.join(lines)}) WITH CLUSTERING ORDER BY ({order})")
    # Few partitions, so that rows meet in them.
    partitions = [[values.pick(rng, kind) for _, kind in keys] for _ in range(3)]
    for _ in range(60):
        chosen = rng.sample(others, rng.choice((5, 40, len(others))))
        cells = rng.choice(partitions) + [values.pick(rng, kind) for _, kind in clustering + chosen]
        columns = ", ".join(name for name, _ in keys + clustering + chosen)
        literals = ", ".join(literal for literal, _ in cells)
        case.statements.append(Statement(f"INSERT INTO {{t}} ({columns}) VALUES ({literals}) USING TIMESTAMP {rng.randint(1, 9)}"))
    return case
