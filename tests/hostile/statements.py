"""Statements that cost more than they look, and statements that get into each other's way."""

import random
import threading
import time

from client import SERVER_ERROR, Closed, CqlError
from environment import Failure

# The time that one statement may take on a busy machine with a debug build, refused or carried out.
STATEMENT_MAX = 5
# The same of a table with as many columns as there may be.
WIDE_MAX = 20


def asked(world, statement, seconds=STATEMENT_MAX):
    """The error of a statement, or nothing; it must come in time, on a connection that is still there afterwards."""
    with world.connect() as connection:
        begun = time.monotonic()
        error = None
        try:
            connection.query(statement)
        except CqlError as refused:
            error = str(refused)
            if refused.code == SERVER_ERROR:
                raise Failure(f"{statement[:60]}… is answered with a ServerError: {error}") from None
        except (Closed, OSError) as ended:
            raise Failure(f"{statement[:60]}… ended the connection: {ended!r}") from None
        took = time.monotonic() - begun
        if took > seconds:
            raise Failure(f"{statement[:60]}… took {took:.1f} s")
    return error


def nested(world):
    """Expressions as deep as one likes cost no more than linear time."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.e (k int PRIMARY KEY, i int, d decimal)")
        connection.query("INSERT INTO ks.e (k, i, d) VALUES (1, 1, 1.5)")
    for depth in (8, 16, 60):
        asked(world, "SELECT " + "(i+" * depth + "i" + ")" * depth + " FROM ks.e")
        asked(world, "SELECT " + "2 * (" * depth + "i" + ")" * depth + " FROM ks.e")
        asked(world, "SELECT " + "abs(" * depth + "i" + ")" * depth + " FROM ks.e")
    for deep in ("[" * 10_000, "(" * 10_000 + ")" * 10_000, "{" * 10_000):
        if asked(world, f"INSERT INTO ks.e (k, i) VALUES (1, {deep})") is None:
            raise Failure("nonsense was taken")


def numbers(world):
    """Numbers with a million digits are refused or carried out in time."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.n (k int PRIMARY KEY, i int, d decimal, n varint)")
        connection.query("INSERT INTO ks.n (k, i, d) VALUES (1, 1, 1.5)")
    digits = "7" * 1_000_000
    for literal in (digits, "-" + digits, "1." + digits, "1e" + "9" * 30, "1e999999999", "0x" + "f" * 100_001):
        asked(world, f"SELECT i FROM ks.n WHERE k = {literal}")
        asked(world, f"INSERT INTO ks.n (k, d, n) VALUES (1, {literal}, {literal})")
    asked(world, "SELECT i, d, n FROM ks.n WHERE d > 7.5 ALLOW FILTERING")


def wide_results(world):
    """A result that names one large cell a thousand times is refused, and the node keeps serving."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.w (k int PRIMARY KEY, b blob)")
        connection.query(f"INSERT INTO ks.w (k, b) VALUES (1, 0x{'cd' * 1_000_000})")
    error = asked(world, "SELECT " + ", ".join(["b"] * 1_000) + " FROM ks.w")
    return f"refused: {error[:60]}" if error else "answered"


def options(world):
    """Options without a sense are refused, and DDL still works."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.o (k int PRIMARY KEY)")
    for value in ("speculative_retry = 'nanms'", "speculative_retry = 'infPERCENTILE'", "speculative_retry = '-1ms'",
                  "read_repair_chance = NaN", "compression = {'class': 'LZ4Compressor', 'crc_check_chance': 'NaN'}",
                  "compaction = {'class': 'SizeTieredCompactionStrategy', 'bucket_high': 'NaN'}",
                  "default_time_to_live = 99999999999", "gc_grace_seconds = -1", "comment = '\0'"):
        asked(world, f"ALTER TABLE ks.o WITH {value}")
    with world.connect() as connection:
        connection.query("ALTER TABLE ks.o ADD v int")
        connection.query("DROP TABLE ks.o")


def side_by_side(world):
    """CREATE, DROP, INSERT and TRUNCATE of the same tables by eight clients: errors, but storage keeps working."""
    until, unexpected = time.monotonic() + 5, []

    def work(seed):
        draw = random.Random(seed)
        try:
            with world.connect() as connection:
                while time.monotonic() < until:
                    table = f"ks.s{draw.randrange(2)}"
                    statement = draw.choice((
                        f"CREATE TABLE IF NOT EXISTS {table} (k int PRIMARY KEY, v text)",
                        f"DROP TABLE IF EXISTS {table}",
                        f"TRUNCATE {table}",
                        *[f"INSERT INTO {table} (k, v) VALUES ({draw.randrange(100)}, '{'x' * 500}')"] * 6,
                    ))
                    try:
                        connection.query(statement)
                    except CqlError:
                        pass
        except (OSError, Closed) as error:
            unexpected.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if unexpected:
        raise Failure(f"side by side: {unexpected[0]}")
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.after (k int PRIMARY KEY, v int)")
        for at in range(20):
            connection.query(f"INSERT INTO ks.after (k, v) VALUES ({at}, {at})")


def wide_table(world):
    """A table with ten thousand columns, one with more than there may be, and rows that use many of them."""
    # A change of a table with 60,000 keeps a shard for half a second: work that is linear in the columns of one table is not done in slices.
    columns = [f"c{at}" for at in range(10_000)]
    listed = ", ".join(f"{name} int" for name in columns)
    wide = asked(world, f"CREATE TABLE ks.wide (k int PRIMARY KEY, {listed})", seconds=WIDE_MAX)
    more = ", ".join(f"d{at} int" for at in range(1_000))
    beyond = ", ".join(f"d{at} int" for at in range(56_000))
    if asked(world, f"CREATE TABLE ks.wider (k int PRIMARY KEY, {listed}, {beyond})", seconds=WIDE_MAX) is None:
        raise Failure("a table has more columns than there can be")
    if wide is None:
        some = columns[::10]
        values = ", ".join(["1"] * len(some))
        for statement in (
            f"INSERT INTO ks.wide (k, {', '.join(some)}) VALUES (1, {values})",
            "SELECT * FROM ks.wide WHERE k = 1",
            f"SELECT {', '.join(some)} FROM ks.wide",
            "ALTER TABLE ks.wide ADD one_more text",
            f"ALTER TABLE ks.wide ADD ({more})",
            f"DELETE {', '.join(some)} FROM ks.wide WHERE k = 1",
            "SELECT JSON * FROM ks.wide",
            "DESCRIBE TABLE ks.wide",
        ):
            asked(world, statement, seconds=WIDE_MAX)
        with world.connect() as connection:
            connection.query("DROP TABLE ks.wide")
    return f"refused: {wide[:60]}" if wide else "taken"


def many_tables(world):
    """A hundred tables made and dropped one after the other; the last costs about as much as the first."""
    count, took = 100 * world.scale, []
    with world.connect() as connection:
        connection.query("CREATE KEYSPACE many WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        for at in range(count):
            begun = time.monotonic()
            connection.query(f"CREATE TABLE many.t{at} (k int PRIMARY KEY, v text)")
            took.append(time.monotonic() - begun)
        for at in range(0, count, 10):
            connection.query(f"INSERT INTO many.t{at} (k, v) VALUES (1, 'x')")
        begun = time.monotonic()
        connection.query("SELECT * FROM system_schema.tables")
        connection.query("DESCRIBE KEYSPACE many")
        listed = time.monotonic() - begun
        # Each table has its snapshot first; a client does not wait for a thousand of them.
        begun = time.monotonic()
        connection.query("DROP KEYSPACE many")
        dropped = time.monotonic() - begun
    if listed > STATEMENT_MAX:
        raise Failure(f"{count} tables are listed in {listed:.1f} s")
    first, last = (sorted(part)[len(part) // 2] for part in (took[: count // 4], took[-count // 4 :]))
    if dropped > STATEMENT_MAX:
        raise Failure(f"{count} tables are dropped in {dropped:.1f} s")
    if last > 3 * first + 0.05:
        raise Failure(f"a table takes {first * 1000:.0f} ms at first and {last * 1000:.0f} ms after {count} others")
    return f"{count} tables, {first * 1000:.0f} ms each at first, {last * 1000:.0f} ms at the end, all dropped in {dropped:.1f} s"


def long_statements(world):
    """Statements as long as a message may be, of every kind of part: refused, or carried out in time."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.long (k int, c int, v text, PRIMARY KEY (k, c))")
    size = 12_000_000
    tell = {}
    for name, statement in (
        ("literal", f"INSERT INTO ks.long (k, c, v) VALUES (1, 1, '{'x' * size}')"),
        ("comment", f"SELECT v FROM ks.long /* {'x' * size} */ WHERE k = 1"),
        ("blanks", "SELECT v FROM ks.long" + " " * size + "WHERE k = 1"),
        ("in", f"SELECT v FROM ks.long WHERE k = 1 AND c IN ({'7,' * (size // 2)}7)"),
        ("selectors", "SELECT " + "v," * (size // 2) + "v FROM ks.long"),
        ("relations", "SELECT v FROM ks.long WHERE k = 1" + " AND c > 1" * (size // 10)),
        ("batch", "BEGIN BATCH " + "INSERT INTO ks.long (k, c) VALUES (1, 1);" * (size // 42) + " APPLY BATCH"),
        ("list", f"INSERT INTO ks.long (k, c, v) VALUES (1, 1, [{'1,' * (size // 2)}1])"),
        ("sum", "SELECT k" + "+k" * (size // 2) + " FROM ks.long"),
        ("minus", "SELECT " + "-" * size + "k FROM ks.long"),
        ("name", f"SELECT {'v' * size} FROM ks.long"),
        ("markers", f"SELECT v FROM ks.long WHERE k = 1 AND c IN ({'?,' * (size // 2)}?)"),
        ("quotes", "SELECT '" + "''" * (size // 2) + "' FROM ks.long"),
        ("noise", "\u00e9" * (size // 2)),
    ):
        begun = time.monotonic()
        tell[name] = (asked(world, statement) or "taken")[:20], time.monotonic() - begun
    with world.connect() as connection:
        for at in range(300):
            connection.prepare(f"SELECT v FROM ks.long WHERE k = 1 AND c IN ({','.join(['?'] * 5_000)}) LIMIT {at + 1}")
        # Statements that were forgotten for others are prepared again.
        connection.prepare("SELECT v FROM ks.long WHERE k = 1")
        connection.query("DROP TABLE ks.long")
    slowest = max(tell, key=lambda name: tell[name][1])
    return f"{sum(error == 'taken' for error, _ in tell.values())} of {len(tell)} taken, {slowest} took {tell[slowest][1]:.1f} s"


SCENARIOS = (
    ("nested", nested),
    ("numbers", numbers),
    ("wide_results", wide_results),
    ("options", options),
    ("side_by_side", side_by_side),
    ("wide_table", wide_table),
    ("many_tables", many_tables),
    ("long_statements", long_statements),
)
