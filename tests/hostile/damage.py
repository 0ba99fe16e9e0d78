"""Files that are damaged while the node is down: it starts, and each read is right or a clear error."""

import glob
import os
import random
import struct

from client import CqlError, rows
from ports import REST, check, http

COMPONENTS = ("Data.db", "Index.db", "Summary.db", "Filter.db", "Statistics.db", "CompressionInfo.db")
RESTARTING = ("flipped_bytes",)
PARTITIONS = 300


def flipped_bytes(world):
    """A flipped byte in each component of an SSTable: the node starts, and never tells rows that are not so."""
    draw = random.Random(11)
    tables = {component: "d_" + component.split(".", 1)[0].lower() for component in COMPONENTS}
    with world.connect() as connection:
        for table in tables.values():
            connection.query(f"CREATE TABLE ks.{table} (k int PRIMARY KEY, v int)")
            for key in range(PARTITIONS):
                connection.query(f"INSERT INTO ks.{table} (k, v) VALUES ({key}, {key * 7})")
    status = http(world, REST, "POST", "/storage_service/keyspace_flush/ks", f"Host: {world.host}")
    check(status == 200, f"the flush was answered with {status}")
    check(world.node.stop() == 0, "the node did not stop in order")
    damaged = 0
    for component, table in tables.items():
        for path in glob.glob(os.path.join(world.node.data, "**", table + "*", f"*-{component}"), recursive=True):
            with open(path, "r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if size:
                    at = draw.randrange(size)
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ (1 << draw.randrange(8))]))
                    damaged += 1
    check(damaged >= len(COMPONENTS) - 1, f"only {damaged} files were found")
    world.node.start()
    errors = 0
    for table in tables.values():
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
    with world.connect() as connection:
        connection.query("INSERT INTO good.t (k, v) VALUES (2, 2)")
    return f"{damaged} files, {errors} reads with an error"


SCENARIOS = (("flipped_bytes", flipped_bytes),)
