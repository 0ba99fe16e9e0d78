"""cqlsh, scripted, against a running node: `client.py HOST PORT torc|cassandra`.

Every test is one run of the program, as a user starts it, with commands on its standard input or in a file. The text that must
be in the output (and that must not) is given word by word.
"""

import os
import re
import subprocess
import sys
import tempfile
import uuid

HOST, PORT, FLAVOUR = sys.argv[1:4]
CQLSH = os.path.join(os.path.dirname(sys.executable), "cqlsh")
KEYSPACE = "cqlsh_" + uuid.uuid4().hex[:10]
FOLDER = tempfile.mkdtemp(prefix="torc-cqlsh-")
passed, failed = 0, 0


class Wrong(Exception):
    """The output differs from the expected one."""


def cqlsh(text, *arguments, fails=False):
    """Runs cqlsh with this input in the keyspace of the test; everything that it printed."""
    command = [sys.executable, CQLSH, "--no-color", "--disable-history", "--request-timeout=60", "--connect-timeout=30"]
    command += [*arguments, HOST, PORT]
    done = subprocess.run(
        command, input=text + "\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180, cwd=FOLDER,
        env=dict(os.environ, CQL_HISTORY=os.path.join(FOLDER, "history"), HOME=FOLDER, TZ="UTC"),
    )  # fmt: skip
    output = re.sub(r"^WARNING: cqlsh was built against.*\n", "", done.stdout, flags=re.MULTILINE)
    if fails != (done.returncode != 0):
        raise Wrong(f"exit code {done.returncode}:\n{output}")
    return output


def in_keyspace(text, **options):
    return cqlsh(text, "-k", KEYSPACE, **options)


def has(output, *expected):
    """Every text is in the output, runs of blanks counting as one."""
    squeezed = " ".join(output.split())
    for text in expected:
        if " ".join(text.split()) not in squeezed:
            raise Wrong(f"{text!r} is not in:\n{output}")


def has_not(output, *unexpected):
    for text in unexpected:
        if text in output:
            raise Wrong(f"{text!r} is in:\n{output}")


def matches(output, *patterns):
    for pattern in patterns:
        if not re.search(pattern, output, re.MULTILINE):
            raise Wrong(f"/{pattern}/ does not match:\n{output}")


def path(name):
    return os.path.join(FOLDER, name)


def test_start():
    output = cqlsh("SHOW VERSION\nSHOW HOST\nexit\n")
    matches(output, r"\[cqlsh 6\.2\.\d+ \| .* \| CQL spec 3\.\d+\.\d+ \| Native protocol v5\]")
    has(output, f"at {HOST}:{PORT}")


def test_ddl():
    output = cqlsh(
        f"""CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};
        USE {KEYSPACE};
        CREATE TYPE point (x int, y frozen<list<text>>);
        CREATE TABLE users (
            id int, at timestamp, name text, tags set<text>, scores map<text, int>, place frozen<point>, shared text STATIC,
            PRIMARY KEY (id, at)
        ) WITH CLUSTERING ORDER BY (at DESC) AND comment = 'who is who' AND gc_grace_seconds = 1234
          AND compression = {{'class': 'ZstdCompressor', 'chunk_length_in_kb': 32}};
        CREATE TABLE numbers (k int PRIMARY KEY, v int);
        CREATE TABLE hits (page text PRIMARY KEY, n counter);
        """
    )
    has_not(output, "Error", "Exception")


def test_insert_and_select():
    output = in_keyspace(
        """INSERT INTO users (id, at, name, tags, scores, place, shared)
             VALUES (1, '2026-01-02 03:04:05.678+0000', 'Ada', {'b', 'a'}, {'x': 1}, {x: 1, y: ['q']}, 'st');
        INSERT INTO users (id, at, name) VALUES (1, '2026-01-03', 'Žofie');
        SELECT * FROM users;
        SELECT name FROM users WHERE id = 1 AND at > '2026-01-02 23:00';
        SELECT count(*) AS how_many FROM users;
        """
    )
    has(
        output,
        "id | at | shared | name | place | scores | tags",
        "1 | 2026-01-03 00:00:00.000000+0000 | st | Žofie | null | null | null",
        "1 | 2026-01-02 03:04:05.678000+0000 | st | Ada | {x: 1, y: ['q']} | {'x': 1} | {'a', 'b'}",
        "(2 rows)",
        "name ------- Žofie (1 rows)",
        "how_many ---------- 2",
    )


def test_describe():
    output = in_keyspace("DESCRIBE CLUSTER;")
    has(output, "Cluster:", "Partitioner: Murmur3Partitioner", "Snitch:")
    has(cqlsh("DESCRIBE KEYSPACES;"), KEYSPACE, "system_schema", "system_traces")
    has(in_keyspace("DESCRIBE TABLES;"), "hits", "numbers", "users")
    has(in_keyspace("DESCRIBE TYPES;"), "point")
    has(
        in_keyspace("DESCRIBE TYPE point;"),
        f"CREATE TYPE {KEYSPACE}.point ( x int, y frozen<list<text>> );",
    )
    table = in_keyspace("DESCRIBE TABLE users;")
    has(
        table,
        f"CREATE TABLE {KEYSPACE}.users (",
        "id int,",
        "at timestamp,",
        "shared text static,",
        "place frozen<point>,",
        "scores map<text, int>,",
        "PRIMARY KEY (id, at)",
        ") WITH CLUSTERING ORDER BY (at DESC)",
        "AND comment = 'who is who'",
        "AND gc_grace_seconds = 1234",
        "'class': 'org.apache.cassandra.io.compress.ZstdCompressor'",
        "'chunk_length_in_kb': '32'",
    )
    keyspace = in_keyspace(f"DESCRIBE KEYSPACE {KEYSPACE};")
    has(
        keyspace,
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '1'}}",
        f"CREATE TYPE {KEYSPACE}.point",
        f"CREATE TABLE {KEYSPACE}.hits",
        f"CREATE TABLE {KEYSPACE}.numbers",
    )
    has(in_keyspace("DESCRIBE SCHEMA;"), f"CREATE TABLE {KEYSPACE}.users")
    has(in_keyspace("DESC users"), f"CREATE TABLE {KEYSPACE}.users")
    has(in_keyspace("DESCRIBE TABLE nothing;", fails=True), "nothing")
    # The output of DESCRIBE makes the same tables again.
    script = keyspace.replace(KEYSPACE, KEYSPACE + "_copy")
    has_not(cqlsh(script), "Error", "Exception")
    copy = cqlsh(f"DESCRIBE KEYSPACE {KEYSPACE}_copy; DROP KEYSPACE {KEYSPACE}_copy;")
    if copy.replace(KEYSPACE + "_copy", KEYSPACE).split() != keyspace.split():
        raise Wrong(f"DESCRIBE does not repeat itself:\n{keyspace}\n{copy}")


def test_tracing():
    output = in_keyspace(
        "TRACING ON\nINSERT INTO numbers (k, v) VALUES (-1, -1);\nSELECT * FROM numbers WHERE k = -1;\nTRACING OFF\nTRACING\n"
    )
    has(output, "Tracing session:", "activity", "source_elapsed", "Request complete")
    matches(output, r"Parsing .*SELECT \* FROM numbers" if FLAVOUR == "cassandra" else r"SELECT|select|[Rr]ead", r"-1 +\| +-1")
    if output.count("Tracing session:") != 2:
        raise Wrong(f"not two traces:\n{output}")
    identifier = re.search(r"Tracing session: (\S+)", output).group(1)
    has(in_keyspace(f"SHOW SESSION {identifier}"), "Request complete")


def test_expand():
    output = in_keyspace("EXPAND ON\nSELECT id, name FROM users LIMIT 2;\nEXPAND OFF\n")
    has(output, "@ Row 1", "@ Row 2", "name | Žofie", "(2 rows)")


def test_consistency():
    output = in_keyspace("CONSISTENCY QUORUM\nCONSISTENCY\nSELECT count(*) FROM users;\nSERIAL CONSISTENCY LOCAL_SERIAL\n")
    has(output, "Consistency level set to QUORUM.", "Current consistency level is QUORUM.", "(1 rows)")
    output = in_keyspace("CONSISTENCY TWO\nINSERT INTO numbers (k, v) VALUES (0, 0);\n", fails=True)
    matches(output, r"NoHostAvailable|Unavailable", r"TWO")


def test_copy():
    rows = 3000
    with open(path("in.csv"), "w", encoding="utf-8") as file:
        file.writelines(f"{key},{key * key}\n" for key in range(rows))
    output = in_keyspace(f"TRUNCATE numbers;\nCOPY numbers (k, v) FROM '{path('in.csv')}' WITH NUMPROCESSES = 1;\nSELECT count(*) FROM numbers;\n")
    has(output, f"{rows} rows imported from 1 files", f"{rows} (1 rows)")
    output = in_keyspace(f"COPY numbers (k, v) TO '{path('out.csv')}' WITH NUMPROCESSES = 1 AND PAGESIZE = 100;\n")
    has(output, f"{rows} rows exported to 1 files")
    with open(path("in.csv"), encoding="utf-8") as before, open(path("out.csv"), encoding="utf-8") as after:
        if sorted(before.read().split()) != sorted(after.read().split()):
            raise Wrong("COPY TO does not return the rows of COPY FROM")
    in_keyspace(f"COPY users TO '{path('users.csv')}' WITH HEADER = TRUE AND NUMPROCESSES = 1;\n")
    with open(path("users.csv"), encoding="utf-8") as file:
        text = file.read()
    has(text, "id,at,name,place,scores,shared,tags", "Žofie", "\"{'a', 'b'}\"")
    output = in_keyspace(
        f"TRUNCATE users;\nCOPY users FROM '{path('users.csv')}' WITH HEADER = TRUE AND NUMPROCESSES = 1;\nSELECT * FROM users;\n"
    )
    has(output, "Ada | {x: 1, y: ['q']} | {'x': 1} | {'a', 'b'}", "(2 rows)")


def test_source():
    with open(path("script.cql"), "w", encoding="utf-8") as file:
        file.write("-- a comment\nINSERT INTO numbers (k, v)\n  VALUES (900001, 1); /* another */\nSELECT v FROM numbers WHERE k = 900001;\n")
    has(in_keyspace(f"SOURCE '{path('script.cql')}'\n"), "v --- 1 (1 rows)")
    has(in_keyspace("", fails=False) + cqlsh("", "-k", KEYSPACE, "-f", path("script.cql")), "(1 rows)")
    has(cqlsh("", "-e", f"SELECT v FROM {KEYSPACE}.numbers WHERE k = 900001"), "(1 rows)")


def test_paging():
    output = in_keyspace("PAGING 50\nSELECT k FROM numbers LIMIT 130;\nPAGING OFF\nSELECT k FROM numbers LIMIT 130;\nPAGING\n")
    has(output, "Page size: 50", "PAGING set to OFF", "PAGING is OFF")
    if output.count("(130 rows)") != 2:
        raise Wrong(f"not 130 rows twice:\n{output[-800:]}")


def test_errors():
    has(in_keyspace("SELEC * FROM users;", fails=True), "SyntaxException: line 1:0")
    has(in_keyspace("SELECT * FROM nothing;", fails=True), "InvalidRequest", "nothing")
    has(in_keyspace("SELECT nope FROM users;", fails=True), "InvalidRequest", "nope")
    has(in_keyspace("CREATE TABLE users (k int PRIMARY KEY);", fails=True), "AlreadyExists", "users")
    has(in_keyspace("INSERT INTO numbers (k, v) VALUES ('one', 1);", fails=True), "InvalidRequest")
    has(cqlsh("USE nowhere;", fails=True), "InvalidRequest", "nowhere")
    # The session continues after an error.
    has(in_keyspace("SELECT nope FROM users;\nSELECT v FROM numbers WHERE k = 900001;\n", fails=True), "(1 rows)")


def test_batch_counter_json():
    output = in_keyspace(
        """BEGIN BATCH
          INSERT INTO numbers (k, v) VALUES (800001, 1);
          INSERT INTO numbers (k, v) VALUES (800002, 2);
        APPLY BATCH;
        SELECT v FROM numbers WHERE k IN (800001, 800002);
        UPDATE hits SET n = n + 5 WHERE page = 'a';
        UPDATE hits SET n = n - 1 WHERE page = 'a';
        SELECT * FROM hits;
        SELECT JSON * FROM numbers WHERE k = 800001;
        SELECT ttl(v), v FROM numbers WHERE k = 800001;
        """
    )
    has(output, "v --- 1 2 (2 rows)", "a | 4", '{"k": 800001, "v": 1}', "null | 1")


def test_types():
    output = in_keyspace(
        """CREATE TABLE kinds (k int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, g double, h duration,
             i float, j inet, l smallint, m time, n timestamp, o tinyint, p uuid, q varint, r tuple<int, text>, s list<int>,
             t frozen<map<text, frozen<set<int>>>>, u vector<float, 2>);
        INSERT INTO kinds (k, a, b, c, d, e, f, g, h, i, j, l, m, n, o, p, q, r, s, t, u) VALUES (1, 'asc', -5, 0xff00, true,
             '2026-11-21', 1.50, 2.25, 1mo2d3h, 1.5, '::1', -7, '10:11:12.000000013', '2026-11-21 01:02:03.004+0000', -8,
             6ba7b810-9dad-11d1-80b4-00c04fd430c8, 123456789012345678901234567890, (1, 'x'), [3, 2, 3], {'a': {2, 1}}, [1, 2.5]);
        EXPAND ON
        SELECT * FROM kinds;
        """
    )
    for line in (
        "a | asc", "b | -5", "c | 0xff00", "d | True", "e | 2026-11-21", "f | 1.50", "g | 2.25", "h | 1mo2d3h", "i | 1.5",
        "j | ::1", "l | -7", "m | 10:11:12.000000013", "n | 2026-11-21 01:02:03.004000+0000", "o | -8",
        "p | 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "q | 123456789012345678901234567890", "r | (1, 'x')", "s | [3, 2, 3]",
        "t | {'a': {1, 2}}", "u | [1, 2.5]",
    ):  # fmt: skip
        has(output, line)


def test_system_tables():
    output = cqlsh(
        "SELECT keyspace_name FROM system_schema.keyspaces;\nSELECT cluster_name, data_center, rack FROM system.local;\n"
        "SELECT * FROM system.peers;\nSELECT * FROM system.peers_v2;\nSELECT * FROM system_views.settings LIMIT 1;\n"
        "SELECT address FROM system_views.clients;\nSELECT keyspace_name FROM system_virtual_schema.keyspaces;\n"
    )
    has_not(output, "Error", "Exception", "InvalidRequest")
    has(output, KEYSPACE, "datacenter1", "rack1", "system_views")


def test_login_and_help():
    has(cqlsh("HELP\n"), "Documented shell commands", "DESCRIBE")
    has(cqlsh("CLEAR\nCAPTURE 'captured.txt'\nSELECT key FROM system.local;\nCAPTURE OFF\n"), "")
    with open(path("captured.txt"), encoding="utf-8") as file:
        has(file.read(), "local", "(1 rows)")


def shortened(text):
    return text if len(text) < 1500 else f"{text[:500]}\n[…]\n{text[-900:]}"


def main():
    global passed, failed
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
        except Exception as error:  # every failure is reported, none ends the run
            failed += 1
            print(f"FAIL {name[5:]}: {type(error).__name__}: {shortened(str(error))}")
        else:
            passed += 1
            print(f"ok {name[5:]}")
    try:
        cqlsh(f"DROP KEYSPACE IF EXISTS {KEYSPACE};")
    except Exception as error:
        print(f"could not clean up: {error}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


main()
