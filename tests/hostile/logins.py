"""A node that asks for passwords: everything before the login, tokens that are none, many failed logins, and roles without permissions."""

import os
import random
import socket
import struct
import threading
import time

from client import (
    AUTH_RESPONSE, AUTHENTICATE, BAD_CREDENTIALS, BATCH, ERROR, EXECUTE, OPTIONS, QUERY, REGISTER, SERVER_ERROR, STARTUP_MESSAGE, SUPPORTED, UNAUTHORIZED,
    Behaved, Closed, Connection, CqlError, LoginClient, frame, plain, query, string, text, token,
)  # fmt: skip
from dynamodb import OPERATION, answer
from ports import bodies, check
from world import API, P99_MAX

READER = ("reader", "r")
# Seconds in which two shards look at twenty wrong passwords each, with a busy machine and a debug build.
LOCKOUT_MAX = 60


def opcodes_before_login(world):
    """Every opcode with every body, before STARTUP and before the password: no result, no readiness, no event."""
    draw, sent, source = random.Random(int(os.environ.get("FUZZ_SEED", "11"))), 0, world.address(61)
    sound = (frame(QUERY, text("SELECT v FROM good.t WHERE k = 1") + b"\0\1\0"), frame(REGISTER, struct.pack(">H", 1) + string("SCHEMA_CHANGE")),
             frame(OPTIONS, b""), frame(BATCH, b"\0\0\1\0" + text("INSERT INTO good.t (k, v) VALUES (1, -1)") + b"\0\0\0\1\0"),
             frame(EXECUTE, string(bytes(16)) + b"\0\1\0"))  # fmt: skip
    for started in False, True:
        for opcode in range(0x13):
            for message in (*(frame(opcode, body) for body in bodies(draw)), *sound):
                if opcode == AUTH_RESPONSE and message not in sound and sent % 4:
                    continue
                sent += 1
                with Connection(world.host, source=source, start=False) as connection:
                    try:
                        if started:
                            connection.send(STARTUP_MESSAGE)
                            check(connection.receive()[0] == AUTHENTICATE, "a client is not asked for its password")
                        connection.send(message * 2)
                        connection.socket.shutdown(socket.SHUT_WR)
                        while True:
                            answered, _, body = connection.receive()
                            check(answered in (ERROR, AUTHENTICATE, SUPPORTED), f"opcode {opcode} before the login is answered with {answered}")
                            check(answered != ERROR or CqlError(body).code != SERVER_ERROR, f"opcode {opcode}: {body}")
                    except (Closed, OSError) as error:
                        check(not isinstance(error, TimeoutError), f"opcode {opcode} with {message[:40]} is not answered")
    return f"{sent} messages"


def tokens(world):
    """Tokens that are no user and password, or wrong ones: refused, on connections that may try again."""
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    odd = [b"", b"\0", b"\0\0", b"\0\0\0", b"\0" * 100_000, b"x" * 5_000_000, b"\0cassandra", b"cassandra\0wrong", b"\0\xff\xfe\0\xff", b"\0cassandra\0cassandra\0",
           plain("cassandra", "x" * 1_000_000), plain("x" * 1_000_000, "x"), plain("", ""), plain("cassandra", ""), plain("", "cassandra"),
           plain("CASSANDRA", "cassandra"), plain("cassandra ", "cassandra"), plain("cassandra\n", "cassandra"), plain("'; DROP ROLE x; --", "x"),
           plain("cassandra", "cassandr"), plain("cassandra", "cassandra" * 8)]  # fmt: skip
    odd += [draw.randbytes(draw.randrange(1, 200)) for _ in range(10)]
    refused = []
    for at, data in enumerate(odd):
        with Connection(world.host, source=world.address(100 + at // 10), start=False) as connection:
            connection.send(STARTUP_MESSAGE)
            connection.receive()
            for _ in range(2):
                try:
                    connection.send(token(data))
                    opcode, _, body = connection.receive()
                except (Closed, OSError) as error:
                    check(not isinstance(error, TimeoutError), f"the token {data[:30]} is not answered")
                    break
                check(opcode == ERROR, f"the token {data[:30]} is answered with {opcode}")
                refused.append(CqlError(body))
                check(refused[-1].code != SERVER_ERROR, f"the token {data[:30]} is answered with a ServerError: {refused[-1]}")
    for length in (-1, -2, 0x7FFFFFFF, -0x80000000):
        with Connection(world.host, source=world.address(110), start=False) as connection:
            connection.send(STARTUP_MESSAGE)
            connection.receive()
            connection.send(frame(AUTH_RESPONSE, struct.pack(">i", length) + b"\0a\0b"))
            try:
                check(connection.receive()[0] == ERROR, f"a token of {length} bytes is taken")
            except (Closed, OSError) as error:
                check(not isinstance(error, TimeoutError), f"a token of {length} bytes is not answered")
    return f"{len(odd)} tokens, {sum(error.code == BAD_CREDENTIALS for error in refused)} bad credentials"


def failing_logins(world):
    """Wrong passwords of one address as fast as it can: it is refused after a while, and others log in as before."""
    source, begun, outcomes = world.address(62), time.monotonic(), {}

    def guess(at):
        # How many passwords are looked at in a second depends on the machine.
        while time.monotonic() < begun + LOCKOUT_MAX and outcomes.get("locked out", 0) < 20 * world.scale:
            try:
                Connection(world.host, source=source, login=("cassandra", f"wrong {at}")).close()
                outcomes["let in"] = 1
            except CqlError as error:
                known = "locked out" if "Too many failed logins" in str(error) else str(error)[:24]
                outcomes[known] = outcomes.get(known, 0) + 1
            except (Closed, OSError):
                outcomes["closed"] = outcomes.get("closed", 0) + 1

    threads = [threading.Thread(target=guess, args=(at,)) for at in range(8)]
    with Behaved(lambda: LoginClient(world.good)) as behaved:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check("let in" not in outcomes, "a wrong password is taken")
    check(not behaved.failed, f"others cannot log in: {behaved.failed[:3]}")
    check(behaved.p99() < P99_MAX, f"p99 of the logins of others was {behaved.p99():.2f} s")
    check(outcomes.get("locked out"), f"the address is not refused after so many failed logins: {outcomes}")
    return f"{sum(outcomes.values())} attempts in {time.monotonic() - begun:.1f} s, p99 of the logins of others {behaved.p99() * 1000:.0f} ms of {len(behaved.took)}"


def forbidden(role):
    """Statements that need a permission that the role does not have."""
    return (
        "SELECT * FROM good.t", "SELECT k FROM good.t WHERE k = 1", "SELECT JSON * FROM good.t", "SELECT count(*) FROM good.t", "INSERT INTO good.t (k, v) VALUES (1, 1)",
        "INSERT INTO good.t JSON '{\"k\": 1}'", "UPDATE good.t SET v = 1 WHERE k = 1", "UPDATE good.t SET v = 1 WHERE k = 1 IF v = 2", "DELETE FROM good.t WHERE k = 1",
        "BEGIN BATCH INSERT INTO good.t (k, v) VALUES (1, 1) APPLY BATCH", "TRUNCATE good.t", "CREATE TABLE good.u (k int PRIMARY KEY)", "ALTER TABLE good.t ADD w int",
        "DROP TABLE good.t", "DROP TABLE IF EXISTS good.t", "CREATE KEYSPACE x WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", "DROP KEYSPACE good",
        "ALTER KEYSPACE good WITH durable_writes = false", "CREATE INDEX ON good.t (v)", "DROP INDEX good.t_v_idx", "CREATE TYPE good.ty (a int)",
        "CREATE MATERIALIZED VIEW good.w AS SELECT * FROM good.t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k)", "DROP MATERIALIZED VIEW good.w",
        "CREATE FUNCTION good.f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'", "CREATE ROLE x", "CREATE ROLE x WITH SUPERUSER = true AND LOGIN = true",
        "CREATE USER x WITH PASSWORD 'x' SUPERUSER", f"ALTER ROLE {role} WITH SUPERUSER = true", "ALTER ROLE cassandra WITH PASSWORD = 'x'", "DROP ROLE cassandra",
        f"GRANT cassandra TO {role}", f"GRANT ALL ON ALL KEYSPACES TO {role}", f"GRANT SELECT ON good.t TO {role}", "REVOKE ALL ON ALL KEYSPACES FROM cassandra",
        "SELECT * FROM system_auth.roles", "SELECT salted_hash FROM system_auth.roles WHERE role = 'cassandra'", "SELECT * FROM system_auth.role_permissions",
        "CREATE SERVICE LEVEL x WITH timeout = 1ms", f"ATTACH SERVICE LEVEL x TO {role}", "LIST ROLES OF cassandra", "LIST ALL PERMISSIONS OF cassandra",
        "UPDATE system_auth.roles SET is_superuser = true WHERE role = 'reader'", "SELECT * FROM system.paxos",
    )  # fmt: skip


def permissions(world):
    """Statements that a role may not make, asked and prepared, are refused as that, and its permissions hold until they are revoked."""
    with world.connect() as root:
        root.query("CREATE ROLE reader WITH PASSWORD = 'r' AND LOGIN = true")
        refused = 0
        with world.connect(login=READER, source=world.address(63)) as reader:
            for statement in forbidden("reader"):
                for message in query(statement), None:
                    try:
                        if message is None:
                            identity = reader.prepare(statement)
                            message = frame(EXECUTE, string(identity) + b"\0\1\0")
                        reader.ask(message)
                    except CqlError as error:
                        is_right = error.code == UNAUTHORIZED or "not found" in str(error) or "doesn't exist" in str(error) or "is not supported" in str(error)
                        check(is_right, f"{statement} is refused with {error.code:#x}: {error}")
                        refused += 1
                        continue
                    check(False, f"{statement} is carried out for a role without permissions")
            for _ in range(10):
                root.query("GRANT SELECT ON good.t TO reader")
                identity = reader.prepare("SELECT v FROM good.t WHERE k = 1")
                reader.ask(frame(EXECUTE, string(identity) + b"\0\1\0"))
                root.query("REVOKE SELECT ON good.t FROM reader")
                try:
                    reader.ask(frame(EXECUTE, string(identity) + b"\0\1\0"))
                    check(False, "a prepared statement outlives its permission")
                except CqlError as error:
                    check(error.code == UNAUTHORIZED, f"{error}")
        root.query("DROP ROLE reader")
    return f"{refused} refused"


def signatures(world):
    """Requests of the DynamoDB API without a signature, or with one that is none."""
    good = "AWS4-HMAC-SHA256 Credential=cassandra/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host;x-amz-date, Signature="
    odd = ["", "x", "Basic Y2Fzc2FuZHJhOmNhc3NhbmRyYQ==", "AWS4-HMAC-SHA256", good, good + "0" * 64, good + "g" * 64, good + "0" * 60_000, good.replace("us-east-1", ""),
           good.replace("Credential=cassandra/20260101", "Credential=" + "/" * 1_000), good.replace("host;x-amz-date", ";" * 10_000) + "0" * 64,
           good.replace("host;x-amz-date", "host") + "0" * 64, good.replace("cassandra", "\u00e9") + "0" * 64, good.replace("20260101", "99999999") + "0" * 64,
           "AWS3 " + good, good.replace(", ", "") + "0" * 64, good * 20]  # fmt: skip
    dates = ("", "20260101T000000Z", "99999999T999999Z", "x" * 10_000, "20260101", "00000000T000000Z", "-0010101T000000Z")
    paths = ("/", "/?X-Amz-Signature=0", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=cassandra&X-Amz-Date=x&X-Amz-Expires=99999999999&X-Amz-SignedHeaders=host&X-Amz-Signature=0",
             "/?" + "X-Amz-Date=1&" * 2_000, "/?X-Amz-Expires=-1&X-Amz-Signature=%00%ff")  # fmt: skip
    sent = 0
    for path in paths:
        for authorization in odd:
            for date in dates if path == "/" else dates[:2]:
                lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"X-Amz-Target: {OPERATION}ListTables", "Content-Type: application/x-amz-json-1.0", "Content-Length: 2",
                         *([f"Authorization: {authorization}"] if authorization else []), *([f"X-Amz-Date: {date}"] if date else [])]  # fmt: skip
                with socket.create_connection((world.host, API), 20) as peer:
                    try:
                        peer.sendall("\r\n".join(lines).encode() + b"\r\n\r\n{}")
                    except ConnectionError:
                        continue
                    status, body = answer(peer)
                sent += 1
                check(status in (0, 400, 403, 414, 431), f"{authorization[:60]} with the date {date[:20]} is answered with {status}: {body[:200]}")
    return f"{sent} requests"


SCENARIOS = (
    ("opcodes_before_login", opcodes_before_login),
    ("tokens", tokens),
    ("failing_logins", failing_logins),
    ("permissions", permissions),
    ("signatures", signatures),
)
