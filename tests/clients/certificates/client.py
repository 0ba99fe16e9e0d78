"""Logins by the identity of a certificate, with the Python driver: `client.py HOST CQL_PORT torc`.

The node has MutualTlsWithPasswordFallbackAuthenticator, and `spiffe://torc/root` is the identity of its superuser.
"""

import os
import sys

from cassandra import InvalidRequest, Unauthorized

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import check, finish  # noqa: E402
from world import close, eventually, refused, session  # noqa: E402

root = eventually(lambda: session("root"))
for statement in (
    "CREATE KEYSPACE certs WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE certs.t (k int PRIMARY KEY, v int)",
    "INSERT INTO certs.t (k, v) VALUES (1, 2)",
    "CREATE ROLE ann WITH LOGIN = true",
    "CREATE ROLE bob WITH LOGIN = false",
    "CREATE ROLE carl WITH LOGIN = true AND PASSWORD = 'secret'",
    "GRANT SELECT ON certs.t TO ann",
):
    root.execute(statement)


def identities():
    return {row.identity: row.role for row in root.execute("SELECT * FROM system_auth.identity_to_role")}


def a_certificate_is_a_login():
    assert "Certificate identity 'spiffe://torc/ann' not authorized" in refused("ann")
    root.execute("ADD IDENTITY 'spiffe://torc/ann' TO ROLE 'ann'")
    for version in (3, 4, 5):
        ann = session("ann", version=version)
        assert ann.execute("SELECT v FROM certs.t").one().v == 2
        try:
            ann.execute("INSERT INTO certs.t (k, v) VALUES (1, 3)")
        except Unauthorized as error:
            assert "User ann has no MODIFY permission" in str(error), error
        else:
            raise AssertionError("ann may not write")
    rows = root.execute("SELECT username, ssl_enabled FROM system_views.clients")
    assert ("ann", True) in {(row.username, row.ssl_enabled) for row in rows}


def certificates_that_are_none():
    assert "Unable to extract Spiffe from the certificate" in refused("nameless")
    root.execute("ADD IDENTITY 'spiffe://torc/bob' TO ROLE 'bob'")
    assert "bob is not permitted to log in" in refused("bob")
    # One of another authority is refused in the handshake, whatever its names are.
    assert "not authorized" not in refused("evil")


def clients_without_certificate_need_a_password():
    for tls in (True, False):
        carl = session(password=("carl", "secret"), tls=tls)
        assert carl.execute("SELECT release_version FROM system.local").one()
        assert "Provided username carl and/or password are incorrect" in refused(password=("carl", "other"), tls=tls)
        refused(tls=tls)


def a_certificate_comes_before_a_password():
    assert session("ann", password=("carl", "secret")).execute("SELECT v FROM certs.t").one().v == 2


def identities_are_added_and_dropped():
    assert identities() == {"spiffe://torc/root": "cassandra", "spiffe://torc/ann": "ann", "spiffe://torc/bob": "bob"}
    for statement, said in (
        ("ADD IDENTITY 'spiffe://torc/ann' TO ROLE 'bob'", "spiffe://torc/ann already exists"),
        ("ADD IDENTITY 'x' TO ROLE nobody", "Can not add identity for non-existent role 'nobody'"),
        ("DROP IDENTITY 'x'", "identity 'x' doesn't exist"),
    ):
        try:
            root.execute(statement)
        except InvalidRequest as error:
            assert said in str(error), error
        else:
            raise AssertionError(statement)
    ann = session("ann")
    root.execute("DROP IDENTITY 'spiffe://torc/ann'")
    assert ann.execute("SELECT v FROM certs.t").one().v == 2, "the connection stays"
    assert "not authorized" in refused("ann")
    root.execute("DROP ROLE bob")
    assert identities() == {"spiffe://torc/root": "cassandra"}
    assert "Certificate identity 'spiffe://torc/bob' not authorized" in refused("bob")


for test in (
    a_certificate_is_a_login,
    certificates_that_are_none,
    clients_without_certificate_need_a_password,
    a_certificate_comes_before_a_password,
    identities_are_added_and_dropped,
):
    check(test.__name__, test)
close()
finish()
