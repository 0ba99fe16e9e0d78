"""Files that are damaged or gone while the node is down: it starts, and each read is right or a clear error."""

import glob
import os
import random
import struct
import time

from client import CqlError, rows
from environment import Failure
from ports import REST, check, http

COMPONENTS = ("Data.db", "Index.db", "Summary.db", "Filter.db", "Statistics.db", "CompressionInfo.db")
# Without these an SSTable cannot be read, or it is not known to be whole.
NEEDED = ("Data.db", "Index.db", "Statistics.db", "CompressionInfo.db")
MISSING = (*COMPONENTS, "TOC.txt", "Digest.crc32", "Torc.db")
RESTARTING = ("flipped_bytes", "missing_files", "foreign_files", "damaged_log", "many_sstables")
SSTABLES = 1000
# Seconds, of a debug build.
START_MAX = 4
# Seconds that a DROP may take: it removes files after that.
DROP_MAX = 5
# A start reads less than this part of the files.
START_SHARE = 8
# A multiple of fifty.
PARTITIONS = 300
FLIP_ROUNDS = 4
LOG_ROUNDS = 6


def table_of(prefix, component):
    return prefix + component.split(".", 1)[0].lower()


def fill(world, tables, flush=True):
    """Makes the tables, each with the same rows, and stops the node when they are to be in SSTables."""
    with world.connect() as connection:
        for table in tables:
            connection.query(f"CREATE TABLE ks.{table} (k int PRIMARY KEY, v int)")
            for begin in range(0, PARTITIONS, 50):
                inserts = "".join(f"INSERT INTO ks.{table} (k, v) VALUES ({key}, {key * 7}); " for key in range(begin, begin + 50))
                connection.query(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
    if flush:
        status = http(world, REST, "POST", "/storage_service/keyspace_flush/ks", f"Host: {world.host}")
        check(status == 200, f"the flush was answered with {status}")
        stop(world)


def stop(world):
    check(world.node.stop() == 0, "the node did not stop in order")


def files(world, table, component=""):
    """The files of a table whose names end so."""
    pattern = os.path.join(world.node.data, "**", table + "-*", "**", "*" + component)
    return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))


def read(world, table):
    """Reads the table by scan and by key; how many reads gave an error. All others are right."""
    errors = 0
    right = {struct.pack(">i", key): struct.pack(">i", key * 7) for key in range(PARTITIONS)}
    with world.connect() as connection:
        try:
            found = dict(rows(connection.query(f"SELECT k, v FROM ks.{table}")))
            check(found == right, f"a scan of {table} gave {len(found)} rows of {PARTITIONS}, or wrong ones")
        except CqlError:
            errors += 1
        for key in range(0, PARTITIONS, 10):
            try:
                found = rows(connection.query(f"SELECT v FROM ks.{table} WHERE k = {key}"))
                check(found == [(struct.pack(">i", key * 7),)], f"key {key} of {table} gave {found}")
            except CqlError:
                errors += 1
    return errors


def write_good(world, key=2):
    with world.connect() as connection:
        connection.query(f"INSERT INTO good.t (k, v) VALUES ({key}, 2)")


def log_since(world, begun):
    with open(world.node.log, encoding="utf-8", errors="replace") as log:
        log.seek(begun)
        return log.read()


def flipped_bytes(world):
    """A flipped byte in each component of an SSTable: the node starts, and never returns wrong rows."""
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    tables = {component: table_of("d_", component) for component in COMPONENTS}
    fill(world, tables.values())
    damaged = errors = 0
    for _ in range(FLIP_ROUNDS):
        before = {}
        for component, table in tables.items():
            for path in files(world, table, component):
                with open(path, "r+b") as file:
                    before[path] = file.read()
                    if before[path]:
                        at = draw.randrange(len(before[path]))
                        file.seek(at)
                        file.write(bytes([before[path][at] ^ (1 << draw.randrange(8))]))
                        damaged += 1
        check(len(before) >= len(COMPONENTS) - 1, f"only {len(before)} files were found")
        world.node.start()
        errors += sum(read(world, table) for table in tables.values())
        write_good(world)
        stop(world)
        for path, content in before.items():
            folder = os.path.dirname(path)
            if os.path.exists(path):
                with open(path, "wb") as file:
                    file.write(content)
                continue
            # It was put in quarantine with the rest of its SSTable, which may go back.
            for moved in glob.glob(os.path.join(folder, "quarantine", "*")):
                os.rename(moved, os.path.join(folder, os.path.basename(moved)))
            with open(path, "wb") as file:
                file.write(content)
    world.node.start()
    for table in tables.values():
        check(read(world, table) == 0, f"{table} is not whole with its files as they were")
    return f"{damaged} files, {errors} reads with an error"


def missing_files(world):
    """A component of an SSTable is gone: nothing else is deleted, the node starts and logs the missing file."""
    tables = {component: table_of("m_", component) for component in MISSING}
    fill(world, tables.values())
    left, gone = {}, 0
    for component, table in tables.items():
        for path in files(world, table, component):
            os.remove(path)
            gone += 1
        left[table] = sorted(os.path.basename(path) for path in files(world, table))
    check(gone >= len(MISSING), f"only {gone} files were removed")
    begun = os.path.getsize(world.node.log)
    world.node.start()
    log = log_since(world, begun)
    errors = 0
    for component, table in tables.items():
        failed = read(world, table)
        errors += failed
        check(failed == 0 or component in NEEDED, f"{table} has {failed} reads with an error")
        check(failed > 0 or component not in NEEDED, f"{table} has no {component}, and all reads are right")
        now = [os.path.basename(path) for path in files(world, table)]
        lost = [name for name in left[table] if name not in now]
        check(not lost, f"without {component}, {lost} were deleted")
        check(failed == 0 or f"-{component}" in log, f"the log does not name {component}")
    write_good(world)
    return f"{gone} files, {errors} reads with an error"


def foreign_files(world):
    """Files and folders of others among a table's are left alone; SSTables of formats that cannot be read are named."""
    fill(world, ["foreign", "newer"])
    folder = os.path.dirname(files(world, "foreign", "-Data.db")[0])
    strange = ("notes.txt", "nb-7-big-Data.db.bak", "nb-7-big-TOC.tmp", "na-1", "\u00e4\u00f6.db")
    for name in strange:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(b"not ours")
    os.makedirs(os.path.join(folder, "folder", "below"))
    os.symlink("/nowhere", os.path.join(folder, "link"))
    newer = os.path.join(os.path.dirname(files(world, "newer", "-Data.db")[0]), "da-1-bti-Data.db")
    with open(newer, "wb") as file:
        file.write(b"of another format")
    begun = os.path.getsize(world.node.log)
    world.node.start()
    check(read(world, "newer") > 0, "reads beside an SSTable that cannot be read are right by chance")
    check("da-1-bti-Data.db is of a format that cannot be read" in log_since(world, begun), "the log does not say so")
    check(read(world, "foreign") == 0, "reads beside foreign files fail")
    for name in (*strange, "folder", "link"):
        check(os.path.lexists(os.path.join(folder, name)), f"{name} was deleted")


def damaged_log(world):
    """A commit log of which the last bytes are gone serves the entries before them; of which bytes in the middle are wrong, never starts silently."""
    stop(world)
    # A damaged byte in the part that a crash may have torn cannot be distinguished from it: the expected rows were synced, and the log records that.
    usual, world.node.command = world.node.command, [*world.node.command, "--commitlog_sync", "batch"]
    world.node.start()
    begun = time.time()
    fill(world, ["logged"], flush=False)
    for key in range(20):
        write_good(world, key)
    world.node.kill()
    all_segments = glob.glob(os.path.join(world.node.data, "commitlog", "commitlog-*.log"))
    segments = sorted(path for path in all_segments if os.path.getmtime(path) >= begun)
    check(segments, "no segment of the commit log was written")
    before = {}
    for path in all_segments:
        with open(path, "rb") as file:
            before[path] = file.read()
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    refused = 0
    for _ in range(LOG_ROUNDS):
        path = draw.choice(segments)
        content = bytearray(before[path])
        at = draw.randrange(len(content))
        while not content[at]:
            # Not of the padding between chunks.
            at = draw.randrange(len(content))
        content[at] ^= 1 << draw.randrange(8)
        with open(path, "wb") as file:
            file.write(content)
        begun = os.path.getsize(world.node.log)
        try:
            world.node.start()
        except Failure:
            refused += 1
            check("commitlog-" in log_since(world, begun), "a refused start does not name the file")
        else:
            # Then the byte was not in use, or of an entry that had not been acknowledged.
            check(read(world, "logged") == 0, f"rows are missing after a changed byte of {path}")
            world.node.kill()
        world.node.kill()
        for other in glob.glob(os.path.join(world.node.data, "commitlog", "commitlog-*.log")):
            os.remove(other)
        for path, content in before.items():
            with open(path, "wb") as file:
                file.write(content)
    world.node.start()
    check(read(world, "logged") == 0, "rows are missing though the log is as it was")
    stop(world)
    world.node.command = usual
    world.node.start()
    check(refused > 0, "no start was refused, with any wrong byte")
    return f"{refused} of {LOG_ROUNDS} starts refused"


def many_sstables(world):
    """A start with a thousand SSTables of wide partitions does not read their data (engine it: starting), and takes two seconds at most; more of a debug build."""
    value = "cd" * 4000
    with world.connect() as connection:
        connection.query(
            "CREATE TABLE ks.many (k int, c int, v blob, PRIMARY KEY (k, c)) WITH compression = {'enabled': 'false'} "
            "AND compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}"
        )
        for key in range(100):
            rows_of_key = "".join(f"INSERT INTO ks.many (k, c, v) VALUES ({key}, {c}, 0x{value}); " for c in range(12))
            connection.query(f"BEGIN UNLOGGED BATCH {rows_of_key} APPLY BATCH")
    status = http(world, REST, "POST", "/storage_service/keyspace_flush/ks", f"Host: {world.host}")
    check(status == 200, f"the flush was answered with {status}")
    stop(world)
    written = files(world, "many")
    made, size = 0, 0
    for copy in range(1, SSTABLES // 2 + 1):
        for path in written:
            folder, name = os.path.split(path)
            version, generation, rest = name.split("-", 2)
            # The same shard of two owns generations that are a multiple of two apart.
            os.link(path, os.path.join(folder, f"{version}-{int(generation) + 1000 * copy}-{rest}"))
            made += rest == "big-Data.db"
            size += os.path.getsize(path)
    check(made >= SSTABLES - 1, f"only {made} SSTables were made")
    for path in written:
        # From here on reads come from the disk, and are counted.
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    took = world.node.start()
    cpu, of_start = world.cpu_seconds(), world.bytes_read()
    with world.connect() as connection:
        found = rows(connection.query("SELECT count(*) FROM ks.many WHERE k = 7"))
    check(found == [(struct.pack(">q", 12),)], f"a partition has {found}")
    # On a machine that does other things the time by the wall says little.
    check(min(took, cpu) < START_MAX, f"a start took {took:.1f} s, {cpu:.1f} s of CPU")
    check(of_start < size // START_SHARE, f"a start has read {of_start >> 20} MiB of {size >> 20} MiB")
    of_read = world.bytes_read() - of_start
    begun = time.monotonic()
    with world.connect() as connection:
        connection.query("DROP TABLE ks.many")
    dropped = time.monotonic() - begun
    check(dropped < DROP_MAX, f"a DROP took {dropped:.1f} s")
    return f"{made} SSTables of {size >> 20} MiB, started in {took:.2f} s, {cpu:.1f} s of CPU, {of_start >> 10} KiB read, {of_read >> 10} KiB by a query, dropped in {dropped:.1f} s"


SCENARIOS = (
    ("flipped_bytes", flipped_bytes),
    ("missing_files", missing_files),
    ("foreign_files", foreign_files),
    ("damaged_log", damaged_log),
    ("many_sstables", many_sstables),
)
