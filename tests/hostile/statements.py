"""Statements that cost more than they look, and statements that get into each other's way."""

import random
import threading
import time

from client import Closed, CqlError
from environment import Failure

# What one statement may take on a busy machine with a debug build, refused or carried out.
STATEMENT_MAX = 5


def asked(world, statement):
    """The error of a statement, or nothing; it must come in time, on a connection that is still there afterwards."""
    with world.connect() as connection:
        begun = time.monotonic()
        error = None
        try:
            connection.query(statement)
        except CqlError as refused:
            error = str(refused)
        except (Closed, OSError) as ended:
            raise Failure(f"{statement[:60]}… ended the connection: {ended!r}") from None
        took = time.monotonic() - begun
        if took > STATEMENT_MAX:
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
    """A result that names one large cell a thousand times is refused, and the node goes on."""
    with world.connect() as connection:
        connection.query("CREATE TABLE ks.w (k int PRIMARY KEY, b blob)")
        connection.query(f"INSERT INTO ks.w (k, b) VALUES (1, 0x{'cd' * 1_000_000})")
    error = asked(world, "SELECT " + ", ".join(["b"] * 1_000) + " FROM ks.w")
    return f"refused: {error[:60]}" if error else "answered"


def options(world):
    """Options without a sense are refused, and DDL goes on."""
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
    """CREATE, DROP, INSERT and TRUNCATE of the same tables by eight clients: errors, but storage goes on."""
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


SCENARIOS = (
    ("nested", nested),
    ("numbers", numbers),
    ("wide_results", wide_results),
    ("options", options),
    ("side_by_side", side_by_side),
)
