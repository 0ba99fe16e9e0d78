"""Sessions of the Python driver with a certificate, a password or neither; the files are in TEST_TLS."""

import os
import ssl
import sys
import time

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

HOST, CQL_PORT = sys.argv[1], int(sys.argv[2])
FOLDER = os.environ["TEST_TLS"]
clusters = []


def path(name):
    return os.path.join(FOLDER, name)


def session(certificate=None, password=None, tls=True, version=5):
    """A CQL session; `certificate` is the name of one, `password` a pair of role and password."""
    context = None
    if tls:
        context = ssl.create_default_context(cafile=path("authority.pem"))
        if certificate:
            context.load_cert_chain(path(f"{certificate}.pem"), path(f"{certificate}.key"))
    login = PlainTextAuthProvider(*password) if password else None
    options = {"server_hostname": HOST} if tls else None
    cluster = Cluster([HOST], CQL_PORT, ssl_context=context, ssl_options=options, auth_provider=login, connect_timeout=20,
                      protocol_version=version)  # fmt: skip
    clusters.append(cluster)
    return cluster.connect()


def refused(*arguments, **named):
    """The error of a session that is not let in."""
    try:
        session(*arguments, **named)
    except NoHostAvailable as error:
        return " ".join(str(one) for one in error.errors.values())
    raise AssertionError("it was let in")


def eventually(make):
    """What `make` gives, once the node has its first superuser."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return make()
        except NoHostAvailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def close():
    for cluster in clusters:
        cluster.shutdown()
