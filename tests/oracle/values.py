"""CQL types and small sets of values of each, so that generated statements meet each other.

A value is a pair: the CQL literal, and the value that the Python driver binds. A type is a name, or a tuple: ("list", T),
("set", T), ("map", K, V), ("tuple", T…), ("vector", T, n), ("udt", name, ((field, T)…)), ("frozen", T).
"""

import datetime
import decimal
import uuid

from cassandra.util import Date, Duration, Time

UTC = datetime.timezone.utc


def same(values):
    return [(str(value), value) for value in values]


def quoted(values):
    return [("'" + str(value).replace("'", "''") + "'", value) for value in values]


def _decimals(texts):
    return [(text, decimal.Decimal(text)) for text in texts]


def _uuids(texts):
    return [(text, uuid.UUID(text)) for text in texts]


def _timestamps(numbers):
    epoch = datetime.datetime(1970, 1, 1)
    return [(str(number), epoch + datetime.timedelta(milliseconds=number)) for number in numbers]


SIMPLE = {
    "ascii": quoted(["a", "b", "zz", "~ '"]),
    "bigint": same([0, 1, -1, 7, 2**62, -(2**63)]),
    "blob": [("0x" + text, bytes.fromhex(text)) for text in ("00", "ff", "cafe", "00ff00")],
    "boolean": [("true", True), ("false", False)],
    "date": [("'1970-01-01'", Date("1970-01-01")), ("'2026-11-21'", Date("2026-11-21")), ("'1900-02-28'", Date("1900-02-28"))],
    "decimal": _decimals(["0", "1.5", "-1.50", "12345678901234567890.123", "1E+3"]),
    "double": same([0.0, 1.5, -2.25, 1e100, 3.0]),
    "duration": [("1mo2d3h", Duration(1, 2, 10_800_000_000_000)), ("5s", Duration(0, 0, 5_000_000_000))],
    "float": same([0.0, 1.5, -2.25, 100.0]),
    "inet": quoted(["127.0.0.1", "10.1.2.3", "::1", "2001:db8::1"]),
    "int": same([0, 1, 2, -1, 100, 2**31 - 1, -(2**31)]),
    "smallint": same([0, 1, -1, 300, -32768]),
    "text": quoted(["a", "b", "žluť", "it's", "long " * 12]),
    "time": [("'00:00:00'", Time(0)), ("'13:14:15.123456789'", Time("13:14:15.123456789"))],
    "timestamp": _timestamps([0, 1, 1_700_000_000_123, -5]),
    "timeuuid": _uuids(["2c9c2dd0-0000-11ef-8000-000000000001", "2c9c2dd0-0001-11ef-8000-000000000001", "13814000-1dd2-11b2-8080-808080808080"]),
    "tinyint": same([0, 1, -1, 127, -128]),
    "uuid": _uuids(["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"]),
    "varint": same([0, 1, -1, 255, 2**70, -(2**70)]),
}
NUMBERS = ("tinyint", "smallint", "int", "bigint", "varint", "float", "double", "decimal")
# duration has no order, so it cannot be part of a key or the element of a set.
ORDERED = tuple(name for name in SIMPLE if name != "duration")


def name_of(kind):
    """The type as CQL writes it."""
    if isinstance(kind, str):
        return kind
    if kind[0] == "udt":
        return kind[1]
    if kind[0] == "vector":
        return f"vector<{name_of(kind[1])}, {kind[2]}>"
    return f"{kind[0]}<{', '.join(name_of(inner) for inner in kind[1:])}>"


def bare(kind):
    """The type without `frozen`."""
    return kind[1] if isinstance(kind, tuple) and kind[0] == "frozen" else kind


def has_order_of_its_own(kind):
    """Whether a value of the type holds elements that are sorted."""
    if isinstance(kind, str):
        return False
    if kind[0] == "udt":
        return any(has_order_of_its_own(inner) for _, inner in kind[2])
    inner = [part for part in kind[1:] if not isinstance(part, int)]
    return kind[0] in ("set", "map") or any(map(has_order_of_its_own, inner))


def is_multi_cell(kind):
    """Whether the column stores a cell an element."""
    return isinstance(kind, tuple) and kind[0] in ("list", "set", "map", "udt")


def pick(rng, kind):
    """A value of the type: its literal and its Python form."""
    kind = bare(kind)
    if isinstance(kind, str):
        return rng.choice(SIMPLE[kind])
    if kind[0] in ("list", "set"):
        items = [pick(rng, kind[1]) for _ in range(rng.randint(0, 3))]
        items = items if kind[0] == "list" else unique(items)
        left, right = "[]" if kind[0] == "list" else "{}"
        return left + ", ".join(literal for literal, _ in items) + right, [value for _, value in items]
    if kind[0] == "map":
        keys = unique([pick(rng, kind[1]) for _ in range(rng.randint(0, 3))])
        pairs = [(key, pick(rng, kind[2])) for key in keys]
        text = ", ".join(f"{key[0]}: {value[0]}" for key, value in pairs)
        return "{" + text + "}", {key[1]: value[1] for key, value in pairs}
    if kind[0] == "vector":
        items = [pick(rng, kind[1]) for _ in range(kind[2])]
        return "[" + ", ".join(literal for literal, _ in items) + "]", [value for _, value in items]
    kinds = [inner for _, inner in kind[2]] if kind[0] == "udt" else kind[1:]
    items = [pick(rng, inner) if rng.random() < 0.85 else ("null", None) for inner in kinds]
    values = tuple(value for _, value in items)
    if kind[0] == "tuple":
        return "(" + ", ".join(literal for literal, _ in items) + ")", values
    fields = [f"{field}: {literal}" for (field, _), (literal, _) in zip(kind[2], items)]
    return "{" + ", ".join(fields) + "}", values


def unique(items):
    """The items without those whose literal came before."""
    return list({literal: (literal, value) for literal, value in items}.values())


def random_kind(rng, depth=2, ordered=False):
    """A type; `ordered` leaves out types that cannot be a key or an element of a set."""
    simple = rng.choice(ORDERED if ordered else tuple(SIMPLE))
    if depth == 0 or rng.random() < 0.6:
        return simple
    shape = rng.choice(("list", "set", "map", "tuple", "vector"))
    if shape == "list":
        return ("list", frozen(random_kind(rng, depth - 1, ordered)))
    if shape == "set":
        return ("set", frozen(random_kind(rng, depth - 1, True)))
    if shape == "map":
        return ("map", rng.choice(ORDERED), frozen(random_kind(rng, depth - 1, ordered)))
    if shape == "vector":
        return ("vector", frozen(random_kind(rng, 0, ordered)), rng.randint(1, 3))
    return ("tuple", *(frozen(random_kind(rng, depth - 1, ordered)) for _ in range(rng.randint(1, 3))))


def frozen(kind):
    """The type as it may stand inside another one."""
    return ("frozen", kind) if isinstance(kind, tuple) and kind[0] in ("list", "set", "map", "udt") else kind
