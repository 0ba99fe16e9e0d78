"""Sends the same generated statements to Torc and to Apache Cassandra and compares the answers.

  diff.py --torc ADDRESS --oracle ADDRESS [--seed N] [--cases N | --seconds N] [--keep-going]

Compared are the kind of the answer, the class and code of an error, the names and types of the columns, every byte of
every row in its order, and where pages end. When a case differs, it is cut down to the statements that it takes, and
printed with the command that repeats it. `accepted.txt` lists the differences that are meant, each with its reason.
"""

import argparse
import itertools
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra import DriverException, OperationTimedOut  # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable  # noqa: E402
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, RoundRobinPolicy  # noqa: E402
from cassandra.protocol import ProtocolException, ProtocolHandler, ResultMessage, read_int  # noqa: E402
from cassandra.query import SimpleStatement, tuple_factory  # noqa: E402

from environment import Failure  # noqa: E402
from generate import generate  # noqa: E402

KEYSPACE = "oracle_diff"
LENGTH = 200
# Time passes between the two servers' answers to ttl().
TTL_SLACK_SECONDS = 30
# Cassandra ran into a defect of its own: an exception while reading, or a paging state that it does not know again.
CASSANDRA_FAILED = ("ReadFailure", "WriteFailure", "ServerError", "ProtocolException", "OperationTimedOut")


class RawResult(ResultMessage):
    """A result whose values stay the bytes that the server sent."""

    def recv_results_rows(self, stream, protocol_version, user_type_map, result_metadata, *_):
        self.recv_results_metadata(stream, user_type_map)
        columns = self.column_metadata or result_metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [self.recv_row(stream, len(columns)) for _ in range(read_int(stream))]


class RawProtocol(ProtocolHandler):
    """The protocol with raw results."""

    message_types_by_opcode = {**ProtocolHandler.message_types_by_opcode, RawResult.opcode: RawResult}


class Side:
    """One of the two servers."""

    def __init__(self, name, host, keyspace=KEYSPACE, port=9042):
        self.name, self.host = name, host
        profile = ExecutionProfile(
            load_balancing_policy=RoundRobinPolicy(),
            retry_policy=FallthroughRetryPolicy(),
            request_timeout=30,
            row_factory=tuple_factory,
        )
        self.cluster = Cluster(
            [host], port=port, protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=20, control_connection_timeout=20, schema_metadata_enabled=False,
            reconnection_policy=ConstantReconnectionPolicy(0.1, None),
        )  # fmt: skip
        self.session = self.cluster.connect()
        self.session.client_protocol_handler = RawProtocol
        self.must(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        self.session.set_keyspace(keyspace)

    def must(self, text):
        self.session.execute(text)

    def run_quietly(self, text):
        """Cleans up; missing objects are ignored."""
        try:
            self.must(text)
        except Exception as error:  # also the error of a server, which has no common ancestor in this driver
            print(f"{self.name}: {text}: {error}")

    def wait_for_connection(self, seconds=10):
        """Waits until the driver has a connection again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self.must("SELECT key FROM system.local")
                return
            except (NoHostAvailable, DriverException):
                time.sleep(0.05)

    def run(self, statement, table):
        """The result of the statement: ("error", class), ("void",) or ("rows", columns, pages)."""
        text = statement.text.replace("{t}", table)
        try:
            return self.answer(text, statement)
        except NoHostAvailable as error:
            inner = next(iter(error.errors.values()), error)
            return ("error", type(inner).__name__, str(inner))
        except ProtocolException as error:
            # The driver closes the connection after a protocol error.
            self.wait_for_connection()
            return ("error", type(error).__name__, str(error))
        except OperationTimedOut as error:
            return ("error", "OperationTimedOut", str(error))
        except Exception as error:  # an exception of the driver for a server's error, or for one of its own
            return ("error", type(error).__name__, str(error))

    def answer(self, text, statement):
        if statement.values is None:
            query = SimpleStatement(text, fetch_size=statement.page)
            result = self.session.execute(query)
        else:
            prepared = self.session.prepare(text)
            bound = prepared.bind(statement.values)
            bound.fetch_size = statement.page
            result = self.session.execute(bound)
        if result.column_names is None:
            return ("void",)
        pages = [list(result.current_rows)]
        while result.has_more_pages:
            result.fetch_next_page()
            pages.append(list(result.current_rows))
            if len(pages) > 5000:
                return ("error", "EndlessPaging", "more than 5,000 pages")
        columns = [(same_name(name), type_name(kind)) for name, kind in zip(result.column_names, result.column_types)]
        if [name for name, _ in columns] == ["[json]"]:
            pages = [[(same_name(cell.decode()).encode(),) for (cell,) in page] for page in pages]
        return ("rows", columns, pages)


def same_name(name):
    """A column's name with one of the two names of a function: Cassandra keeps the one that it met first for a type."""
    return name.replace("system.to_json(", "system.tojson(").replace("system.from_json(", "system.fromjson(")


def type_name(kind):
    """A column's type as text, without the table's name in it."""
    return kind.cql_parameterized_type() if hasattr(kind, "cql_parameterized_type") else str(kind)


def difference(ours, theirs, table):
    """The difference between two answers in a few words, or None."""
    if theirs[0] == "error" and theirs[1] in CASSANDRA_FAILED:
        return None
    if ours[0] != theirs[0]:
        return f"{brief(ours)} where Cassandra gives {brief(theirs)}"
    if ours[0] == "error":
        return None if ours[1] == theirs[1] else f"{brief(ours)} where Cassandra gives {brief(theirs)}"
    if ours[0] == "void":
        return None
    (_, our_columns, our_pages), (_, their_columns, their_pages) = ours, theirs
    if our_columns != their_columns:
        return f"columns {our_columns} where Cassandra gives {their_columns}"
    ours_flat = [row for page in our_pages for row in page]
    theirs_flat = [row for page in their_pages for row in page]
    is_ttl = [name.startswith("ttl(") for name, _ in our_columns]
    for index, (our_row, their_row) in enumerate(zip(ours_flat, theirs_flat)):
        for (name, kind), our_cell, their_cell, loose in zip(our_columns, our_row, their_row, is_ttl):
            if our_cell != their_cell and not (loose and close(our_cell, their_cell)):
                return f"row {index}, column {name} ({kind}): {show(our_cell, their_cell)}"
    if len(ours_flat) != len(theirs_flat):
        return f"{len(ours_flat)} rows where Cassandra gives {len(theirs_flat)}"
    # Whether an exhausted result ends with an empty page depends on a server's internal state; clients do not care.
    our_sizes, their_sizes = [[len(page) for page in pages if page] for pages in (our_pages, their_pages)]
    if our_sizes != their_sizes:
        return f"pages of {our_sizes} rows where Cassandra gives {their_sizes}"
    return None


def close(one, other):
    """Whether two times to live are nearly the same."""
    if one is None or other is None or len(one) != len(other):
        return False
    # An int, or a list of them with their lengths.
    words = [[int.from_bytes(cell[at : at + 4], "big", signed=True) for at in range(0, len(cell), 4)] for cell in (one, other)]
    return all(abs(ours - theirs) <= TTL_SLACK_SECONDS for ours, theirs in zip(*words))


def brief(answer):
    if answer[0] == "error":
        return f"error {answer[1]} ({answer[2][:300]})"
    if answer[0] == "void":
        return "success without rows"
    return f"{sum(len(page) for page in answer[2])} rows"


def show(ours, theirs):
    """Two cells, from a little before the first byte that differs."""
    first = 0
    if ours and theirs and max(len(ours), len(theirs)) > 60:
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        first = max(0, first - 30)
    return f"{shown(ours, first)} where Cassandra gives {shown(theirs, first)}"


def shown(cell, first):
    if cell is None:
        return "null"
    part = cell[first : first + 100]
    text = part.decode("utf-8", "backslashreplace")
    if not part or not text.isprintable() or "\\x" in text and len(part) < 60:
        text = "0x" + part.hex()
    return ("…" if first else "") + text + ("…" if first + 100 < len(cell) else "")


class Accepted:
    """The list of differences that are meant: `STATEMENT REGEX => DIFFERENCE REGEX # reason`, one a line."""

    def __init__(self, path):
        self.entries, self.used = [], set()
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or line.startswith("#"):
                    continue
                match = re.fullmatch(r"(.*) => (.*) # (.+)\n?", line)
                if not match:
                    sys.exit(f"{path}:{number}: not `STATEMENT REGEX => DIFFERENCE REGEX # reason`")
                self.entries.append((number, re.compile(match[1]), re.compile(match[2])))

    def has(self, text, found):
        for number, statement, what in self.entries:
            if statement.search(text) and what.search(found):
                self.used.add(number)
                return True
        return False


class Differ:
    def __init__(self, torc, oracle, accepted, disturb):
        self.torc, self.oracle, self.accepted, self.disturb = torc, oracle, accepted, disturb
        self.tables, self.started = 0, int(time.time()) % 10_000_000
        self.statements = 0
        self.answers = {"rows": 0, "void": 0, "error": 0}
        self.shows_errors = False

    def run(self, case, chosen=None, disturb=None):
        """Runs a case, or only the chosen statements; (index, difference, table) of the first difference, or None."""
        self.tables += 1
        # Names that no earlier run has used, which may have ended in the middle.
        table = f"t{self.started}_{self.tables}"
        rng = random.Random(case.seed)
        disturb = self.disturb if disturb is None else disturb
        try:
            for text in case.ddl:
                for side in (self.oracle, self.torc):
                    try:
                        side.must(text.replace("{t}", table))
                    except Exception as error:
                        return (-1, f"{side.name} refuses {text.replace('{t}', table)}: {error}", table)
            for index, statement in enumerate(case.statements):
                is_disturbed = disturb and rng.random() < 0.05
                if chosen is not None and index not in chosen:
                    continue
                if is_disturbed:
                    self.flush(rng.random() < 0.3)
                self.statements += 1
                theirs = self.oracle.run(statement, table)
                ours = self.torc.run(statement, table)
                self.answers[theirs[0]] += 1
                if self.shows_errors and theirs[0] == "error":
                    print(f"{theirs[1]}: {theirs[2][:160]}\n    {statement.text}")
                found = difference(ours, theirs, table)
                if found is not None and not self.accepted.has(statement.text, found):
                    return (index, found, table)
                if found is not None and "error" in (ours[0], theirs[0]):
                    return None  # from here on the two hold different data
            return None
        finally:
            for side in (self.oracle, self.torc):
                for what in (f"MATERIALIZED VIEW IF EXISTS {table}_view", f"TABLE IF EXISTS {table}", f"TYPE IF EXISTS {table}_udt"):
                    side.run_quietly(f"DROP {what}")

    def flush(self, compact):
        """Makes Torc write its memtables to disk, and perhaps merge its files: neither may change any answer."""
        for verb in ["keyspace_flush"] + ["keyspace_compaction"] * compact:
            url = f"http://{self.torc.host}:10000/storage_service/{verb}/{KEYSPACE}"
            try:
                urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60).read()
            except urllib.error.HTTPError as error:
                raise Failure(f"{verb}: {error} {error.read().decode(errors='replace')}") from error

    def shrink(self, case, index, found, disturb):
        """The fewest statements that still show a difference, found by leaving out halves, quarters and so on."""
        chosen = list(range(index + 1)) if index >= 0 else []
        kind = re.sub(r"\d+", "", found)[:25]
        size, runs = max(1, len(chosen) // 2), 0
        while size >= 1 and runs < 60 and len(chosen) > 1:
            position, changed = 0, False
            while position < len(chosen) - 1 and runs < 60:
                trial = chosen[:position] + chosen[min(position + size, len(chosen) - 1) :]
                runs += 1
                again = self.run(case, set(trial), disturb)
                if again is not None and again[0] == index and re.sub(r"\d+", "", again[1])[:25] == kind:
                    chosen, found, changed = trial, again[1], True
                else:
                    position += size
            size = size // 2 if size > 1 or not changed else 1
            if size == 1 and not changed and runs:
                size = 1 if size > 1 else 0
        return chosen, found


def report(case, chosen, found, is_plain, options):
    print(f"\nDIFFERENCE in case {case.seed}: {found}")
    for text in case.ddl:
        print(f"  {text};")
    for index in chosen:
        statement = case.statements[index]
        bound = "" if statement.values is None else f"   -- bound: {statement.values!r}"
        page = "" if statement.page == 5000 else f"   -- page size {statement.page}"
        print(f"  {statement.text};{bound}{page}")
    again = f"./dev oracle --seed {case.seed} --cases 1"
    if is_plain:
        again = f"./dev oracle --seed 1 --cases 1 --new-seed {case.seed} --new-cases 1 --plain"
    print(f"  again: {again}{' --length ' + str(options.length) if options.length != LENGTH else ''}", flush=True)


def arguments(parser):
    parser.add_argument("--seed", type=int, help="of the first case; the next ones count up (default: by the clock)")
    parser.add_argument("--cases", type=int, help="how many cases")
    parser.add_argument("--new-seed", type=int, help="of the first of further cases, which no run before had")
    parser.add_argument("--new-cases", type=int, default=0, help="with --new-seed and --cases, how many of them")
    parser.add_argument("--plain", action="store_true", help="no lightweight transactions, indexes and views in the further cases")
    parser.add_argument("--seconds", type=int, default=60, help="how long, when --cases is not given")
    parser.add_argument("--length", type=int, default=LENGTH, help="statements a case")
    parser.add_argument("--keep-going", action="store_true", help="go on after a difference")
    parser.add_argument("--differences-max", type=int, default=10, help="with --keep-going, how many to show")
    parser.add_argument("--no-flush", action="store_true", help="never flush or compact Torc in between")
    parser.add_argument("--show-errors", action="store_true", help="print statements that Cassandra refuses")
    parser.add_argument("--no-shrink", action="store_true", help="show whole cases")


def seeds(first, options):
    """The seeds of a run, so many as are asked for, or for so long; each with whether its case is plain."""
    if options.cases:
        yield from ((seed, False) for seed in range(first, first + options.cases))
        if options.new_seed is not None:
            yield from ((seed, options.plain) for seed in range(options.new_seed, options.new_seed + options.new_cases))
        return
    end = time.monotonic() + options.seconds
    for seed in itertools.count(first):
        if time.monotonic() >= end:
            return
        yield seed, False


def compare(torc_host, oracle_host, options):
    """Runs cases until the end or the first difference; how many differed."""
    first = options.seed if options.seed is not None else int(time.time()) % 1_000_000_000
    accepted = Accepted(os.path.join(HERE, "accepted.txt"))
    # A server that is compared with itself shows whether the statements decide their answers.
    other = KEYSPACE + "_self" if torc_host == oracle_host else KEYSPACE
    disturb = not options.no_flush and torc_host != oracle_host
    differ = Differ(Side("Torc", torc_host), Side("Cassandra", oracle_host, other), accepted, disturb)
    differ.shows_errors = options.show_errors
    cases, differences = 0, 0
    for seed, is_plain in seeds(first, options):
        case = generate(seed, options.length, is_plain)
        cases += 1
        found = differ.run(case)
        if found is None:
            continue
        differences += 1
        index, what, _ = found
        chosen = list(range(index + 1))
        if not options.no_shrink:
            quiet = differ.run(case, set(chosen), disturb=False)
            disturb = differ.disturb and quiet is None
            chosen, what = differ.shrink(case, index, what, disturb)
            if disturb:
                what += " (only when memtables are flushed in between)"
        report(case, chosen, what, is_plain, options)
        if not options.keep_going or differences >= options.differences_max:
            break
    answers = ", ".join(f"{count} {kind}" for kind, count in differ.answers.items())
    print(f"oracle: {cases} cases from seed {first}, {differ.statements} statements ({answers}), {differences} differences")
    unused = [number for number, *_ in accepted.entries if number not in accepted.used]
    if unused:
        print(f"oracle: lines of accepted.txt that this run did not need: {' '.join(map(str, unused))}")
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True)
    parser.add_argument("--oracle", required=True)
    arguments(parser)
    options = parser.parse_args()
    sys.exit(1 if compare(options.torc, options.oracle, options) else 0)


if __name__ == "__main__":
    main()
