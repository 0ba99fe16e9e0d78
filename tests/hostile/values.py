"""Literals and functions of CQL at the ends of their ranges: a right value or a clear error."""

import math
import os
import random
import struct

from client import ERROR, SERVER_ERROR, CqlError, query, rows
from ports import check

TYPES = (
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float", "inet", "int", "smallint", "text", "time",
    "timestamp", "timeuuid", "tinyint", "uuid", "varint",
)  # fmt: skip
COLLECTIONS = {
    "l": "list<int>", "st": "set<text>", "m": "map<text, double>", "fl": "frozen<list<decimal>>", "tp": "tuple<int, text>",
    "ve": "vector<float, 2>", "u": "point",
}  # fmt: skip
LEAST, MOST = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF
UUIDS = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")
TIMEUUIDS = ("00000000-0000-1000-8080-808080808080", "ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f")
# For each type, the values at the ends of its range.
EXTREMES = {
    "ascii": ("''", "'~'", "'" + "a" * 60_000 + "'", "'\0'"),
    "bigint": ("0", str(LEAST), str(MOST)),
    "blob": ("0x", "0x00", "0x" + "ff" * 60_000),
    "boolean": ("true", "false"),
    "date": ("'-5877641-06-23'", "'9999-12-31'", "0", "4294967295", "'1970-01-01'"),
    "decimal": ("0", "-0.0", "1e-2147483", "1E+2147", "9" * 500, "-1." + "3" * 500),
    "double": ("0.0", "-0.0", "NaN", "Infinity", "-Infinity", "1.7976931348623157e308", "4.9e-324"),
    "duration": ("0s", "-2147483647mo2147483647d", "9223372036854775807ns", "-9223372036854775807ns"),
    "float": ("0.0", "-0.0", "NaN", "Infinity", "-Infinity", "3.4028235e38", "1.4e-45"),
    "inet": ("'0.0.0.0'", "'255.255.255.255'", "'::'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'"),
    "int": ("0", "-2147483648", "2147483647"),
    "smallint": ("0", "-32768", "32767"),
    "text": ("''", "'\U0010ffff'", "'" + "\u00e9" * 30_000 + "'", "'\0'", "'''\"\\{}%_'"),
    "time": ("0", "86399999999999", "'00:00:00'", "'23:59:59.999999999'"),
    "timestamp": ("0", str(LEAST), str(MOST), "'1970-01-01'", "'9999-12-31T23:59:59.999Z'", "'0001-01-01'"),
    "timeuuid": TIMEUUIDS,
    "tinyint": ("0", "-128", "127"),
    "uuid": UUIDS,
    "varint": ("0", "-" + "9" * 500, "9" * 500),
}
# Just beyond the ends, or of another kind: refused for columns of the type.
BEYOND = {
    "ascii": ("'\u00e9'", "1"), "bigint": (str(MOST + 1), str(LEAST - 1), "1.5", "'x'"), "blob": ("0x0", "0xgg", "1", "'x'"),
    "boolean": ("1", "'true'"), "date": ("'x'", "'2020-13-01'", "'2020-02-30'", "4294967296", "-1"),
    "decimal": ("'1'", "0x00", "1e99999999999"), "double": ("'1'", "0x00"), "duration": ("2147483648mo", "'1h'", "9223372036854775808ns", "1h-1d"),
    "float": ("'1'",), "inet": ("'256.0.0.1'", "'x'", "1", "':::'"), "int": ("2147483648", "-2147483649", "1.0", "'1'"),
    "smallint": ("32768", "-32769"), "text": ("1", "0x00", "true"), "time": ("86400000000000", "-1", "'24:00:00'", "'x'"),
    "timestamp": (str(MOST + 1), "'x'", "'2020-13-01'"), "timeuuid": (UUIDS[1], "'x'", "1", "00000000-0000-4000-8000-000000000000"),
    "tinyint": ("128", "-129"), "uuid": ("'x'", "1", "0000"), "varint": ("1.5", "'1'"),
}  # fmt: skip
# Every function of the server with the number of its arguments.
FUNCTIONS = {
    0: ("now", "current_timeuuid", "current_timestamp", "current_date", "current_time", "uuid"),
    1: (
        "min_timeuuid", "max_timeuuid", "to_date", "to_timestamp", "to_unix_timestamp", "dateof", "unixtimestampof", "abs", "exp", "log",
        "log10", "round", "sum", "avg", "min", "max", "count", "token", "writetime", "maxwritetime", "ttl", "to_json", "from_json",
        "map_keys", "map_values", "collection_count", "collection_min", "collection_max", "collection_sum", "collection_avg", "mask_null",
        "mask_default", "mask_hash", "length", "octet_length", "format_bytes", "format_time", *(f"{ty}_as_blob" for ty in TYPES if ty != "blob"), *(f"blob_as_{ty}" for ty in TYPES if ty != "blob"),
    ),
    2: ("floor", "similarity_cosine", "similarity_euclidean", "similarity_dot_product", "mask_replace", "mask_hash", "format_bytes", "format_time"),
    3: ("floor", "mask_inner", "mask_outer", "format_bytes", "format_time"),
    4: ("mask_inner", "mask_outer"),
}  # fmt: skip
# Expressions over the row of least or most values whose value is known: integers wrap around as Java's do, and NaN is that of IEEE.
INT, BIG = struct.Struct(">i"), struct.Struct(">q")
KNOWN = (
    ("abs(int)", 1, INT.pack(-0x80000000)), ("abs(int)", 2, INT.pack(0x7FFFFFFF)), ("-int", 1, INT.pack(-0x80000000)),
    ("int + (int)1", 2, INT.pack(-0x80000000)), ("int - (int)1", 1, INT.pack(0x7FFFFFFF)), ("int * (int)2", 1, INT.pack(0)),
    ("bigint + bigint", 2, BIG.pack(-2)), ("abs(bigint)", 1, BIG.pack(LEAST)), ("tinyint_as_blob(tinyint)", 1, b"\x80"),
    ("bigint_as_blob(bigint)", 1, BIG.pack(LEAST)), ("blob_as_int(int_as_blob(int))", 1, INT.pack(-0x80000000)),
    ("collection_count(l)", 2, INT.pack(2)), ("collection_sum(l)", 2, INT.pack(-1)), ("mask_null(int)", 1, None),
    ("to_json(int)", 1, b"-2147483648"), ("mask_default(int)", 1, INT.pack(0)), ("CAST(bigint AS int)", 2, INT.pack(-1)),
    ("CAST(int AS tinyint)", 2, b"\xff"), ("to_unix_timestamp(timestamp)", 1, BIG.pack(LEAST)),
    ("abs(int)", 3, None), ("to_json(int)", 3, b"null"), ("int + (int)1", 3, None),
)  # fmt: skip


class Asker:
    """Sends statements many at a time and gives their answers in order."""

    AT_ONCE = 100

    def __init__(self, world):
        self.world, self.connection, self.asked = world, world.connect(), 0

    def all(self, statements):
        """For each statement its error, or nothing and the body of its result."""
        answers = []
        for begin in range(0, len(statements), self.AT_ONCE):
            part = statements[begin : begin + self.AT_ONCE]
            self.connection.send(b"".join(query(statement, stream) for stream, statement in enumerate(part)))
            got = {}
            for _ in part:
                opcode, stream, body = self.connection.receive()
                got[stream] = (CqlError(body), b"") if opcode == ERROR else (None, body)
            answers += [got[stream] for stream in range(len(part))]
            self.asked += len(part)
        for statement, (error, _) in zip(statements, answers):
            check(error is None or error.code != SERVER_ERROR, f"{statement[:200]}… is answered with a ServerError: {error}")
        return answers

    def close(self):
        self.connection.close()


def literals(world):
    """Each literal at the ends of each type's range is stored and read as it is; beyond them, and for other types, it is refused."""
    asker = Asker(world)
    asker.connection.query(f"CREATE TABLE ks.lit (k int PRIMARY KEY, {', '.join(f'{ty} {ty}' for ty in TYPES)})")
    inside = [(ty, literal) for ty in TYPES for literal in (*EXTREMES[ty], "null")]
    writes = [f"INSERT INTO ks.lit (k, {ty}) VALUES ({at}, {literal})" for at, (ty, literal) in enumerate(inside)]
    for (ty, literal), (error, _) in zip(inside, asker.all(writes)):
        check(error is None, f"{ty} {literal[:60]} is refused: {error}")
    # The stored value equals the same literal in a comparison, NaN and the rest alike.
    compared = [(at, ty, literal) for at, (ty, literal) in enumerate(inside) if literal != "null" and ty != "duration"]
    reads = [f"SELECT k FROM ks.lit WHERE k = {at} AND {ty} = {literal} ALLOW FILTERING" for at, ty, literal in compared]
    for (at, ty, literal), (error, body) in zip(compared, asker.all(reads)):
        check(error is None and rows(body) == [(INT.pack(at),)], f"{ty} {literal[:60]} is not equal to itself: {error or rows(body)}")
    beyond = [(ty, literal) for ty in TYPES for literal in BEYOND[ty]]
    refusals = asker.all([f"INSERT INTO ks.lit (k, {ty}) VALUES (-1, {literal})" for ty, literal in beyond])
    for (ty, literal), (error, _) in zip(beyond, refusals):
        check(error is not None, f"{ty} takes {literal[:60]}")
    # Every literal for every type, where nothing more is known than that it is answered.
    asker.all([f"INSERT INTO ks.lit (k, {ty}) VALUES (-1, {literal})" for ty in TYPES for _, literal in inside if len(literal) < 2_000])
    asker.connection.query("DROP TABLE ks.lit")
    asker.close()
    return f"{asker.asked} statements"


def make_rows(connection):
    """A table with columns of every type; rows 1 and 2 have their least and most values, 3 nothing, 4 empty values where there are some."""
    connection.query("CREATE TYPE ks.point (x int, y text)")
    columns = [f"{ty} {ty}" for ty in TYPES] + [f"{name} {ty}" for name, ty in COLLECTIONS.items()]
    connection.query(f"CREATE TABLE ks.val (k int, c int, {', '.join(columns)}, PRIMARY KEY (k, c))")
    least = {**{ty: EXTREMES[ty][1] for ty in TYPES}, "boolean": "false", "double": "-Infinity", "float": "-Infinity"}
    most = {**{ty: EXTREMES[ty][2] if len(EXTREMES[ty]) > 2 else EXTREMES[ty][-1] for ty in TYPES}, "double": "NaN", "float": "NaN"}
    least |= {"l": "[]", "st": "{''}", "m": "{'': NaN}", "fl": "[]", "tp": "(null, null)", "ve": "[0, 0]", "u": "{x: null}"}
    most |= {"l": "[2147483647, -2147483648]", "st": "{'a', 'b'}", "m": "{'a': Infinity, 'b': NaN}", "fl": "[1e400, -1e-400]"}
    most |= {"tp": "(2147483647, '')", "ve": "[3.4e38, 3.4e38]", "u": "{x: -2147483648, y: ''}"}
    empty = {ty: f"blob_as_{ty}(0x)" for ty in TYPES if ty not in ("blob", "duration", "ascii", "text")}
    for c, values in ((1, least), (2, most), (4, {**empty, "ascii": "''", "text": "''", "blob": "0x"})):
        for name, value in values.items():
            # Some types have no empty value.
            try:
                connection.query(f"UPDATE ks.val SET {name} = {value} WHERE k = 1 AND c = {c}")
            except CqlError:
                check(c == 4, f"{name} does not take {value[:60]}")
    connection.query("INSERT INTO ks.val (k, c) VALUES (1, 3)")


def calls(draw, scale):
    """Calls of every function with columns of every type, and with literals."""
    columns = [*TYPES, *COLLECTIONS, "k", "c"]
    short = [literal for ty in TYPES for literal in EXTREMES[ty] if len(literal) < 2_000]
    literal = [*short, "null", "(int)null", "[]", "[0.5, NaN]", "{}", "(1, null)", "'{'", "'[1e400]'", "'null'"]
    for name in FUNCTIONS[0]:
        yield f"{name}()"
        yield f"{name}(null)"
    for name in FUNCTIONS[1]:
        yield f"{name}()"
        yield from (f"{name}({column})" for column in columns)
        yield from (f"{name}({one})" for one in draw.sample(literal, 12 * min(scale, 4)))
    for count, few in ((2, 60), (3, 60), (4, 40)):
        for name in FUNCTIONS[count]:
            for _ in range(few * scale):
                yield f"{name}({', '.join(draw.choice(columns if draw.random() < 0.6 else literal) for _ in range(count))})"
    for _ in range(400 * scale):
        left, right = draw.choice(columns), draw.choice(columns if draw.random() < 0.5 else literal)
        yield f"{left} {draw.choice('+-*/%')} {right}"
    for source in columns:
        yield from (f"CAST({source} AS {target})" for target in TYPES)
    for column in columns:
        yield from (f"from_json(to_json({column}))", f"-{column}", f"({draw.choice(TYPES)}){column}")


def functions(world):
    """Every function with null, empty, the least and the most value, NaN and values of other types: right, or a clear error."""
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    asker = Asker(world)
    make_rows(asker.connection)
    known = [f"SELECT {expression} FROM ks.val WHERE k = 1 AND c = {c}" for expression, c, _ in KNOWN]
    for (expression, c, right), (error, body) in zip(KNOWN, asker.all(known)):
        check(error is None and rows(body) == [(right,)], f"{expression} of row {c} is {error or rows(body)} and not {right}")
    for name in ("double", "float"):
        for expression, is_right in ((f"{name} + {name}", math.isnan), (f"abs({name})", math.isnan), (f"exp({name})", math.isnan)):
            cell = rows(asker.connection.query(f"SELECT {expression} FROM ks.val WHERE k = 1 AND c = 2"))[0][0]
            number = struct.unpack(">d" if len(cell) == 8 else ">f", cell)[0]
            check(is_right(number), f"{expression} of NaN is {number}")
    every = list(calls(draw, world.scale))
    unknown = [f"SELECT {name}() FROM ks.val" for names in FUNCTIONS.values() for name in names]
    for statement, (error, _) in zip(unknown, asker.all(unknown)):
        check(error is None or "Unknown function" not in str(error), f"{statement}: {error}")
    answers = asker.all([f"SELECT {call} FROM ks.val WHERE k = 1 AND c = {1 + at % 4}" for at, call in enumerate(every)])
    answers += asker.all([f"SELECT {call} FROM ks.val WHERE k = 1" for call in every[:: 3 if world.scale == 1 else 1]])
    # Where a value is written, a function's result meets the type of a column.
    asker.all([f"INSERT INTO ks.val (k, c, {draw.choice(TYPES)}) VALUES (9, 9, {call})" for call in every[::7]])
    asker.all([f"SELECT k FROM ks.val WHERE {draw.choice(TYPES)} = {call} ALLOW FILTERING" for call in every[::7]])
    asker.connection.query("DROP TABLE ks.val")
    asker.connection.query("DROP TYPE ks.point")
    asker.close()
    return f"{asker.asked} statements, {sum(error is None for error, _ in answers)} of {len(answers)} calls gave a value"


SCENARIOS = (("literals", literals), ("functions", functions))
