"""Logins by the subject of a certificate, with the Python driver: `queries.py HOST CQL_PORT torc`.

The node has ScyllaDB's CertificateOrPasswordAuthenticator with its query for the common name; its superuser is `root`.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import check, finish  # noqa: E402
from world import close, eventually, refused, session  # noqa: E402

root = eventually(lambda: session("root"))
root.execute("CREATE ROLE carl WITH LOGIN = true AND PASSWORD = 'secret'")


def the_common_name_is_the_role():
    assert "ann is not permitted to log in" in refused("ann"), "there is no such role"
    root.execute("CREATE ROLE ann WITH LOGIN = true")
    # The organization of ann's certificate is written like another common name.
    session("ann")
    names = {row.username for row in root.execute("SELECT username FROM system_views.clients")}
    assert {"root", "ann"} <= names, names


def certificates_without_a_name_are_refused():
    assert "auth_certificate_role_queries" in refused("nameless")
    refused("evil")


def clients_without_certificate_need_a_password():
    assert session(password=("carl", "secret")).execute("SELECT release_version FROM system.local").one()
    assert "are incorrect" in refused(password=("carl", "other"))


for test in (
    the_common_name_is_the_role,
    certificates_without_a_name_are_refused,
    clients_without_certificate_need_a_password,
):
    check(test.__name__, test)
close()
finish()
