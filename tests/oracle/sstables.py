"""SSTables cross between Torc and Apache Cassandra in both directions.

Torc's files: Cassandra's SSTableExport reads them and gives the same JSON as `torc sstable dump`, StandaloneVerifier
finds nothing wrong, and a Cassandra that starts on them answers queries as Torc did. Cassandra's files: `torc sstable
dump` gives the JSON of SSTableExport, `torc sstable verify` finds nothing wrong, and a Torc that starts on them answers
as Cassandra did. The tables hold the rows that the statement generator writes, and the shapes of `shapes.py` under every
compression.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cassandra.concurrent import execute_concurrent  # noqa: E402

import shapes  # noqa: E402
from diff import Side  # noqa: E402
from environment import Failure  # noqa: E402
from generate import Statement, generate  # noqa: E402
from node import ADDRESS, ORACLE_ADDRESS, Oracle, Torc, free_port  # noqa: E402

KEYSPACE = "crossing"
STATEMENTS = 120
COMPRESSION = (
    "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}",
    "{'class': 'ZstdCompressor'}",
    "{'class': 'SnappyCompressor'}",
    "{'class': 'DeflateCompressor'}",
    "{'enabled': 'false'}",
)
# Seeds of the generator: of each half two with counters; both halves have reversed keys and static rows.
SEEDS_TORC = (2, 4, 6, 8, 10, 28, 32)
SEEDS_CASSANDRA = (1, 3, 5, 7, 9, 31, 43)


@dataclass
class Cross:
    """A table that one server writes and the other reads."""

    name: str
    case: object
    is_torcs: bool
    # Whether it is worth a process of the offline verifier.
    is_verified: bool = False


def crosses():
    """The tables of both directions."""
    found = []
    for is_torcs, seeds in ((True, SEEDS_TORC), (False, SEEDS_CASSANDRA)):
        side = "t" if is_torcs else "c"
        for index, seed in enumerate(seeds):
            # A plain case: the index or view of another would be the last statement of its DDL, where the table's has to be.
            case = generate(seed, STATEMENTS, is_plain=True)
            assert case.ddl[-1].startswith("CREATE TABLE"), case.ddl[-1]
            # Statements that read or fail stay out.
            keep = ("INSERT", "UPDATE", "DELETE", "BEGIN")
            case.statements = [statement for statement in case.statements if statement.text.startswith(keep)]
            found.append(compressed(Cross(f"case{seed}", case, is_torcs), index))
        for index in range(len(COMPRESSION)):
            wide = Cross(f"wide{side}{index}", shapes.wide(100 * is_torcs + index), is_torcs, True)
            found.append(compressed(wide, index))
        found.append(compressed(Cross(f"types{side}", shapes.types(7 + is_torcs), is_torcs, True), 0))
    return found


def compressed(cross, index):
    separator = " AND" if "CLUSTERING ORDER" in cross.case.ddl[-1] else " WITH"
    cross.case.ddl[-1] += f"{separator} compression = {COMPRESSION[index % len(COMPRESSION)]}"
    return cross


def create(side, all_crosses):
    for cross in all_crosses:
        for text in cross.case.ddl:
            side.must(text.replace("{t}", cross.name))


def write(side, cross, flush):
    """Writes a case, with a flush in the middle and at the end, so that a table has several files."""
    statements = cross.case.statements
    half = len(statements) // 2
    for part in (statements[:half], statements[half:]):
        put(side, cross, part)
        flush()


def put(side, cross, statements):
    """Runs a part of a case."""
    if cross.name.startswith("case"):
        # Some of these fail, and the order counts.
        for statement in statements:
            side.run(statement, cross.name)
        return
    session, table = side.session, cross.name
    prepared, requests = {}, []
    for statement in statements:
        text = statement.text.replace("{t}", table)
        if statement.values is None:
            requests.append((text, ()))
            continue
        if text not in prepared:
            prepared[text] = session.prepare(text)
        requests.append((prepared[text], statement.values))
    execute_concurrent(session, requests, concurrency=64)


def rows(side, names):
    """Everything in every table, as bytes, with the order of rows."""
    found = {}
    for name in names:
        answer = side.run(Statement("SELECT * FROM {t}"), name)
        if answer[0] != "rows":
            raise Failure(f"{side.name} cannot read {name}: {answer}")
        found[name] = (answer[1], [row for page in answer[2] for row in page])
    return found


def table_ids(side):
    """Names of the keyspace's tables with their ids, as folders are named."""
    text = f"SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = '{KEYSPACE}'"
    pages = side.run(Statement(text), "")[2]
    return [(name.decode(), identity.hex()) for page in pages for name, identity in page]


def data_files(folder):
    """Data components of the keyspace under a server's directory."""
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "**", KEYSPACE, "**", "*-Data.db"), recursive=True))
    return [path for path in found if "/snapshots/" not in path and "/backups/" not in path]


def table_in(path):
    """The table that a file belongs to: its folder is NAME-ID."""
    parts = path.split(os.sep)
    return parts[parts.index(KEYSPACE) + 1].split("-")[0]


class Exporter:
    """A process that prints SSTables as Cassandra's SSTableExport does."""

    def __init__(self, folder):
        launcher = os.path.join(HERE, "cassandra")
        self.errors = open(os.path.join(folder, "export.log"), "wb")
        self.process = subprocess.Popen(
            [launcher, "export", os.path.join(folder, "cassandra")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, env=dict(os.environ, HOST=ORACLE_ADDRESS, HEAP="512M", COMPATIBILITY="CASSANDRA_4"),
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()

    def export(self, path):
        """Exit code, JSON and errors for one file."""
        self.process.stdin.write(path.encode() + b"\n")
        self.process.stdin.flush()
        head = self.process.stdout.readline().split()
        if len(head) != 3:
            raise Failure(f"the exporter ended; see {self.errors.name}")
        code, *sizes = map(int, head)
        out, errors = [self.process.stdout.read(size).decode() for size in sizes]
        return subprocess.CompletedProcess([path], code, out, errors)


class Crossing:
    def __init__(self, torc, folder):
        self.torc, self.folder, self.failed, self.checks = torc, folder, 0, 0
        os.makedirs(folder, exist_ok=True)

    def note(self, what, problem):
        self.checks += 1
        if problem:
            self.failed += 1
            print(f"FAIL {what}: {problem}", flush=True)

    # Programs.

    def tool(self, name, *arguments):
        launcher = os.path.join(HERE, "cassandra")
        folder = os.path.join(self.folder, "cassandra")
        return subprocess.run(
            [launcher, "tool", folder, name, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, HOST=ORACLE_ADDRESS, HEAP="512M", COMPATIBILITY="CASSANDRA_4"),
        )  # fmt: skip

    def sstable(self, verb, path):
        return subprocess.run(
            [os.path.abspath(self.torc), "sstable", verb, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def torc_does(self, verb):
        url = f"http://{ADDRESS}:10000/storage_service/{verb}/{KEYSPACE}"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60).read()

    def nodetool(self, *arguments):
        launcher = os.path.join(HERE, "cassandra")
        return subprocess.run([launcher, "nodetool", *arguments], env=dict(os.environ, JMX=self.jmx), capture_output=True, text=True)

    # Steps.

    def dumps_agree(self, paths, origin):
        """Both programs print the same for each file, and Torc finds nothing wrong with it."""

        def dumped(path):
            return self.sstable("dump", path), self.sstable("verify", path)

        with ThreadPoolExecutor(2) as pool, Exporter(self.folder) as exporter:
            for path, (ours, verified) in zip(paths, pool.map(dumped, paths)):
                theirs = exporter.export(path)
                name = f"{origin} file {table_in(path)}/{os.path.basename(path)}"
                self.note(f"SSTableExport of {name}", theirs.returncode and theirs.stderr[-600:])
                self.note(f"dump of {name}", dump_difference(ours, theirs, table_in(path) in self.counters))
                self.note(f"torc sstable verify of {name}", verified.returncode and verified.stderr[-500:] + verified.stdout[-500:])

    def answers_agree(self, found, expected, what):
        for name, (columns, cells) in expected.items():
            our_columns, our_cells = found[name]
            problem = None
            if our_columns != columns:
                problem = f"columns {our_columns}, expected {columns}"
            elif our_cells != cells:
                at = next((i for i, (a, b) in enumerate(zip(our_cells, cells)) if a != b), min(len(our_cells), len(cells)))
                problem = f"{len(our_cells)} rows, expected {len(cells)}; the first difference is in row {at}"
            self.note(f"{what}, table {name}", problem)

    def run(self):
        torc = Torc(self.torc, os.path.join(self.folder, "torc"))
        os.makedirs(os.path.join(self.folder, "torc"))
        self.jmx = str(free_port())
        oracle = Oracle(
            os.path.join(self.folder, "cassandra"), environment={"COMPATIBILITY": "CASSANDRA_4", "JMX": self.jmx}
        )
        try:
            oracle.start()
            torc.start()
            from_torc, from_cassandra = self.fill(torc)
            torc.stop()
            oracle.stop()
            self.cross(torc, oracle, from_torc, from_cassandra)
        finally:
            torc.kill()
            oracle.kill()
        return self.failed

    def fill(self, torc):
        """Makes the same tables on both servers, and lets one of them write into each; returns the answers of both."""
        ours, theirs = Side("Torc", ADDRESS, KEYSPACE), Side("Cassandra", ORACLE_ADDRESS, KEYSPACE)
        self.crosses = crosses()
        self.counters = {one.name for one in self.crosses if " counter" in one.case.ddl[-1]}
        torcs, cassandras = [[one for one in self.crosses if one.is_torcs == which] for which in (True, False)]
        for side in (ours, theirs):
            create(side, self.crosses)
        for index, cross in enumerate(torcs):
            write(ours, cross, lambda: self.torc_does("keyspace_flush"))
            if index == len(torcs) // 2:
                # From here on the keyspace has files that were merged and files that were not.
                self.torc_does("keyspace_compaction")
        halves = [[], []]
        for cross in cassandras:
            half = len(cross.case.statements) // 2
            for index, part in enumerate((cross.case.statements[:half], cross.case.statements[half:])):
                halves[index].append((cross, part))
        for parts in halves:
            for cross, part in parts:
                put(theirs, cross, part)
            done = self.nodetool("flush", KEYSPACE)
            if done.returncode:
                raise Failure(f"nodetool flush: {done.stdout}{done.stderr}")
        answers = rows(ours, [one.name for one in torcs]), rows(theirs, [one.name for one in cassandras])
        # Torc makes a table's folder with its first file.
        for name, identity in table_ids(ours):
            os.makedirs(os.path.join(torc.data, "data", KEYSPACE, f"{name}-{identity}"), exist_ok=True)
        ours.cluster.shutdown()
        theirs.cluster.shutdown()
        return answers

    def cross(self, torc, oracle, from_torc, from_cassandra):
        torc_files, cassandra_files = data_files(torc.data), data_files(oracle.folder)
        torc_files = [path for path in torc_files if table_in(path) in from_torc]
        cassandra_files = [path for path in cassandra_files if table_in(path) in from_cassandra]
        for name, files, tables in (("Torc", torc_files, from_torc), ("Cassandra", cassandra_files, from_cassandra)):
            missing = set(tables) - set(map(table_in, files))
            self.note(f"files of {name}", f"none of {sorted(missing)}" if missing else None)
        self.dumps_agree(torc_files, "Torc's")
        self.dumps_agree(cassandra_files, "Cassandra's")
        copy(torc_files, oracle.folder)
        self.verify()
        oracle.start()
        side = Side("Cassandra", ORACLE_ADDRESS, KEYSPACE)
        self.answers_agree(rows(side, from_torc), from_torc, "Cassandra started on Torc's files")
        side.cluster.shutdown()
        done = self.nodetool("verify", "--force", "--extended-verify", KEYSPACE)
        self.note("nodetool verify of all tables", done.returncode and (done.stdout + done.stderr)[-800:])
        oracle.stop()
        copy(cassandra_files, torc.data)
        torc.start()
        side = Side("Torc", ADDRESS, KEYSPACE)
        self.answers_agree(rows(side, from_cassandra), from_cassandra, "Torc started on Cassandra's files")
        side.cluster.shutdown()
        torc.stop()

    def verify(self):
        """Cassandra's offline verifier over Torc's files."""

        def verified(cross):
            return self.tool("StandaloneVerifier", "--force", "--extended", KEYSPACE, cross.name)

        chosen = [cross for cross in self.crosses if cross.is_torcs and cross.is_verified]
        with ThreadPoolExecutor(2) as pool:
            for cross, done in zip(chosen, pool.map(verified, chosen)):
                text = done.stdout + done.stderr
                is_bad = done.returncode != 0 or "Error" in text or "orrupt" in text
                self.note(f"StandaloneVerifier of Torc's {cross.name}", is_bad and text[-800:])


def copy(paths, target):
    """Puts the SSTables of these data files into the folders of the same tables under another server's directory."""
    number = 5000
    for path in paths:
        folders = glob.glob(os.path.join(glob.escape(target), "**", KEYSPACE, table_in(path) + "-*"), recursive=True)
        if not folders:
            raise Failure(f"no folder of table {table_in(path)} under {target}")
        number += 1
        folder, name = os.path.split(path)
        version, _, kind, _ = name.split("-")
        for component in glob.glob(os.path.join(glob.escape(folder), name[: -len("Data.db")] + "*")):
            suffix = component.rsplit("-", 1)[1]
            shutil.copy(component, os.path.join(sorted(folders)[0], f"{version}-{number}-{kind}-{suffix}"))


def dump_difference(ours, theirs, has_counters):
    """The difference between `torc sstable dump` and SSTableExport."""
    if theirs.returncode != 0:
        return f"SSTableExport ended with {theirs.returncode}: {theirs.stderr[-600:]}"
    if ours.returncode != 0:
        return f"torc sstable dump ended with {ours.returncode}: {ours.stderr[-600:]}"
    try:
        ours, theirs = json.loads(ours.stdout), json.loads(theirs.stdout)
        if has_counters:
            # SSTableExport shows the first bytes of a counter's context as its value; the answers of the server that is
            # started on the file are compared as well.
            ours, theirs = without_values(ours), without_values(theirs)
        return first_difference(ours, theirs)
    except ValueError as error:
        return f"not JSON: {error}"


def without_values(dump):
    """A dump without the values of cells."""
    if isinstance(dump, dict):
        return {name: without_values(part) for name, part in dump.items() if name != "value"}
    return [without_values(part) for part in dump] if isinstance(dump, list) else dump


def first_difference(ours, theirs, place="$"):
    """The first place where two JSON values differ, or None."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in list(theirs) + [name for name in ours if name not in theirs]:
            if name not in ours or name not in theirs:
                return f"{place}.{name} is only in the dump of {'Torc' if name in ours else 'Cassandra'}"
            found = first_difference(ours[name], theirs[name], f"{place}.{name}")
            if found:
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        for index, (one, other) in enumerate(zip(ours, theirs)):
            found = first_difference(one, other, f"{place}[{index}]")
            if found:
                return found
        return None if len(ours) == len(theirs) else f"{place} has {len(ours)} items, Cassandra's has {len(theirs)}"
    return None if ours == theirs else f"{place} is {json.dumps(ours)[:200]}, Cassandra's is {json.dumps(theirs)[:200]}"


def cross(torc, folder):
    """Runs everything; how many checks failed."""
    begun = time.monotonic()
    crossing = Crossing(torc, folder)
    crossing.run()
    print(f"sstables: {crossing.checks} checks, {crossing.failed} failed, {time.monotonic() - begun:.0f} s")
    return crossing.failed
