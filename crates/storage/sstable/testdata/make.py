#!/usr/bin/env python3
"""Makes the SSTable fixtures of this directory with a real Cassandra.

    make.py HOST CQL_PORT DATA_DIR OUT_DIR FLUSH_COMMAND EXPORT_COMMAND

HOST:CQL_PORT is a running, empty node that writes `nb` files under DATA_DIR; FLUSH_COMMAND is run to flush it
(`nodetool flush fixtures`), EXPORT_COMMAND with the path of a Data.db added prints its sstabledump. Needs cassandra-driver.
Every write has a fixed timestamp; local deletion times are those of the run.
"""
import os, random, shutil, subprocess, sys, uuid, decimal, datetime, ipaddress
from cassandra.cluster import Cluster
from cassandra.util import Duration, Date, Time

host, port, data, out, flush, export = sys.argv[1:]
session = Cluster([host], port=int(port)).connect()
run = session.execute
T = 1_700_000_000_000_000
rnd = random.Random(7)

run("CREATE KEYSPACE fixtures WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
session.set_keyspace("fixtures")

# Every native type, set, empty and null.
run("CREATE TYPE address (street text, number int, tags frozen<set<text>>)")
run("""CREATE TABLE all_types (k int PRIMARY KEY, a ascii, bi bigint, bl blob, bo boolean, da date, de decimal, dbl double,
    du duration, fl float, ine inet, i int, si smallint, t text, tm time, ts timestamp, tu timeuuid, ti tinyint, u uuid,
    vi varint, tup tuple<int, text, frozen<list<int>>>, vec vector<float, 3>, fl1 frozen<list<text>>, fm frozen<map<int, text>>,
    ud frozen<address>)""")
values = """'ascii \\ "q"', 123456789012, 0xcafe00, true, '2024-02-29', 12345.6789, 1.5e300, 1mo2d3ns, -0.25, '192.168.1.9', -7, 300,
    'grüße ✓', '08:12:54.123456789', '2024-01-02 03:04:05.678+0000', 50554d6e-29bb-11e5-b345-feff819cdc9f, -128,
    6ab09bec-e68e-48d9-a5f8-97e6fb4c9b47, -12345678901234567890123, (1, 'two', [3, 4]), [1.0, -2.5, 3.25], ['x', ''],
    {1: 'one', 2: 'two'}, {street: 's', number: 5, tags: {'a', 'b'}}"""
names = "a,bi,bl,bo,da,de,dbl,du,fl,ine,i,si,t,tm,ts,tu,ti,u,vi,tup,vec,fl1,fm,ud"
run(f"INSERT INTO all_types (k,{names}) VALUES (1,{values}) USING TIMESTAMP {T}")
run(f"INSERT INTO all_types (k) VALUES (2) USING TIMESTAMP {T}")
run(f"UPDATE all_types USING TIMESTAMP {T+5} SET a = '', bl = 0x, t = '', ine = '::1', vi = 0, de = 0 WHERE k = 3")
run(f"INSERT INTO all_types (k, i, t) VALUES (4, null, 'x') USING TIMESTAMP {T}")
run(f"DELETE FROM all_types USING TIMESTAMP {T+9} WHERE k = 5")

# Clustering in both directions, statics, deletions of every kind, TTLs.
run("""CREATE TABLE clustered (p1 text, p2 int, c1 int, c2 text, st text static, sm map<text, int> static, v int, w text,
    PRIMARY KEY ((p1, p2), c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)""")
for p in range(6):
    if p % 2 == 0:
        run(f"UPDATE clustered USING TIMESTAMP {T} SET st = 'static {p}', sm = {{'a': {p}, 'b': 2}} WHERE p1 = 'p' AND p2 = {p}")
    for c in range(5):
        for d in "abc":
            run(f"INSERT INTO clustered (p1,p2,c1,c2,v,w) VALUES ('p',{p},{c},'{d}',{c*10+p},'w{d}') USING TIMESTAMP {T+c}")
run(f"DELETE FROM clustered USING TIMESTAMP {T+1} WHERE p1='p' AND p2=1 AND c1 >= 1 AND c1 < 3")
run(f"DELETE FROM clustered USING TIMESTAMP {T+2} WHERE p1='p' AND p2=1 AND c1 > 2 AND c1 <= 7")
run(f"DELETE FROM clustered USING TIMESTAMP {T+30} WHERE p1='p' AND p2=2 AND c1 = 3")
run(f"DELETE FROM clustered USING TIMESTAMP {T+31} WHERE p1='p' AND p2=2 AND c1 = 3 AND c2 > 'a'")
run(f"DELETE FROM clustered USING TIMESTAMP {T+32} WHERE p1='p' AND p2=2 AND c1 = 2 AND c2 = 'b'")
run(f"DELETE FROM clustered USING TIMESTAMP {T+33} WHERE p1='p' AND p2=3")
run(f"INSERT INTO clustered (p1,p2,c1,c2,v) VALUES ('p',3,9,'z',1) USING TIMESTAMP {T+40} AND TTL 864000")
run(f"UPDATE clustered USING TIMESTAMP {T+41} AND TTL 1000000 SET w = 'ttl' WHERE p1='p' AND p2=3 AND c1=9 AND c2='z'")
run(f"DELETE v FROM clustered USING TIMESTAMP {T+42} WHERE p1='p' AND p2=4 AND c1=0 AND c2='a'")
run(f"DELETE st, sm FROM clustered USING TIMESTAMP {T+43} WHERE p1='p' AND p2=4")
run(f"DELETE sm['a'] FROM clustered USING TIMESTAMP {T+44} WHERE p1='p' AND p2=0")
run(f"DELETE FROM clustered USING TIMESTAMP {T+45} WHERE p1='p' AND p2=5 AND c1 < 2")
run(f"DELETE FROM clustered USING TIMESTAMP {T+46} WHERE p1='p' AND p2=5 AND c1 >= 4")

# Unfrozen collections and user types.
run("""CREATE TABLE collections (k text PRIMARY KEY, l list<int>, s set<text>, m map<int, text>, u address,
    ml map<text, frozen<list<int>>>, plain int)""")
run(f"INSERT INTO collections (k,l,s,m,u,ml,plain) VALUES ('a',[1,2,3],{{'x','y'}},{{1:'a',2:'b'}},{{street:'s',number:1}},{{'q':[1,2]}},7) USING TIMESTAMP {T}")
run(f"UPDATE collections USING TIMESTAMP {T+1} SET l = l + [4], s = s + {{'z'}}, m[3] = 'c', u.number = 9 WHERE k = 'a'")
run(f"UPDATE collections USING TIMESTAMP {T+2} SET m[1] = null, u.street = null, s = s - {{'x'}} WHERE k = 'a'")
run(f"UPDATE collections USING TIMESTAMP {T} AND TTL 777777 SET s = s + {{'t'}}, m[8] = 'ttl' WHERE k = 'b'")
run(f"DELETE m, l FROM collections USING TIMESTAMP {T+3} WHERE k = 'c'")

run("CREATE TABLE counters (k text, c int, n counter, m counter, PRIMARY KEY (k, c))")
for c in range(4):
    run(f"UPDATE counters SET n = n + {c * 1000 + 1}, m = m - 5 WHERE k = 'k' AND c = {c}")
run("DELETE m FROM counters WHERE k = 'k' AND c = 2")

# A partition of more than 1 MiB with a row index, range tombstones across its blocks, beside small ones.
run("CREATE TABLE wide (k int, c int, s text static, v text, PRIMARY KEY (k, c))")
insert = session.prepare("INSERT INTO wide (k,c,v) VALUES (?,?,?) USING TIMESTAMP ?")
for c in range(5000):
    session.execute(insert, (1, c, f"{c:05}" + "x" * 210, T + c % 3))
for c in range(200):
    session.execute(insert, (2, c, f"{c:05}" + "y" * 60, T))
session.execute(insert, (3, 1, "small", T))
run(f"UPDATE wide USING TIMESTAMP {T} SET s = 'static' WHERE k = 1")
for lo, hi in ((100, 103), (1000, 1500), (1400, 1600), (4990, 9999)):
    run(f"DELETE FROM wide USING TIMESTAMP {T + lo} WHERE k = 1 AND c >= {lo} AND c < {hi}")

# Enough partitions for several summary entries.
run("CREATE TABLE keys (k text PRIMARY KEY, v int)")
insert = session.prepare("INSERT INTO keys (k,v) VALUES (?,?) USING TIMESTAMP ?")
for i in range(500):
    session.execute(insert, (f"key number {i}", i, T + i))

# More than 63 columns: subsets are encoded as lists.
columns = [f"col{i:02}" for i in range(70)]
run(f"CREATE TABLE columns (k int PRIMARY KEY, {', '.join(c + ' int' for c in columns)})")
for k, chosen in enumerate([columns, columns[:3], columns[5:60], columns[:-1], columns[40:41], columns[:36]]):
    run(f"INSERT INTO columns (k, {', '.join(chosen)}) VALUES ({k}, {', '.join(str(i) for i in range(len(chosen)))}) USING TIMESTAMP {T}")

# Compression.
words = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor".split()
for name, compression in {
    "lz4": "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}",
    "zstd": "{'class': 'ZstdCompressor', 'chunk_length_in_kb': 16}",
    "snappy": "{'class': 'SnappyCompressor', 'chunk_length_in_kb': 16}",
    "deflate": "{'class': 'DeflateCompressor', 'chunk_length_in_kb': 16}",
    "noop": "{'class': 'NoopCompressor', 'chunk_length_in_kb': 4}",
    "ratio": "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4, 'min_compress_ratio': 1.5}",
    "plain": "{'enabled': 'false'}",
}.items():
    run(f"CREATE TABLE c_{name} (k int, c int, v text, b blob, PRIMARY KEY (k, c)) WITH compression = {compression}")
    insert = session.prepare(f"INSERT INTO c_{name} (k,c,v,b) VALUES (?,?,?,?) USING TIMESTAMP ?")
    size = 40 if name != "plain" else 200
    for i in range(size):
        text = " ".join(rnd.choice(words) for _ in range(60))
        blob = bytes(rnd.randrange(256) for _ in range(600 if name in ("ratio", "plain") and i % 8 < 5 else 8))
        session.execute(insert, (i % 7, i, text, blob, T + i))

# Dropped and added columns. Flushed before the schema changes.
run("CREATE TABLE dropped (k int, c int, a int, b text, z set<int>, PRIMARY KEY (k, c))")
for c in range(3):
    run(f"INSERT INTO dropped (k,c,a,b,z) VALUES (1,{c},{c},'b{c}',{{1,2}}) USING TIMESTAMP {T}")

run("CREATE TABLE reversed_key (k int, c timestamp, d decimal, v int, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)")
for i in range(10):
    run(f"INSERT INTO reversed_key (k,c,d,v) VALUES (1, {1000 * (i // 3)}, {i - 5}.{i}, {i}) USING TIMESTAMP {T}")
run(f"DELETE FROM reversed_key USING TIMESTAMP {T+1} WHERE k = 1 AND c > 0 AND c <= 2000")

subprocess.run(flush, shell=True, check=True)
base = os.path.join(data, "fixtures")
for directory in sorted(os.listdir(base)):
    table = directory.split("-")[0]
    target = os.path.join(out, table)
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for name in sorted(os.listdir(os.path.join(base, directory))):
        source = os.path.join(base, directory, name)
        if os.path.isfile(source):
            shutil.copy(source, target)
    for name in sorted(os.listdir(target)):
        if name.endswith("Data.db"):
            text = subprocess.run(f"{export} {os.path.join(target, name)}", shell=True, check=True, stdout=subprocess.PIPE).stdout
            with open(os.path.join(target, "dump.json"), "wb") as file:
                file.write(text)
            # Large dumps are kept as a checksum.
            dump = os.path.join(target, "dump.json")
            if os.path.getsize(dump) > 100_000:
                import zlib
                with open(dump, "rb") as file, open(os.path.join(target, "dump.crc32"), "w") as crc:
                    crc.write(str(zlib.crc32(file.read().rstrip())))
                os.remove(dump)
