"""A node under attack, its monitor, and the clients that behave meanwhile."""

import contextlib
import http.client
import os
import re
import socket
import ssl
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import certificates
from client import ApiClient, Behaved, Closed, Connection, CqlClient, CqlError
from environment import Failure
from node import Torc

MEMORY = 1 << 30
# Of the resident memory: the node's own limit, and a half of it for the process around that.
RSS_MAX = MEMORY * 3 // 2
# On a machine with two busy cores and a debug build.
P99_MAX = 2.5
API, API_TLS, CQL_TLS = 8000, 8043, 9142


class World:
    """A node of one configuration. `scale` is how many times longer than in `./dev test` scenarios may take."""

    options = ()
    # Options of every connection, and the certificate by which HTTP clients know the node, if it has one.
    connection, tls = {}, None

    def __init__(self, torc, folder, host, source, scale=1):
        self.torc, self.folder, self.host, self.source, self.scale = torc, folder, host, source, scale
        os.makedirs(folder, exist_ok=True)
        self.prepare_files()
        memory = ("--memory_size", f"{MEMORY >> 20}MiB", "--commitlog_segment_size", "8MiB")
        self.node = Torc(torc, folder, host, 2, (*memory, *self.options))
        self.rss_most = 0
        self.stopped = threading.Event()

    def prepare_files(self):
        """Files that the node needs before it starts."""

    def address(self, last):
        """Another address beside that of the node."""
        return f"{self.host.rsplit('.', 1)[0]}.{last}"

    def watch(self):
        while not self.stopped.wait(0.05):
            self.rss_most = max(self.rss_most, self.rss())

    def rss(self):
        try:
            with open(f"/proc/{self.node.process.pid}/status", encoding="utf-8") as status:
                return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) << 10
        except (OSError, TypeError):
            return 0

    def cpu_seconds(self):
        with open(f"/proc/{self.node.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def bytes_read(self):
        """Bytes that the process has read from files, by system calls or from the disk, whichever is more."""
        with open(f"/proc/{self.node.process.pid}/io", encoding="utf-8") as file:
            figures = dict(line.split(": ") for line in file.read().splitlines())
        return max(int(figures["rchar"]), int(figures["read_bytes"]))

    def connect(self, **options):
        return Connection(self.host, **{**self.connection, **options})

    def good(self):
        """A connection of a client that behaves."""
        return self.connect(source=self.source)

    def api(self):
        """A client of the DynamoDB API that behaves."""
        made = (self.source, 0)
        if self.tls:
            return ApiClient(http.client.HTTPSConnection(self.host, API_TLS, timeout=30, source_address=made, context=self.tls))
        return ApiClient(http.client.HTTPConnection(self.host, API, timeout=30, source_address=made))

    def clients(self):
        """The factory of each of the clients that behave."""
        return [lambda: CqlClient(self.good), self.api]

    def prepare(self):
        """Tables of the clients that behave and of the scenarios."""
        with self.good() as connection:
            for statement in (
                "CREATE KEYSPACE good WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                "CREATE TABLE good.t (k int PRIMARY KEY, v int)",
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            ):
                connection.query(statement)

    def prepare_api(self):
        client = self.api()
        client.make_table()
        client.close()

    def check_log(self, log=None):
        with open(log or self.node.log, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if "panicked at" in line:
                    raise Failure(f"the node panicked: {line.strip()}")

    def run(self, scenarios):
        """Runs scenarios, each a name, a function and whether it restarts the node, one after the other."""
        print(f"{type(self).__name__.lower()}: the node was ready in {self.node.start():.1f} s", flush=True)
        watching = threading.Thread(target=self.watch, daemon=True)
        watching.start()
        try:
            self.prepare()
            self.prepare_api()
            for scenario in scenarios:
                self.run_one(*scenario)
            self.stopped.set()
            watching.join()
            if self.node.stop() != 0:
                raise Failure(f"the node ended with {self.node.process.returncode}:\n{self.node.log_tail()}")
            self.check_log()
        finally:
            self.stopped.set()
            self.node.kill()

    def run_one(self, name, scenario, restarts):
        begun = time.monotonic()
        self.rss_most = self.rss()
        with contextlib.ExitStack() as stack:
            all_behaved = [stack.enter_context(Behaved(make)) for make in self.clients()]
            said = scenario(self)
        if not self.node.is_running():
            raise Failure(f"{name}: the node has ended:\n{self.node.log_tail()}")
        self.check_log()
        if self.rss_most > RSS_MAX:
            raise Failure(f"{name}: {self.rss_most >> 20} MiB are resident, of {MEMORY >> 20} MiB of memory_size")
        # A client sees a restart, too.
        for behaved in [] if restarts else all_behaved:
            if behaved.failed:
                raise Failure(f"{name}: the client that behaves ({behaved.name}) failed: {behaved.failed[:3]}")
            if behaved.p99() > P99_MAX:
                raise Failure(f"{name}: p99 of the client that behaves ({behaved.name}) was {behaved.p99():.2f} s")
        took = time.monotonic() - begun
        p99s = ", ".join(f"{behaved.name} {behaved.p99() * 1000:.0f} ms of {len(behaved.took)}" for behaved in all_behaved)
        print(
            f"{name}: ok, {took:.1f} s, longest poll so far {self.node.longest_stall()} ms of CPU, p99 {p99s}, "
            f"{self.rss_most >> 20} MiB{', ' + said if said else ''}",
            flush=True,
        )


class Encrypted(World):
    """A node with TLS on every port, and clients that use it."""

    def prepare_files(self):
        certificates.make_authority(self.folder)
        certificates.issue(self.folder, [self.host])
        pem, key, authority = (os.path.join(self.folder, name) for name in ("node.pem", "node.key", "authority.pem"))
        self.options = ["--client_encryption_options_enabled", "true", "--native_transport_port_ssl", str(CQL_TLS),
                        "--server_encryption_options_internode_encryption", "all",
                        "--server_encryption_options_truststore", authority,
                        "--alternator_https_port", str(API_TLS)]  # fmt: skip
        for options in ("client", "server"):
            self.options += [f"--{options}_encryption_options_certificate", pem, f"--{options}_encryption_options_keyfile", key]
        self.tls = ssl.create_default_context(cafile=authority)
        self.connection = {"port": CQL_TLS, "tls": self.tls}


class Logins(World):
    """A node that asks for passwords and permissions."""

    options = ("--authenticator", "PasswordAuthenticator", "--authorizer", "CassandraAuthorizer")
    connection = {"login": ("cassandra", "cassandra")}

    def prepare(self):
        deadline = time.monotonic() + 30
        while True:
            try:
                self.good().close()
                break
            except (CqlError, Closed, socket.error) as error:
                # The first superuser comes just after the node begins to serve.
                if time.monotonic() > deadline:
                    raise Failure(f"the first superuser cannot log in: {error}") from None
                time.sleep(0.2)
        super().prepare()

    def prepare_api(self):
        """Requests would have to be signed."""

    def clients(self):
        return [lambda: CqlClient(self.good)]
