"""Makes cases for the oracle: a schema and statements on it, as a pure function of a seed.

Statements name their table `{t}` and their user type `{t}_udt`, so that a case can be run again under another name.
Every mutation carries a timestamp from a small range, so that writes and deletions meet at equal times and no clock
decides the outcome. Times to live are far apart and far from ending. Lightweight transactions, which some cases have,
take their timestamps from a clock: they win over all other writes, in the order in which they are made, and such cases
select no writetime. Some cases have indexes.
"""

import random
from dataclasses import dataclass, field

from cassandra.query import UNSET_VALUE

import values
from values import NUMBERS, bare, is_multi_cell, name_of, pick


@dataclass
class Statement:
    """One statement: its text, the values to bind (None: it is not prepared) and the page size of its result."""

    text: str
    values: list = None
    page: int = 5000


@dataclass
class Column:
    name: str
    kind: object
    is_descending: bool = False


@dataclass
class Case:
    """The case of one seed."""

    seed: int
    ddl: list = field(default_factory=list)
    statements: list = field(default_factory=list)


class Writer:
    """Puts a statement together, either with literals or with markers and values."""

    def __init__(self, rng, binds, is_named=False):
        self.rng, self.values, self.is_named = rng, ([] if binds else None), is_named

    def marker(self, plain):
        """Binds a value."""
        self.values.append(plain)
        return f":n{len(self.values)}" if self.is_named else "?"

    def value(self, kind, chosen=None):
        """A value of the type (or the chosen one) in the statement's way."""
        literal, plain = chosen or pick(self.rng, kind)
        if self.values is None:
            return literal
        return self.marker(plain)

    def number(self, number):
        """A number that is an option of the statement, such as a limit."""
        return str(number) if self.values is None or self.rng.random() < 0.5 else self.marker(number)

    def values_in(self, kind, most):
        """The operand of IN."""
        if self.values is not None and self.rng.random() < 0.3:
            return self.marker([pick(self.rng, kind)[1] for _ in range(self.rng.randint(0, most))])
        return "(" + ", ".join(self.value(kind) for _ in range(self.rng.randint(1, most))) + ")"


class Generator:
    def __init__(self, seed, length, is_plain=False):
        self.is_plain = is_plain
        self.rng = random.Random(seed)
        self.case = Case(seed)
        self.length = length
        # Inside of a batch that has a timestamp of its own.
        self.has_batch_timestamp = False
        # Of a table's writes some are lightweight transactions.
        self.has_conditions = False
        self.has_view = False
        # Values of the partition key that all statements of a batch have.
        self.fixed = {}
        # The columns with an index, and what of them it is of: "", "KEYS", "VALUES", "ENTRIES" or "FULL".
        self.indexed = []

    def make(self):
        self.schema()
        for _ in range(self.length):
            kind = self.rng.choices(
                (self.mutation, self.select, self.batch, self.error, self.alter, self.truncate),
                weights=(50, 44, 4, 4, 0.6, 0.2),
            )[0]
            self.case.statements.append(kind())
        # The rows at the end, forwards and backwards.
        self.add_final_reads()
        return self.case

    # The schema.

    def schema(self):
        rng = self.rng
        self.has_counters = rng.random() < 0.12
        udt_fields = tuple((f"f{index}", values.frozen(values.random_kind(rng, 1))) for index in range(rng.randint(1, 3)))
        self.udt = ("udt", "{t}_udt", udt_fields)
        body = ", ".join(f"{name} {name_of(kind)}" for name, kind in udt_fields)
        self.case.ddl.append(f"CREATE TYPE {{t}}_udt ({body})")
        self.partition = [Column(f"pk{index}", self.key_kind()) for index in range(rng.choice((1, 1, 2)))]
        self.clustering = [
            Column(f"ck{index}", self.key_kind(), rng.random() < 0.4) for index in range(rng.choice((0, 1, 1, 2, 3)))
        ]
        for column in self.clustering:
            # Cassandra does not see that a reversed column is a collection, and takes its bound values as they come: sets
            # and maps in any order.
            column.is_descending &= not values.has_order_of_its_own(column.kind)
        if self.has_counters:
            statics = rng.randint(0, 1) if self.clustering else 0
            self.static = [Column(f"s{index}", "counter") for index in range(statics)]
            self.regular = [Column(f"v{index}", "counter") for index in range(rng.randint(1, 3))]
        else:
            statics = rng.choice((0, 0, 1, 2)) if self.clustering else 0
            self.static = [Column(f"s{index}", self.value_kind()) for index in range(statics)]
            self.regular = [Column(f"v{index}", self.value_kind()) for index in range(rng.randint(1, 5))]
        self.case.ddl.append(self.create_table())
        if not self.has_counters and not self.is_plain:
            self.has_conditions = rng.random() < 0.25
            if rng.random() < 0.3:
                self.create_indexes()
            if rng.random() < 0.2:
                self.create_view()

    def create_view(self):
        """A view of all columns that can be in one, whose partition key is one of the clustering key or of the values."""
        columns = self.clustering + [one for one in self.regular if isinstance(one.kind, str) and one.kind != "duration"]
        if not columns:
            return
        first, keys = self.rng.choice(columns), self.partition + self.clustering
        rest = self.rng.sample(others := [one for one in keys if one is not first], len(others))
        where = " AND ".join(f"{one.name} IS NOT NULL" for one in [first, *rest])
        key = ", ".join(f"({one.name})" if one is first else one.name for one in [first, *rest])
        # A view has no static columns.
        names = ", ".join(one.name for one in keys + self.regular)
        self.case.ddl.append(f"CREATE MATERIALIZED VIEW {{t}}_view AS SELECT {names} FROM {{t}} WHERE {where} PRIMARY KEY ({key})")
        self.has_view = True

    def create_indexes(self):
        """Indexes of one kind on some columns, those that were there before the first row."""
        using = self.rng.choice(("", " USING 'sai'"))
        candidates = [one for one in self.clustering + self.static + self.regular if is_indexable(one.kind)]
        for column in self.rng.sample(candidates, min(len(candidates), self.rng.randint(1, 2))):
            part = ""
            if is_multi_cell(column.kind):
                part = self.rng.choice(("KEYS", "VALUES", "ENTRIES") if column.kind[0] == "map" else ("VALUES",))
            elif isinstance(bare(column.kind), tuple) and bare(column.kind)[0] in ("list", "set", "map"):
                part = "FULL"
            target = f"{part}({column.name})" if part else column.name
            self.case.ddl.append(f"CREATE INDEX ON {{t}} ({target}){using}")
            self.indexed.append((column, part))

    def key_kind(self):
        if self.rng.random() < 0.9:
            return self.rng.choice(("int", "int", "text", "text", *values.ORDERED))
        return values.frozen(values.random_kind(self.rng, 1, ordered=True))

    def value_kind(self):
        rng = self.rng
        draw = rng.random()
        if draw < 0.12:
            return self.udt
        if draw < 0.2:
            return ("frozen", self.udt)
        if draw < 0.45:
            inner = values.random_kind(rng, 1, ordered=True)
            shape = rng.choice(("list", "set", "map"))
            inner = values.frozen(inner)
            kind = ("map", rng.choice(values.ORDERED), inner) if shape == "map" else (shape, inner)
            return kind
        kind = values.random_kind(rng, 2)
        return values.frozen(kind) if rng.random() < 0.5 else kind

    def create_table(self):
        lines = [f"{column.name} {name_of(column.kind)}" for column in self.partition + self.clustering + self.regular]
        lines += [f"{column.name} {name_of(column.kind)} STATIC" for column in self.static]
        self.rng.shuffle(lines)
        key = "(" + ", ".join(column.name for column in self.partition) + ")"
        lines.append(f"PRIMARY KEY ({', '.join([key] + [column.name for column in self.clustering])})")
        order = ", ".join(f"{column.name} {'DESC' if column.is_descending else 'ASC'}" for column in self.clustering)
        text = f"CREATE TABLE {{t}} ({', '.join(lines)})"
        return text + (f" WITH CLUSTERING ORDER BY ({order})" if order else "")

    # Pieces.

    def writer(self, share=0.3):
        return Writer(self.rng, self.rng.random() < share, self.rng.random() < 0.3)

    def using(self, writer, has_ttl=True):
        if self.has_batch_timestamp:
            return ""
        parts = [f"TIMESTAMP {writer.number(self.rng.randint(1, 12))}"]
        if has_ttl and self.rng.random() < 0.15:
            parts.append(f"TTL {writer.number(self.rng.choice((0, 1000, 20_000, 300_000)))}")
        return " USING " + " AND ".join(parts)

    def partition_equals(self, writer):
        return [f"{column.name} = {writer.value(column.kind, self.fixed.get(column.name))}" for column in self.partition]

    def slice_of(self, writer, has_slice=True):
        """Conditions on a prefix of the clustering columns, the last of which may be a range."""
        rng, found = self.rng, []
        prefix = rng.randint(0, len(self.clustering))
        for column in self.clustering[:prefix]:
            found.append(f"{column.name} = {writer.value(column.kind)}")
        if prefix < len(self.clustering) and has_slice and rng.random() < 0.8:
            rest = self.clustering[prefix:]
            if len(rest) > 1 and rng.random() < 0.3:
                for operator in self.bounds():
                    bound = rest[: rng.randint(1, len(rest))]
                    names = "(" + ", ".join(column.name for column in bound) + ")"
                    found.append(f"{names} {operator} ({', '.join(writer.value(column.kind) for column in bound)})")
            else:
                for operator in self.bounds():
                    found.append(f"{rest[0].name} {operator} {writer.value(rest[0].kind)}")
        return found

    def bounds(self):
        lower, upper = self.rng.choice((">", ">=")), self.rng.choice(("<", "<="))
        return self.rng.choice(([lower], [upper], [lower, upper]))

    # Mutations.

    def mutation(self):
        writer = self.writer()
        text = self.counter_mutation(writer) if self.has_counters else self.plain_mutation(writer)
        return Statement(text, writer.values)

    def plain_mutation(self, writer):
        if self.has_conditions and self.rng.random() < 0.5:
            return self.conditional(writer)
        kinds = (self.insert, self.update, self.delete, self.insert_json)
        return self.rng.choices(kinds, weights=(45, 25, 22, 4))[0](writer)

    # Lightweight transactions.

    def conditional(self, writer):
        rng = self.rng
        kinds = (self.insert_if, self.update_if, self.delete_if)
        if writer.values is not None or rng.random() < 0.8:
            return rng.choice(kinds)(writer)
        # All of one partition, often.
        if rng.random() < 0.8:
            state = [pick(rng, column.kind) for column in self.partition]
            self.fixed = dict(zip((column.name for column in self.partition), state))
        self.has_batch_timestamp = True
        inner = [rng.choice((*kinds, self.insert))(writer) for _ in range(rng.randint(1, 3))]
        self.fixed, self.has_batch_timestamp = {}, False
        return f"BEGIN BATCH {'; '.join(inner)}; APPLY BATCH"

    def insert_if(self, writer):
        return self.insert(writer, " IF NOT EXISTS")

    def update_if(self, writer):
        rng = self.rng
        only_static = self.static and rng.random() < 0.2
        chosen = rng.sample(columns := self.static if only_static else self.regular, rng.randint(1, len(columns)))
        using = f" USING TTL {rng.choice((0, 20_000))}" if rng.random() < 0.1 else ""
        changes = ", ".join(self.change(writer, column) for column in chosen)
        where = self.partition_equals(writer)
        if not only_static:
            where += [f"{column.name} = {writer.value(column.kind)}" for column in self.clustering]
        condition = self.condition(writer, only_static)
        return f"UPDATE {{t}}{using} SET {changes} WHERE {' AND '.join(where)} {condition}"

    def delete_if(self, writer):
        rng, what = self.rng, ""
        only_static = self.static and rng.random() < 0.2
        if only_static or rng.random() < 0.5:
            columns = self.static if only_static else self.regular
            chosen = rng.sample(columns, rng.randint(1, len(columns)))
            what = " " + ", ".join(self.deleted(writer, column) for column in chosen)
        where = self.partition_equals(writer)
        if not only_static:
            where += [f"{column.name} = {writer.value(column.kind)}" for column in self.clustering]
        return f"DELETE{what} FROM {{t}} WHERE {' AND '.join(where)} {self.condition(writer, only_static)}"

    def condition(self, writer, only_static):
        """IF EXISTS, or a few conditions on cells."""
        rng = self.rng
        if rng.random() < 0.25:
            return "IF EXISTS"
        columns = self.static if only_static else self.static + self.regular
        chosen = rng.sample(columns, min(len(columns), rng.choice((1, 1, 2))))
        return "IF " + " AND ".join(self.test(writer, column) for column in chosen)

    def test(self, writer, column):
        """A condition on a cell, or on a part of one."""
        rng, name, kind = self.rng, column.name, bare(column.kind)
        operator = rng.choice(("=", "=", "=", "!=", "<", "<=", ">", ">="))
        if isinstance(kind, tuple) and rng.random() < 0.5:
            if kind[0] == "map":
                return f"{name}[{writer.value(kind[1])}] {operator} {writer.value(kind[2])}"
            if kind[0] == "list":
                index = rng.choice((0, 0, 1, 7))
                return f"{name}[{writer.value('int', (str(index), index))}] {operator} {writer.value(kind[1])}"
            if kind[0] == "udt":
                inner = rng.choice(kind[2])
                return f"{name}.{inner[0]} {operator} {writer.value(inner[1])}"
        if rng.random() < 0.2:
            return f"{name} {rng.choice(('=', '!='))} {writer.value(column.kind, ('null', None))}"
        if rng.random() < 0.15:
            return f"{name} IN {writer.values_in(column.kind, 3)}"
        return f"{name} {operator} {writer.value(column.kind)}"

    def counter_mutation(self, writer):
        return self.delete(writer) if self.rng.random() < 0.1 else self.counter_update(writer)

    def counter_update(self, writer):
        statics = self.static and self.rng.random() < 0.3
        columns = self.static if statics else self.regular
        chosen = self.rng.sample(columns, self.rng.randint(1, len(columns)))
        changes = []
        for column in chosen:
            sign, amount = self.rng.choice("+-"), self.rng.choice((1, 5, 2**40))
            changes.append(f"{column.name} = {column.name} {sign} {writer.value('bigint', (str(amount), amount))}")
        where = self.partition_equals(writer)
        if not statics:
            where += [f"{column.name} = {writer.value(column.kind)}" for column in self.clustering]
        return f"UPDATE {{t}} SET {', '.join(changes)} WHERE {' AND '.join(where)}"

    def insert(self, writer, condition=""):
        only_static = self.static and self.rng.random() < 0.15
        columns = list(self.partition)
        if not only_static:
            columns += self.clustering
        others = self.static if only_static else self.static + self.regular
        columns += self.rng.sample(others, self.rng.randint(0, len(others)))
        keys = {column.name for column in self.partition + self.clustering}
        cells = []
        for column in columns:
            is_null = column.name not in keys and self.rng.random() < 0.08
            if is_null and writer.values is not None and self.rng.random() < 0.5:
                cells.append(writer.marker(UNSET_VALUE))
            elif column.name not in keys and not is_null and self.rng.random() < 0.05:
                form = json_form(column.kind, pick(self.rng, column.kind)[1])
                cells.append("fromJson(" + writer.value("text", ("'" + form.replace("'", "''") + "'", form)) + ")")
            else:
                cells.append(writer.value(column.kind, ("null", None) if is_null else self.fixed.get(column.name)))
        names = ", ".join(column.name for column in columns)
        options = condition or self.using(writer)
        return f"INSERT INTO {{t}} ({names}) VALUES ({', '.join(cells)}){options}"

    def insert_json(self, writer):
        pairs = []
        for column in self.partition + self.clustering + self.static + self.regular:
            is_key = column in self.partition + self.clustering
            if not is_key and self.rng.random() < 0.4:
                continue
            pairs.append(f'"{column.name}": {json_form(column.kind, pick(self.rng, column.kind)[1])}')
        text = "{" + ", ".join(pairs) + "}"
        body = "'" + text.replace("'", "''") + "'" if writer.values is None else writer.marker(text)
        default = self.rng.choice(("", " DEFAULT UNSET", " DEFAULT NULL"))
        return f"INSERT INTO {{t}} JSON {body}{default}{self.using(writer)}"

    def update(self, writer):
        only_static = self.static and self.rng.random() < 0.2
        columns = self.static if only_static else self.regular
        using = self.using(writer)
        chosen = self.rng.sample(columns, self.rng.randint(1, len(columns)))
        changes = ", ".join(self.change(writer, column) for column in chosen)
        where = self.partition_equals(writer)
        if not only_static:
            where += [f"{column.name} = {writer.value(column.kind)}" for column in self.clustering]
        return f"UPDATE {{t}}{using} SET {changes} WHERE {' AND '.join(where)}"

    def change(self, writer, column):
        """One assignment of an UPDATE."""
        name, kind = column.name, column.kind
        if is_multi_cell(kind) and self.rng.random() < 0.75:
            if kind[0] == "list":
                operation = self.rng.choice(("+", "-", "prepend", "=", "index"))
                if operation in "+-":
                    return f"{name} = {name} {operation} {writer.value(kind)}"
                if operation == "prepend":
                    return f"{name} = {writer.value(kind)} + {name}"
                if operation == "index":
                    index = self.rng.choice((0, 0, 1, 2))
                    return f"{name}[{writer.value('int', (str(index), index))}] = {writer.value(kind[1])}"
                return f"{name} = {writer.value(kind)}"
            if kind[0] == "set":
                return f"{name} = {name} {self.rng.choice('+-')} {writer.value(kind)}"
            if kind[0] == "map":
                if self.rng.random() < 0.4:
                    return f"{name}[{writer.value(kind[1])}] = {writer.value(kind[2])}"
                if self.rng.random() < 0.5:
                    return f"{name} = {name} - {writer.value(('set', kind[1]))}"
                return f"{name} = {name} + {writer.value(kind)}"
            inner = self.rng.choice(kind[2])
            return f"{name}.{inner[0]} = {writer.value(inner[1])}"
        return f"{name} = {writer.value(kind, ('null', None) if self.rng.random() < 0.1 else None)}"

    def delete(self, writer):
        rng = self.rng
        # A counter takes no timestamp.
        using = "" if self.has_counters else None
        kinds = ("partition", "row", "range", "range", "cells", "cells")
        if self.has_counters:
            # A deleted counter stays deleted regardless of its time, unless the deletion was itself deleted before the two met:
            # the remaining state depends on when files are merged, in Cassandra as well.
            kinds = ("cells",) if self.case.seed % 2 else ("partition", "row", "range")
        kind = rng.choice(kinds)
        what = ""
        if kind != "cells":
            using = self.using(writer, has_ttl=False) if using is None else using
        if kind == "cells":
            columns = self.static if self.static and rng.random() < 0.25 else self.regular
            chosen = rng.sample(columns, rng.randint(1, len(columns)))
            what = " " + ", ".join(self.deleted(writer, column) for column in chosen)
            using = self.using(writer, has_ttl=False) if using is None else using
            where = self.partition_equals(writer)
            if columns is self.regular:
                where += [f"{column.name} = {writer.value(column.kind)}" for column in self.clustering]
        else:
            where = self.partition_equals(writer)
            if kind == "row":
                where += [f"{column.name} = {writer.value(column.kind)}" for column in self.clustering]
            elif kind == "range":
                where += self.slice_of(writer)
        return f"DELETE{what} FROM {{t}}{using} WHERE {' AND '.join(where)}"

    def deleted(self, writer, column):
        kind = column.kind
        if self.rng.random() < 0.5 and is_multi_cell(kind):
            if kind[0] in ("set", "map"):
                return f"{column.name}[{writer.value(kind[1])}]"
            if kind[0] == "udt":
                return f"{column.name}.{self.rng.choice(kind[2])[0]}"
            index = self.rng.choice((0, 0, 1))
            return f"{column.name}[{writer.value('int', (str(index), index))}]"
        return column.name

    def batch(self):
        writer = self.writer()
        kind = "COUNTER " if self.has_counters else self.rng.choice(("", "UNLOGGED "))
        count = self.rng.randint(1, 6)
        if self.has_counters:
            # A deletion would meet increments of the same time.
            inner = [self.counter_update(Writer(self.rng, False)) for _ in range(count)]
            return Statement(f"BEGIN {kind}BATCH {'; '.join(inner)}; APPLY BATCH")
        inner = []
        # Markers of a batch are named only once.
        writer.is_named = False
        self.has_batch_timestamp = self.rng.random() < 0.2
        using = f" USING TIMESTAMP {writer.number(self.rng.randint(1, 12))}" if self.has_batch_timestamp else ""
        for _ in range(count):
            part = Writer(self.rng, writer.values is not None)
            text = self.rng.choice((self.insert, self.update, self.delete))(part)
            inner.append(text)
            if writer.values is not None:
                writer.values += part.values
        self.has_batch_timestamp = False
        return Statement(f"BEGIN {kind}BATCH{using} {'; '.join(inner)}; APPLY BATCH", writer.values)

    # Reads.

    def select(self):
        rng, writer = self.rng, self.writer()
        shape = rng.choice(("scan", "scan", "partition", "partition", "slice", "slice", "slice", "in", "token", "filter", "filter"))
        where, has_filtering, one_partition = [], False, False
        selection, grouping = self.selection(writer)
        if shape == "partition":
            where, one_partition = self.partition_equals(writer), True
        elif shape == "slice":
            where, one_partition = self.partition_equals(writer) + self.slice_of(writer), True
        elif shape == "in":
            where, one_partition = self.keys_in(writer)
        elif shape == "token":
            where = self.token_range(writer)
        elif shape == "filter":
            where, has_filtering = self.filters(writer), True
            if self.indexed and rng.random() < 0.8:
                where, has_filtering = self.index_search(writer), rng.random() < 0.4
        text = f"SELECT {selection} FROM {{t}}"
        if where:
            text += f" WHERE {' AND '.join(where)}"
        if grouping:
            text += f" GROUP BY {grouping}"
        if one_partition and self.clustering and rng.random() < 0.35 and not grouping:
            reverse = rng.random() < 0.6
            order = [f"{c.name} {'ASC' if c.is_descending == reverse else 'DESC'}" for c in self.clustering]
            text += " ORDER BY " + ", ".join(order[: rng.randint(1, len(order))])
        is_distinct = selection.startswith("DISTINCT")
        if rng.random() < 0.15 and not is_distinct:
            text += f" PER PARTITION LIMIT {writer.number(rng.randint(1, 3))}"
        if rng.random() < 0.25:
            text += f" LIMIT {writer.number(rng.randint(1, 6))}"
        if has_filtering:
            text += " ALLOW FILTERING"
        return Statement(text, writer.values, rng.choice((1, 2, 3, 5, 7, 5000, 5000, 5000)))

    def keys_in(self, writer):
        """IN on the partition key, and perhaps on the clustering key."""
        where = []
        for column in self.partition:
            where.append(f"{column.name} IN {writer.values_in(column.kind, 3)}")
        if self.clustering and self.rng.random() < 0.5:
            if len(self.clustering) > 1 and self.rng.random() < 0.3:
                names = "(" + ", ".join(column.name for column in self.clustering) + ")"
                tuples = [
                    "(" + ", ".join(writer.value(column.kind) for column in self.clustering) + ")"
                    for _ in range(self.rng.randint(1, 3))
                ]
                where.append(f"{names} IN ({', '.join(tuples)})")
            else:
                for column in self.clustering[: self.rng.randint(1, len(self.clustering))]:
                    where.append(f"{column.name} IN {writer.values_in(column.kind, 3)}")
        return where, False

    def token_range(self, writer):
        names = ", ".join(column.name for column in self.partition)
        where = []
        for operator in self.bounds():
            if self.rng.random() < 0.5:
                inner = f"token({', '.join(writer.value(column.kind) for column in self.partition)})"
            else:
                inner = str(self.rng.randint(-(2**63), 2**63 - 1))
            where.append(f"token({names}) {operator} {inner}")
        return where

    def filters(self, writer):
        rng, where = self.rng, []
        if rng.random() < 0.3:
            where += self.partition_equals(writer)
        candidates = self.regular + self.static + self.clustering
        for column in rng.sample(candidates, min(len(candidates), rng.randint(1, 2))):
            kind = column.kind
            if kind == "counter":
                where.append(f"{column.name} {rng.choice(('=', '<', '>='))} {writer.value('bigint')}")
            elif isinstance(bare(kind), tuple) and bare(kind)[0] in ("list", "set", "map") and rng.random() < 0.7:
                kind = bare(kind)
                if kind[0] == "map":
                    if rng.random() < 0.5:
                        where.append(f"{column.name} CONTAINS KEY {writer.value(kind[1])}")
                    elif is_multi_cell(column.kind) and rng.random() < 0.6:
                        where.append(f"{column.name}[{writer.value(kind[1])}] = {writer.value(kind[2])}")
                    else:
                        where.append(f"{column.name} CONTAINS {writer.value(kind[2])}")
                else:
                    where.append(f"{column.name} CONTAINS {writer.value(kind[1])}")
            elif isinstance(kind, str) and kind != "duration" and rng.random() < 0.5:
                where += [f"{column.name} {operator} {writer.value(kind)}" for operator in self.bounds()]
            elif is_multi_cell(kind):
                where += self.partition_equals(writer)
            elif rng.random() < 0.25 and kind != "duration":
                where.append(f"{column.name} IN {writer.values_in(kind, 3)}")
            else:
                where.append(f"{column.name} = {writer.value(kind)}")
        return list(dict.fromkeys(where)) if writer.values is None else where

    def index_search(self, writer):
        """Predicates of which at least one is on an indexed column."""
        rng, where = self.rng, []
        if rng.random() < 0.3:
            where += self.partition_equals(writer)
        for column, part in rng.sample(self.indexed, rng.randint(1, len(self.indexed))):
            name, kind = column.name, bare(column.kind)
            if part == "KEYS":
                where.append(f"{name} CONTAINS KEY {writer.value(kind[1])}")
            elif part == "ENTRIES":
                where.append(f"{name}[{writer.value(kind[1])}] = {writer.value(kind[2])}")
            elif part == "VALUES":
                where.append(f"{name} CONTAINS {writer.value(kind[-1])}")
            elif rng.random() < 0.25 and isinstance(kind, str):
                where += [f"{name} {operator} {writer.value(kind)}" for operator in self.bounds()]
            else:
                where.append(f"{name} = {writer.value(column.kind)}")
        if rng.random() < 0.3:
            where += [one for one in self.filters(writer) if not one.startswith("pk")]
        return list(dict.fromkeys(where)) if writer.values is None else where

    def selection(self, writer):
        """The selected columns, and those of GROUP BY."""
        rng = self.rng
        draw = rng.random()
        names = [column.name for column in self.partition + self.clustering + self.static + self.regular]
        if draw < 0.25:
            return "*", ""
        if draw < 0.30:
            statics = [column.name for column in self.static if rng.random() < 0.5]
            return "DISTINCT " + ", ".join([column.name for column in self.partition] + statics), ""
        if draw < 0.42:
            keys = self.partition + self.clustering
            grouping = ", ".join(column.name for column in keys[: rng.randint(len(self.partition), len(keys))])
            return self.aggregates(), rng.choice(("", grouping))
        if draw < 0.50:
            items = rng.sample(names, rng.randint(1, len(names)))
            items = [self.selected(writer) if rng.random() < 0.3 else item for item in items]
            # How long a cell still lives is compared loosely, which needs a column of its own.
            items = [item for item in items if not item.startswith("ttl(")] or names[:1]
            return "JSON " + ("*" if rng.random() < 0.4 else ", ".join(items)), ""
        chosen = [self.selected(writer) if rng.random() < 0.5 else rng.choice(names) for _ in range(rng.randint(1, 4))]
        return ", ".join(chosen), ""

    def aggregates(self):
        found = ["count(*)"] if self.rng.random() < 0.6 else []
        for column in self.rng.sample(self.regular + self.clustering, 1):
            kind = "bigint" if column.kind == "counter" else column.kind
            functions = ["count"]
            if kind != "duration" and not is_multi_cell(kind):
                functions += ["min", "max"]
            argument = column.name
            if kind in NUMBERS:
                functions += ["sum", "avg"]
                if self.rng.random() < 0.2:
                    argument = f"CAST({column.name} AS {self.rng.choice(('double', 'bigint', 'decimal'))})"
            found.append(f"{self.rng.choice(functions)}({argument})")
        return ", ".join(found)

    def selected(self, writer):
        """One item of a selection that is not just a column."""
        rng = self.rng
        column = rng.choice(self.regular + self.static + self.clustering + self.partition)
        is_key = column in self.partition or column in self.clustering
        kind = column.kind
        options = [f"{column.name} AS other", f"toJson({column.name})"]
        names = ", ".join(one.name for one in self.partition)
        options.append(f"token({names})")
        if not is_key and kind != "counter":
            options += [f"ttl({column.name})"]
            if not self.has_conditions:
                options += [f"writetime({column.name})", f"maxwritetime({column.name})"]
        if kind in NUMBERS:
            options += [f"CAST({column.name} AS {rng.choice(('text', 'bigint', 'double', 'int', 'varint', 'decimal', 'float'))})"]
        elif kind in ("boolean", "uuid", "inet", "date", "time", "timestamp", "ascii"):
            options += [f"CAST({column.name} AS text)"]
        if isinstance(kind, str) and kind not in ("counter", "blob"):
            options += [f"{kind}AsBlob({column.name})" if kind != "ascii" else f"asciiAsBlob({column.name})"]
        if kind == "timeuuid":
            options += [f"toTimestamp({column.name})", f"toDate({column.name})", f"toUnixTimestamp({column.name})"]
        if kind in NUMBERS:
            other = rng.choice([one for one in self.regular + self.clustering + self.partition if one.kind in NUMBERS] or [column])
            arithmetic = f"{column.name} {rng.choice('+-*')} {other.name}"
            # Cassandra converts a bigint to a decimal by way of a double's digits, and loses digits beyond 2^53; Torc is exact.
            if {kind, other.kind} == {"bigint", "decimal"}:
                arithmetic = f"-{other.name}"
            options += [arithmetic, f"-{column.name}"]
        if kind == "timestamp":
            options += [f"minTimeuuid({column.name})", f"maxTimeuuid({column.name})"]
            options += [f"toDate({column.name})", f"toUnixTimestamp({column.name})"]
        if kind == "date":
            options += [f"toTimestamp({column.name})"]
        inner = bare(kind)
        if isinstance(inner, tuple):
            if inner[0] in ("map", "set"):
                low, high = pick(rng, inner[1])[0], pick(rng, inner[1])[0]
                options += [f"{column.name}[{low}]"] * 2
                slices = [f"{column.name}[{low}..{high}]", f"{column.name}[{low}..]", f"{column.name}[..{high}]"]
                options += slices
                if not is_key and is_multi_cell(kind):
                    options += [f"ttl({slices[0]})"] + [f"writetime({column.name}[{low}])"] * (not self.has_conditions)
                if inner[0] == "map":
                    options += [f"map_keys({column.name})", f"map_values({column.name})"]
            if inner[0] in ("map", "set", "list"):
                options += [f"collection_count({column.name})"]
            if inner[0] == "udt":
                options += [f"{column.name}.{rng.choice(inner[2])[0]}"] * 3
        return rng.choice(options)

    def add_final_reads(self):
        self.case.statements.append(Statement("SELECT * FROM {t}", None, 3))
        if self.has_view:
            self.case.statements.append(Statement("SELECT * FROM {t}_view", None, 3))
        if not self.has_counters and not self.has_conditions:
            simple = [column for column in self.regular + self.static if not is_multi_cell(column.kind)]
            if simple:
                items = ", ".join(f"writetime({column.name})" for column in simple)
                self.case.statements.append(Statement(f"SELECT {items} FROM {{t}}"))

    # Changes of the schema, and statements that fail.

    def alter(self):
        if self.has_counters:
            return Statement("SELECT count(*) FROM {t}")
        draw = self.rng.random()
        added = [column for column in self.regular if column.name.startswith("added")]
        if draw < 0.3 and added:
            column = self.rng.choice(added)
            self.regular.remove(column)
            return Statement(f"ALTER TABLE {{t}} DROP {column.name}")
        if draw < 0.45:
            return Statement(f"ALTER TABLE {{t}} WITH default_time_to_live = {self.rng.choice((0, 600_000))}")
        # docs/compatibility.md: with a view it is refused.
        if draw < 0.6 and self.clustering and not self.has_view:
            column = self.rng.choice(self.clustering)
            old, column.name = column.name, f"{column.name.split('_')[0]}_{self.rng.randint(0, 999)}"
            return Statement(f"ALTER TABLE {{t}} RENAME {old} TO {column.name}")
        column = Column(f"added{len(self.regular)}_{self.rng.randint(0, 999)}", self.rng.choice(tuple(values.SIMPLE)))
        self.regular.append(column)
        return Statement(f"ALTER TABLE {{t}} ADD {column.name} {name_of(column.kind)}")

    def truncate(self):
        return Statement("TRUNCATE {t}")

    def error(self):
        rng = self.rng
        key, value = self.partition[0], self.regular[0]
        literal = pick(rng, key.kind)[0]
        where = " AND ".join(self.partition_equals(Writer(rng, False)))
        full = " AND ".join(
            f"{column.name} = {pick(rng, column.kind)[0]}" for column in self.partition + self.clustering
        )
        texts = [
            "SELECT nothing FROM {t}",
            "SELECT * FROM {t}_nothing",
            f"SELECT * FROM {{t}} WHERE {value.name} = {pick(rng, 'bigint' if value.kind == 'counter' else value.kind)[0]}",
            f"SELECT * FROM {{t}} WHERE {key.name} = {literal} AND {key.name} = {literal}",
            f"SELECT * FROM {{t}} WHERE {key.name} > {literal}",
            f"SELECT * FROM {{t}} WHERE {where} LIMIT 0",
            f"SELECT * FROM {{t}} WHERE {where} LIMIT -1",
            f"SELECT * FROM {{t}} WHERE {where} PER PARTITION LIMIT 0",
            f"SELECT * FROM {{t}} WHERE {where} ORDER BY {value.name}",
            f"SELECT * FROM {{t}} WHERE {where} ORDER BY nothing",
            f"SELECT * FROM {{t}} ORDER BY {key.name}",
            "SELECT DISTINCT v0 FROM {t}",
            "SELECT nothing(v0) FROM {t}",
            "SELECT sum(nothing) FROM {t}",
            f"SELECT writetime({key.name}) FROM {{t}}",
            "SELECT token(v0) FROM {t}",
            "SELECT CAST(v0 AS nothing) FROM {t}",
            "SELECT * FROM {t} WHERE token(pk0, pk0) > 1",
            "SELECT v0, count(*), FROM {t}",
            "SELEC * FROM {t}",
            "SELECT * FROM {t} WHERE",
            "SELECT * FROM {t} GROUP BY v0",
            "INSERT INTO {t} (nothing) VALUES (1)",
            f"INSERT INTO {{t}} ({key.name}) VALUES (null)",
            f"INSERT INTO {{t}} ({key.name}, {key.name}) VALUES ({literal}, {literal})",
            f"INSERT INTO {{t}} ({key.name}) VALUES ({literal}, {literal})",
            f"INSERT INTO {{t}} ({value.name}) VALUES (1)",
            f"INSERT INTO {{t}} ({key.name}, {value.name}) VALUES ({literal}, {{1: {{2: 3}}}}) USING TIMESTAMP 5",
            f"INSERT INTO {{t}} ({key.name}) VALUES ({literal}) USING TTL -1",
            f"INSERT INTO {{t}} ({key.name}) VALUES ({literal}) USING TTL 999999999",
            "INSERT INTO {t} JSON 'not json'",
            "INSERT INTO {t} JSON '{\"nothing\": 1}'",
            f"UPDATE {{t}} SET {key.name} = {literal} WHERE {full}",
            f"UPDATE {{t}} SET nothing = 1 WHERE {full}",
            # Of some types these are right: they have a timestamp as all others.
            f"UPDATE {{t}} USING TIMESTAMP 5 SET {value.name} = {value.name} + 'x' WHERE {full}",
            f"UPDATE {{t}} USING TIMESTAMP 5 SET {value.name}[0] = 1 WHERE {full}",
            f"UPDATE {{t}} SET {value.name} = null",
            f"UPDATE {{t}} SET {value.name} = null, {value.name} = null WHERE {full}",
            f"UPDATE {{t}} SET {value.name}.nothing = null WHERE {full}",
            "DELETE FROM {t}",
            f"DELETE {key.name} FROM {{t}} WHERE {full}",
            f"DELETE nothing FROM {{t}} WHERE {full}",
            f"DELETE FROM {{t}} WHERE {value.name} = 1",
            f"DELETE {value.name}[0] FROM {{t}} USING TIMESTAMP 5 WHERE {full}",
            f"DELETE FROM {{t}} USING TTL 5 WHERE {full}",
            "BEGIN BATCH SELECT * FROM {t}; APPLY BATCH",
            "BEGIN COUNTER BATCH " + f"INSERT INTO {{t}} ({key.name}) VALUES ({literal}); APPLY BATCH",
            "CREATE TABLE {t} (k int PRIMARY KEY)",
            "CREATE TABLE {t}_bad (k int)",
            "CREATE TABLE {t}_bad (k int, k text, PRIMARY KEY (k))",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY, v nothing)",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY, v int, PRIMARY KEY (v))",
            "CREATE TABLE {t}_bad (k list<int> PRIMARY KEY)",
            "CREATE TABLE {t}_bad (k duration PRIMARY KEY)",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY, v int, n counter)",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY, n list<counter>)",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY, s int static)",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY, l list<list<int>>)",
            "CREATE TABLE {t}_bad (k counter PRIMARY KEY)",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY) WITH nothing = 1",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY) WITH gc_grace_seconds = -1",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY) WITH compression = {'class': 'Nothing'}",
            "CREATE TABLE {t}_bad (k int PRIMARY KEY) WITH CLUSTERING ORDER BY (k DESC)",
            "CREATE TYPE {t}_udt (a int)",
            "CREATE TYPE {t}_bad (a counter)",
            "CREATE TYPE {t}_bad (a int, a int)",
            "DROP TABLE {t}_nothing",
            "DROP TYPE {t}_nothing",
            "DROP TYPE {t}_nothing.x.y",
            "ALTER TABLE {t} DROP pk0",
            "ALTER TABLE {t} DROP nothing",
            "ALTER TABLE {t} ADD v0 int",
            "ALTER TABLE {t} ADD added nothing",
            "ALTER TABLE {t} RENAME v0 TO v9",
            "ALTER TABLE {t} WITH nothing = 1",
            "ALTER TYPE {t}_udt RENAME nothing TO f9",
            "ALTER TYPE {t}_udt ADD f0 int",
            "ALTER KEYSPACE {t}_nothing WITH durable_writes = false",
            "TRUNCATE {t}_nothing",
            "USE {t}_nothing",
        ]
        return Statement(rng.choice(texts))


def is_indexable(kind):
    """Whether an index can be made on a column of the type: others are for the statements that fail."""
    is_vector = isinstance(kind, tuple) and kind[0] == "vector"
    return not has_duration(kind) and not is_vector and not (is_multi_cell(kind) and kind[0] == "udt")


def has_duration(kind):
    """Whether a value of the type may hold a duration."""
    inner = [field for _, field in kind[2]] if kind[0] == "udt" else [] if isinstance(kind, str) else kind[1:]
    return kind == "duration" or any(has_duration(part) for part in inner if not isinstance(part, int))


def json_form(kind, value):
    """A value as INSERT JSON takes it."""
    kind = bare(kind)
    if value is None:
        return "null"
    if isinstance(kind, tuple):
        if kind[0] in ("list", "set", "vector"):
            return "[" + ", ".join(json_form(kind[1], item) for item in value) + "]"
        if kind[0] == "map":
            pairs = [f"{json_key(kind[1], key)}: {json_form(kind[2], item)}" for key, item in value.items()]
            return "{" + ", ".join(pairs) + "}"
        if kind[0] == "tuple":
            return "[" + ", ".join(json_form(inner, item) for inner, item in zip(kind[1:], value)) + "]"
        return "{" + ", ".join(f'"{name}": {json_form(inner, item)}' for (name, inner), item in zip(kind[2], value)) + "}"
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "decimal":
        return f'"{value}"'  # a bare number goes through a double in Cassandra
    if kind in values.NUMBERS:
        return str(value)
    if kind == "blob":
        return f'"0x{value.hex()}"'
    if kind == "timestamp":
        return f'"{value.isoformat(sep=" ", timespec="milliseconds")}Z"'
    return '"' + str(value).replace('"', '\\"') + '"'


def json_key(kind, value):
    form = json_form(kind, value)
    return form if form.startswith('"') else f'"{form}"'


def generate(seed, length, is_plain=False):
    """The case of a seed; a plain one has no lightweight transactions, indexes and views."""
    return Generator(seed, length, is_plain).make()
