"""Logins against a directory, with the Python driver: `client.py HOST CQL_PORT torc`, with slapd of OpenLDAP.

The node has LdapAuthenticator and LDAPRoleManager for the directory on HOST, which this program starts, stops and changes;
TEST_LDAP is `search` or `name`, by how the node finds the entry of a user, and TEST_TLS has the certificates.
"""

import os
import shutil
import sys
import tempfile
import time

from cassandra import InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

sys.path += [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.abspath(os.path.join(__file__, "../../.."))]

from checks import check, finish  # noqa: E402
from slapd import SUFFIX, Slapd  # noqa: E402

HOST, CQL_PORT = sys.argv[1], int(sys.argv[2])
# The node is configured with it.
VALIDITY_SECONDS = 1
clusters = []

why = Slapd.missing()
if why:
    print(f"SKIP ldap: {why}")
    print("0 passed, 0 failed")
    sys.exit(0)


def session(user, password):
    cluster = Cluster([HOST], CQL_PORT, auth_provider=PlainTextAuthProvider(user, password), connect_timeout=20)
    clusters.append(cluster)
    return cluster.connect()


def refused(user, password):
    try:
        session(user, password)
    except NoHostAvailable as error:
        return " ".join(str(one) for one in error.errors.values())
    raise AssertionError(f"{user} was let in")


def eventually(test, seconds=20):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return test()
        except (NoHostAvailable, AssertionError, Unauthorized):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


folder = tempfile.mkdtemp(prefix="torc-slapd-")
directory = Slapd(folder, os.environ["TEST_TLS"], HOST)
directory.create()
directory.start()
root = eventually(lambda: session("root", "toor"))
for statement in (
    "CREATE KEYSPACE ldap WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ldap.t (k int PRIMARY KEY, v int)",
    "CREATE ROLE ann WITH LOGIN = true AND PASSWORD = 'local'",
    "CREATE ROLE bob WITH LOGIN = true",
    "CREATE ROLE silent WITH LOGIN = true",
    "CREATE ROLE twice WITH LOGIN = true",
    "CREATE ROLE nobody WITH LOGIN = true AND PASSWORD = 'local'",
    "CREATE ROLE readers",
    "CREATE ROLE writers",
    "GRANT SELECT ON ldap.t TO readers",
    "GRANT MODIFY ON ldap.t TO writers",
):
    root.execute(statement)


def may_not_write(one):
    try:
        one.execute("INSERT INTO ldap.t (k, v) VALUES (1, 1)")
    except Unauthorized:
        return
    raise AssertionError("it may write")


def may_write(one):
    one.execute("INSERT INTO ldap.t (k, v) VALUES (1, 1)")


def passwords_are_the_directorys():
    assert session("ann", "secret").execute("SELECT * FROM ldap.t").all() == []
    for user, password in (("ann", "wrong"), ("ann", "local"), ("nobody", "local"), ("silent", "x"), ("root", "cassandra")):
        assert "and/or password are incorrect" in refused(user, password), user
    # Known to the directory, but not to the node.
    assert "eve is not permitted to log in" in refused("eve", "evil")


def no_user_is_another():
    for user in ("*", "a*", "ann)(uid=*", "ann,ou=people", f"ann,ou=people,{SUFFIX}", "ann\\2c", "*)(|(uid=*"):
        assert "incorrect" in refused(user, "secret"), user
    # Directories ignore case and blanks at the end; roles do not.
    for user in ("ann ", "ANN"):
        assert "is not permitted to log in" in refused(user, "secret"), user


def an_empty_password_is_none():
    # A bind without a password succeeds, as nobody.
    assert refused("ann", "")


def a_user_is_one_entry():
    # Where the entry is searched for, there are two of the name.
    said = refused("twice", "two")
    if os.environ["TEST_LDAP"] == "search":
        assert "Unable to perform authentication" in said, said
        assert "Unable to perform authentication" in refused("twice", "one")
    else:
        assert "incorrect" in said, said


def groups_are_roles():
    ann, bob = session("ann", "secret"), session("bob", "hidden")
    may_not_write(ann)
    may_write(bob)
    assert bob.execute("SELECT v FROM ldap.t").one().v == 1
    for statement in ("GRANT writers TO ann", "REVOKE readers FROM ann"):
        try:
            root.execute(statement)
        except InvalidRequest as error:
            assert "LDAP" in str(error), error
        else:
            raise AssertionError(statement)


def changed_groups_count_soon():
    ann, bob = session("ann", "secret"), session("bob", "hidden")
    may_not_write(ann)
    may_write(bob)
    directory.stop()
    group = f"dn: cn=writers,ou=groups,{SUFFIX}\nchangetype: modify\n"
    directory.modify(f"{group}add: member\nmember: uid=ann,ou=people,{SUFFIX}\n-\ndelete: member\nmember: uid=bob,ou=people,{SUFFIX}\n")
    directory.start()
    eventually(lambda: may_write(ann))
    eventually(lambda: may_not_write(bob))


def a_directory_that_is_down_lets_nobody_in():
    ann = session("ann", "secret")
    directory.stop()
    time.sleep(VALIDITY_SECONDS + 0.5)
    assert "Unable to perform authentication" in refused("ann", "secret")
    assert ann.execute("SELECT release_version FROM system.local").one(), "connections go on"
    directory.start()
    eventually(lambda: session("ann", "secret"))


def a_changed_password_counts_soon():
    session("bob", "hidden")
    directory.stop()
    name = f"dn: uid=bob,ou=people,{SUFFIX}\nchangetype: modify\n"
    directory.modify(f"{name}replace: userPassword\nuserPassword: other\n")
    directory.start()
    session("bob", "other")
    time.sleep(VALIDITY_SECONDS + 0.5)
    assert "incorrect" in refused("bob", "hidden")


try:
    for test in (
        passwords_are_the_directorys,
        no_user_is_another,
        an_empty_password_is_none,
        a_user_is_one_entry,
        groups_are_roles,
        changed_groups_count_soon,
        a_directory_that_is_down_lets_nobody_in,
        a_changed_password_counts_soon,
    ):
        check(test.__name__, test)
finally:
    for cluster in clusters:
        cluster.shutdown()
    directory.stop()
    shutil.rmtree(folder, ignore_errors=True)
finish()
