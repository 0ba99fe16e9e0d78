"""SSTables cross between Torc and Apache Cassandra in both directions.

Torc's files: Cassandra's SSTableExport reads them and gives the same JSON as `torc sstable dump`, StandaloneVerifier
finds nothing wrong, and a Cassandra that starts on them answers queries as Torc did. Cassandra's files: `torc sstable
dump` gives the JSON of SSTableExport, `torc sstable verify` finds nothing wrong, and a Torc that starts on them answers
as Cassandra did. The tables hold what the statement generator writes, one compression after the other.
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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from diff import Side  # noqa: E402
from environment import Failure  # noqa: E402
from generate import Statement, generate  # noqa: E402
from node import ADDRESS, ORACLE_ADDRESS, Oracle, Torc, free_port  # noqa: E402

KEYSPACE = "crossing"
SEEDS = range(1, 11)
STATEMENTS = 120
COMPRESSION = (
    "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}",
    "{'class': 'ZstdCompressor'}",
    "{'class': 'SnappyCompressor'}",
    "{'class': 'DeflateCompressor'}",
    "{'enabled': 'false'}",
)


def table_of(seed):
    return f"case{seed}"


def case_of(seed):
    """The schema and the mutations of a seed: what reads or fails stays out."""
    case = generate(seed, STATEMENTS)
    keep = ("INSERT", "UPDATE", "DELETE", "BEGIN")
    case.statements = [statement for statement in case.statements if statement.text.startswith(keep)]
    separator = " AND" if "CLUSTERING ORDER" in case.ddl[1] else " WITH"
    case.ddl[1] += f"{separator} compression = {COMPRESSION[seed % len(COMPRESSION)]}"
    return case


def create(side, seeds):
    for seed in seeds:
        for text in case_of(seed).ddl:
            side.must(text.replace("{t}", table_of(seed)))


def write(side, seed, flush):
    """Writes a case, with a flush in the middle and at the end, so that a table has several files."""
    statements = case_of(seed).statements
    for index, statement in enumerate(statements):
        side.run(statement, table_of(seed))
        if index == len(statements) // 2:
            flush()
    flush()


def rows(side, seeds):
    """Everything in every table, as bytes, with the order of rows."""
    found = {}
    for seed in seeds:
        answer = side.run(Statement("SELECT * FROM {t}"), table_of(seed))
        if answer[0] != "rows":
            raise Failure(f"{side.name} cannot read {table_of(seed)}: {answer}")
        found[seed] = (answer[1], [row for page in answer[2] for row in page])
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


class Crossing:
    def __init__(self, torc, folder):
        self.torc, self.folder, self.failed, self.checks = torc, folder, 0, 0
        os.makedirs(folder, exist_ok=True)
        self.has_tool = subprocess.run([os.path.abspath(torc), "sstable", "--help"], capture_output=True).returncode == 0
        if not self.has_tool:
            print("sstables: this torc has no `sstable` command: its dumps are not compared")

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

    def flush_torc(self):
        url = f"http://{ADDRESS}:10000/storage_service/keyspace_flush/{KEYSPACE}"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60).read()

    def flush_oracle(self, port):
        launcher = os.path.join(HERE, "cassandra")
        subprocess.run([launcher, "nodetool", "flush", KEYSPACE], env=dict(os.environ, JMX=port), check=True)

    # Steps.

    def dumps_agree(self, paths, origin):
        """Both programs print the same for each file, and Torc finds nothing wrong with it."""

        def exported(path):
            return self.tool("SSTableExport", path)

        with ThreadPoolExecutor(2) as pool:
            for path, theirs in zip(paths, pool.map(exported, paths)):
                name = f"{origin} file {table_in(path)}/{os.path.basename(path)}"
                self.note(f"SSTableExport of {name}", theirs.returncode and theirs.stderr[-600:])
                if not self.has_tool:
                    continue
                ours = self.sstable("dump", path)
                self.note(f"dump of {name}", dump_difference(ours, theirs))
                verified = self.sstable("verify", path)
                self.note(f"torc sstable verify of {name}", verified.returncode and verified.stderr[-500:] + verified.stdout[-500:])

    def answers_agree(self, found, expected, what):
        for seed, (columns, cells) in expected.items():
            our_columns, our_cells = found[seed]
            problem = None
            if our_columns != columns:
                problem = f"columns {our_columns}, expected {columns}"
            elif our_cells != cells:
                at = next((i for i, (a, b) in enumerate(zip(our_cells, cells)) if a != b), min(len(our_cells), len(cells)))
                problem = f"{len(our_cells)} rows, expected {len(cells)}; the first difference is in row {at}"
            self.note(f"{what}, table {table_of(seed)}", problem)

    def run(self):
        torc = Torc(self.torc, os.path.join(self.folder, "torc"))
        os.makedirs(os.path.join(self.folder, "torc"))
        jmx = str(free_port())
        oracle = Oracle(
            os.path.join(self.folder, "cassandra"), environment={"COMPATIBILITY": "CASSANDRA_4", "JMX": jmx}
        )
        try:
            torc.start()
            oracle.start()
            ours, theirs = Side("Torc", ADDRESS, KEYSPACE), Side("Cassandra", ORACLE_ADDRESS, KEYSPACE)
            # The same tables on both; Torc writes the even seeds, Cassandra the odd ones.
            even, odd = [seed for seed in SEEDS if seed % 2 == 0], [seed for seed in SEEDS if seed % 2]
            for side in (ours, theirs):
                create(side, SEEDS)
            for seed in even:
                write(ours, seed, self.flush_torc)
            for seed in odd:
                write(theirs, seed, lambda: self.flush_oracle(jmx))
            from_torc, from_cassandra = rows(ours, even), rows(theirs, odd)
            # Torc makes a table's folder with its first file.
            for name, identity in table_ids(ours):
                os.makedirs(os.path.join(torc.data, "data", KEYSPACE, f"{name}-{identity}"), exist_ok=True)
            ours.cluster.shutdown()
            theirs.cluster.shutdown()
            torc.stop()
            oracle.stop()
            self.cross(torc, oracle, from_torc, from_cassandra)
        finally:
            torc.kill()
            oracle.kill()
        return self.failed

    def cross(self, torc, oracle, from_torc, from_cassandra):
        torc_files, cassandra_files = data_files(torc.data), data_files(oracle.folder)
        torc_files = [path for path in torc_files if table_in(path) in map(table_of, from_torc)]
        cassandra_files = [path for path in cassandra_files if table_in(path) in map(table_of, from_cassandra)]
        self.note("files of Torc", None if torc_files else f"none under {torc.data}")
        self.note("files of Cassandra", None if cassandra_files else f"none under {oracle.folder}")
        self.dumps_agree(torc_files, "Torc's")
        self.dumps_agree(cassandra_files, "Cassandra's")
        copy(torc_files, oracle.folder)
        for seed in from_torc:
            done = self.tool("StandaloneVerifier", "--force", "--extended", KEYSPACE, table_of(seed))
            is_bad = done.returncode != 0 or "Error" in done.stdout + done.stderr or "orrupt" in done.stdout + done.stderr
            self.note(f"StandaloneVerifier of Torc's {table_of(seed)}", is_bad and (done.stdout + done.stderr)[-800:])
        oracle.start()
        side = Side("Cassandra", ORACLE_ADDRESS, KEYSPACE)
        self.answers_agree(rows(side, from_torc), from_torc, "Cassandra started on Torc's files")
        side.cluster.shutdown()
        oracle.stop()
        copy(cassandra_files, torc.data)
        torc.start()
        side = Side("Torc", ADDRESS, KEYSPACE)
        self.answers_agree(rows(side, from_cassandra), from_cassandra, "Torc started on Cassandra's files")
        side.cluster.shutdown()
        torc.stop()


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


def dump_difference(ours, theirs):
    """What differs between `torc sstable dump` and SSTableExport."""
    if theirs.returncode != 0:
        return f"SSTableExport ended with {theirs.returncode}: {theirs.stderr[-600:]}"
    if ours.returncode != 0:
        return f"torc sstable dump ended with {ours.returncode}: {ours.stderr[-600:]}"
    try:
        return first_difference(json.loads(ours.stdout), json.loads(theirs.stdout))
    except ValueError as error:
        return f"not JSON: {error}"


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
