"""Runs real CQL clients against a node and sums up: `run.py [--torc BINARY | --host ADDRESS] [--nodes NUMBER] [NAME…]`.

Each client is a program with an environment of its own, which is installed into the cache the first time. It is called
with HOST, PORT and the server's flavour (`torc` or `cassandra`), prints `ok NAME` or `FAIL NAME: why` for each test and
ends with `N passed, N failed`. Against Cassandra they show that the tests themselves are right.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import certificates  # noqa: E402
import environment  # noqa: E402
import slapd  # noqa: E402
from environment import Failure, read  # noqa: E402
from node import ADDRESS, CQL_PORT, Torc, Workspace, answers  # noqa: E402

COMPRESSION = ["lz4==4.4.5", "python-snappy==0.7.3"]
TIME_LIMIT_SECONDS = 600
# Nodes join one after the other.
CLUSTER_SECONDS = 120


def python(name, packages, script):
    path = environment.venv(name, packages)
    return [os.path.join(path, "bin", "python"), os.path.join(HERE, script)], {}


def exports():
    return python("exports", ["boto3==1.40.70", "amazon.ion==0.15.0", "zstandard==0.25.0"], "boto3/exports.py")


def java():
    def make(path):
        environment.run(
            ["mvn", "-q", "-B", "-f", os.path.join(HERE, "java", "pom.xml"), "dependency:copy-dependencies",
             f"-DoutputDirectory={path}", "-DincludeScope=runtime"],
            "fetching the Java driver with Maven",
        )  # fmt: skip

    jars = environment.folder("clients/java", [read("tests/clients/java/pom.xml")], make)
    return ["java", "-Xmx384m", "-cp", os.path.join(jars, "*"), os.path.join(HERE, "java", "Client.java")], {}


# For programs that end in a minute: a quick start counts for more than speed later on.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Packages of the Java machine that Spark reads by reflection.
SPARK_OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio", "java.util", "java.util.concurrent",
                    "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")
)  # fmt: skip


def compiled_java(name, *options, main="Client"):
    """Compiled, for libraries look classes up by their names. `options` are those of the Java machine."""
    folder = os.path.join(HERE, name)

    def make(path):
        environment.run(
            ["mvn", "-q", "-B", "-f", os.path.join(folder, "pom.xml"), "dependency:copy-dependencies",
             f"-DoutputDirectory={path}", "-DincludeScope=runtime"],
            f"fetching what {name} needs with Maven",
        )  # fmt: skip
        environment.run(
            ["javac", "-nowarn", "-proc:none", "-parameters", "-cp", os.path.join(path, "*"), "-d", path, os.path.join(folder, "Client.java")],
            f"compiling {name}",
        )

    path = environment.folder(f"clients/{name}", [read(f"tests/clients/{name}", file) for file in ("pom.xml", "Client.java")], make)
    return ["java", "-Xmx384m", *options, "-cp", f"{path}:{os.path.join(path, '*')}", main], {}


def zipkin():
    artifact = "io.zipkin:zipkin-server:3.5.1:jar:exec"

    def make(path):
        environment.run(
            ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy", f"-Dartifact={artifact}",
             f"-DoutputDirectory={path}"],
            "fetching Zipkin with Maven",
        )  # fmt: skip

    path = environment.folder("clients/zipkin", [artifact], make)
    jar = os.path.join(path, "zipkin-server-3.5.1-exec.jar")
    return [sys.executable, os.path.join(HERE, "zipkin", "client.py")], {"TEST_ZIPKIN": jar}


def go(folder):
    names = sorted(name for name in os.listdir(os.path.join(HERE, folder)) if name.endswith((".go", ".mod", ".sum")))

    def make(path):
        environment.run(["go", "build", "-o", os.path.join(path, "client"), "."], "go build", cwd=os.path.join(HERE, folder))

    path = environment.folder(f"clients/{folder}", [read(f"tests/clients/{folder}", name) for name in names], make)
    return [os.path.join(path, "client")], {}


def node(folder, script="client.js"):
    names = ("package.json", "package-lock.json")

    def make(path):
        for name in names:
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write(read(f"tests/clients/{folder}", name))
        environment.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], "npm ci", cwd=path)

    path = environment.folder(f"clients/{folder}", [read(f"tests/clients/{folder}", name) for name in names], make)
    return ["node", os.path.join(HERE, folder, script)], {"NODE_PATH": os.path.join(path, "node_modules")}


def rust(folder):
    target = environment.target_folder()
    manifest = os.path.join(HERE, folder, "Cargo.toml")
    environment.run(
        ["cargo", "build", "-q", "--locked", "--manifest-path", manifest],
        f"cargo build of the client {folder}",
        env=dict(os.environ, CARGO_TARGET_DIR=target),
    )
    return [os.path.join(target, "debug", f"{folder}-client")], {}


CLIENTS = {
    "cqlsh": lambda: python("cqlsh", ["cqlsh==6.2.2"], "cqlsh/client.py"),
    "python": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "python/client.py"),
    "vectors": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "python/vectors.py"),
    "texts": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "python/texts.py"),
    "views": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "python/views.py"),
    "cdc": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "python/cdc.py"),
    "cqlengine": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "python/cqlengine.py"),
    "scylla-python": lambda: python("scylla-driver", ["scylla-driver==3.29.12", *COMPRESSION], "python/client.py"),
    "java": java,
    "go": lambda: go("go"),
    "scylla-go": lambda: go("scylla-go"),
    "node": lambda: node("node"),
    "rust": lambda: rust("rust"),
    "boto3": lambda: python("boto3", ["boto3==1.40.70"], "boto3/client.py"),
    "aws-go": lambda: go("aws-go"),
    "aws-java": lambda: compiled_java("aws-java"),
    "aws-kcl": lambda: compiled_java("aws-kcl"),
    "aws-js": lambda: node("aws-js"),
    "aws-rust": lambda: rust("aws-rust"),
    "sessions": lambda: node("aws-js", "sessions.js"),
    # The first release of boto3 with SearchVectors is of August 2026.
    "aws-vectors": lambda: python("boto3-vectors", ["boto3==1.44.8"], "boto3/vectors.py"),
    "pynamo": lambda: python("pynamo", ["boto3==1.40.70", "pynamodb==6.1.0"], "boto3/pynamo.py"),
    "https": lambda: python("boto3", ["boto3==1.40.70"], "boto3/https.py"),
    "streams": lambda: python("boto3", ["boto3==1.40.70"], "boto3/streams.py"),
    "backups": lambda: python("boto3", ["boto3==1.40.70"], "boto3/backups.py"),
    "exports": lambda: exports(),
    "exports-s3": lambda: exports(),
    "zipkin": zipkin,
    "spring": lambda: compiled_java("spring", *SHORT_LIVED, main="app.Client"),
    "janusgraph": lambda: compiled_java("janusgraph", *SHORT_LIVED),
    "spark": lambda: compiled_java("spark", "-Xmx800m", *SHORT_LIVED, *SPARK_OPENS),
    "certificates": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "certificates/client.py"),
    "scylla-certificates": lambda: python(
        "cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "certificates/queries.py"
    ),
    "ldap": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "ldap/client.py"),
    "ldap-name": lambda: python("cassandra-driver", ["cassandra-driver==3.30.1", *COMPRESSION], "ldap/client.py"),
    "logins": lambda: python("logins", ["boto3==1.40.70", "cassandra-driver==3.30.1"], "logins/client.py"),
}

# Slow ones, which run on one node or on several unless they are named: the Kinesis Client Library waits for a minute and a half before it reads,
# Spring and Spark are for the most part the start of a large program.
ONE_NODE = ("aws-kcl", "spark", "spring")
SEVERAL_NODES = ("janusgraph",)
# Those that run only when they are named: the SDK takes 100 s of CPU to compile.
NAMED = ("aws-rust",)


def with_https(folder, nodes):
    """The DynamoDB API's port with TLS, and where the client finds the files."""
    start, last = ADDRESS.rsplit(".", 1)
    certificates.make_authority(folder)
    certificates.issue(folder, [f"{start}.{int(last) + at}" for at in range(nodes)])
    options = ("--alternator-https-port", "8043", "--alternator-encryption-options-certificate", os.path.join(folder, "node.pem"),
               "--alternator-encryption-options-keyfile", os.path.join(folder, "node.key"))  # fmt: skip
    return options, {"TEST_TLS": folder}


def with_certificates(*options):
    """Clients that are known by their certificates, and where the client finds those."""

    def settings(folder, nodes):
        start, last = ADDRESS.rsplit(".", 1)
        certificates.make_authority(folder)
        certificates.make_authority(folder, "stranger")
        certificates.issue(folder, [f"{start}.{int(last) + at}" for at in range(nodes)])
        for name, subject, names, authority in (
            ("root", "/CN=root", ["URI:spiffe://torc/root"], "authority"),
            ("ann", "/O=Torc, CN=root/CN=ann", ["DNS:ann.example", "URI:https://ann.example", "URI:spiffe://torc/ann"], "authority"),
            ("bob", "/CN=bob", ["URI:spiffe://torc/bob"], "authority"),
            ("nameless", "/O=Torc", [], "authority"),
            ("evil", "/CN=root", ["URI:spiffe://torc/root"], "stranger"),
        ):
            certificates.issue_for(folder, name, subject, names, authority)
        group = "--client-encryption-options"
        tls = (f"{group}-enabled", "true", f"{group}-optional", "true", f"{group}-require-client-auth", "optional",
               f"{group}-certificate", os.path.join(folder, "node.pem"), f"{group}-keyfile", os.path.join(folder, "node.key"),
               f"{group}-truststore", os.path.join(folder, "authority.pem"))  # fmt: skip
        return (*tls, "--authorizer", "CassandraAuthorizer", *options), {"TEST_TLS": folder}

    return settings


def with_ldap(kind):
    """A directory for passwords and groups, which the client starts: found by a search over LDAPS, or by name after StartTLS."""

    def settings(folder, _nodes):
        certificates.make_authority(folder)
        certificates.issue(folder, [ADDRESS])
        suffix, port, scheme = slapd.SUFFIX, slapd.PORT, "ldap"
        entry = f"uid={{USER}},ou=people,{suffix}"
        if kind == "search":
            scheme, port, entry = "ldaps", slapd.SECURE_PORT, f"{suffix}??sub?(&(objectClass=inetOrgPerson)(uid={{USER}}))"
        url = f"{scheme}://{ADDRESS}:{port}"
        options = {
            "authenticator": "LdapAuthenticator", "authorizer": "CassandraAuthorizer", "auth-superuser-name": "root",
            "auth-failed-logins-max": "0", "role-manager": "com.scylladb.auth.LDAPRoleManager",
            "ldap-authentication-url-template": f"{url}/{entry}",
            "ldap-url-template": f"{url}/ou=groups,{suffix}?cn?one?(member=uid={{USER}},ou=people,{suffix})",
            "ldap-attr-role": "cn", "ldap-bind-dn": slapd.READER, "ldap-bind-passwd": slapd.READER_PASSWORD,
            "ldap-start-tls": "true" if scheme == "ldap" else "false",
            "ldap-truststore": os.path.join(folder, "authority.pem"), "ldap-timeout": "2s", "ldap-cache-validity": "1s",
        }  # fmt: skip
        flags = [flag for name, value in options.items() for flag in (f"--{name}", value)]
        return tuple(flags), {"TEST_TLS": folder, "TEST_LDAP": kind}

    return settings


def with_exports(folder, _nodes):
    """The directory of exports and imports, and where the client finds it."""
    path = os.path.join(folder, "exports")
    os.makedirs(path)
    return ("--alternator-export-directory", path), {"TEST_EXPORTS": path}


def with_s3(folder, _nodes):
    """An S3, which the client serves from a folder; the node has the records of exports and imports in another one."""
    (_, records), variables = with_exports(folder, _nodes)
    buckets, credentials, address = os.path.join(folder, "buckets"), os.path.join(folder, "credentials"), f"{ADDRESS}:9900"
    os.makedirs(buckets)
    with open(credentials, "w") as file:
        file.write("[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n")
    options = ("--alternator-export-directory", records, "--alternator-export-endpoint", f"http://{address}",
               "--alternator-export-region", "eu-test-1", "--alternator-export-credentials", credentials)  # fmt: skip
    return options, variables | {"TEST_EXPORTS": buckets, "TEST_S3": address}


# The options of the node that a client needs, when it cannot share one with the others; or a function of the folder of the node's files and of
# the number of nodes that gives them, and variables for the client.
OPTIONS = {
    "ldap": with_ldap("search"),
    "ldap-name": with_ldap("name"),
    "certificates": with_certificates("--authenticator", "MutualTlsWithPasswordFallbackAuthenticator",
                                      "--auth-superuser-identity", "spiffe://torc/root"),  # fmt: skip
    "scylla-certificates": with_certificates("--authenticator", "com.scylladb.auth.CertificateOrPasswordAuthenticator",
                                             "--auth-superuser-name", "root"),  # fmt: skip
    "exports": with_exports,
    "exports-s3": with_s3,
    "https": with_https,
    "logins": ("--authenticator", "PasswordAuthenticator", "--authorizer", "CassandraAuthorizer",
               "--dynamic-data-masking-enabled", "true"),  # fmt: skip
}


def run_client(name, host, port, flavour, nodes, variables):
    """Runs one client with its output shown; (passed, failed, seconds)."""
    command, extra = CLIENTS[name]()
    begun = time.monotonic()
    command = [*command, host, str(port), flavour]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env=dict(os.environ, PYTHONUNBUFFERED="1", TEST_NODES=str(nodes), **extra, **variables), start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=TIME_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        output += f"FAIL {name}: not finished in {TIME_LIMIT_SECONDS} s\n"
    print(output, end="" if output.endswith("\n") else "\n", flush=True)
    totals = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
    passed, failed = (int(totals[-1][0]), int(totals[-1][1])) if totals else (output.count("\nok "), 0)
    failed += output.count("could not clean up")
    if process.returncode != 0 and failed == 0:
        print(f"FAIL {name}: the client ended with {process.returncode}")
        failed = 1
    return passed, failed, time.monotonic() - begun


def run_all(names, host, port, flavour, nodes, server=None, variables=None, until=None):
    """Runs the clients one after the other, those that begin before `until`; how many tests failed."""
    results, late = {}, []
    for name in names:
        if until is not None and time.monotonic() > until:
            late.append(name)
            continue
        print(f"\n-- client {name}", flush=True)
        try:
            results[name] = run_client(name, host, port, flavour, nodes, variables or {})
        except Failure as failure:
            print(f"FAIL {name}: {failure}")
            results[name] = (0, 1, 0.0)
        if server is not None and not server.is_running():
            print(f"FAIL {name}: the server ended with {server.process.returncode}:\n{server.log_tail()}")
            results[name] = (results[name][0], results[name][1] + 1, results[name][2])
            break
    print("\nclients:")
    for name, (passed, failed, seconds) in results.items():
        print(f"  {name:<14} {passed:>4} passed, {failed} failed, {seconds:.0f} s")
    if late:
        print(f"  no time left for: {' '.join(late)}")
    missing = [name for name in names if name not in results and name not in late]
    if missing:
        print(f"  not run: {' '.join(missing)}")
    total = [sum(result[index] for result in results.values()) for index in (0, 1)]
    print(f"{total[0]} passed, {total[1] + len(missing)} failed")
    return total[1] + len(missing)


def start(server, nodes):
    """Starts a cluster of so many nodes in one process; the seconds until all serve clients."""
    begun = time.monotonic()
    server.start()
    start, last = server.host.rsplit(".", 1)
    for address in (f"{start}.{int(last) + at}" for at in range(1, nodes)):
        while not answers(address, CQL_PORT):
            if time.monotonic() - begun > CLUSTER_SECONDS:
                raise Failure(f"{address} does not serve clients after {CLUSTER_SECONDS} s:\n{server.log_tail()}")
            time.sleep(0.1)
    return time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", help="the binary to start a throw-away node with")
    parser.add_argument("--host", help="a node that runs already")
    parser.add_argument("--port", type=int, default=CQL_PORT)
    parser.add_argument("--flavour", choices=("torc", "cassandra"), default="torc", help="the server that listens on --host")
    parser.add_argument("--nodes", type=int, default=1, help="nodes to start, or that --host belongs to")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="another order of the clients for each seed")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="begin no client after so long")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {' '.join(CLIENTS)}; all when there is none")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in CLIENTS]
    if unknown:
        parser.error(f"unknown client {unknown[0]}; there are {' '.join(CLIENTS)}")
    # Cassandra has neither the DynamoDB API nor tables that are logs, and refuses materialized views unless it is configured otherwise.
    torc_only = ("aws-go", "aws-java", "aws-js", "aws-kcl", "aws-rust", "aws-vectors", "backups", "boto3", "cdc", "certificates", "exports", "exports-s3", "https", "ldap", "ldap-name", "logins", "pynamo", "scylla-certificates", "scylla-go", "sessions",
                 "streams", "texts", "views", "zipkin")  # fmt: skip
    slow = NAMED + (ONE_NODE if options.nodes > 1 else SEVERAL_NODES)
    names = options.names or [name for name in CLIENTS if (options.flavour == "torc" or name not in torc_only) and name not in slow]
    order = random.Random(options.shuffle)
    if options.shuffle is not None:
        order.shuffle(names)
    options.until = None if options.within is None else time.monotonic() + options.within
    if options.host:
        sys.exit(1 if run_all(names, options.host, options.port, options.flavour, options.nodes, until=options.until) else 0)
    if not options.torc:
        parser.error("--torc or --host is needed")
    shared = [name for name in names if name not in OPTIONS]
    groups = ([(shared, ())] if shared else []) + [([name], OPTIONS[name]) for name in names if name in OPTIONS]
    if options.shuffle is not None:
        order.shuffle(groups)
    failed = sum(run_group(options, group, settings) for group, settings in groups)
    sys.exit(1 if failed else 0)


def run_group(options, names, settings):
    """Runs clients against a throw-away node with these settings; how many tests failed."""
    if options.until is not None and time.monotonic() > options.until:
        print(f"no time left for: {' '.join(names)}")
        return 0
    with Workspace("clients") as folder:
        several = ("--nodes", str(options.nodes)) if options.nodes > 1 else ()
        settings, variables = settings(folder, options.nodes) if callable(settings) else (settings, {})
        server = Torc(options.torc, folder, ADDRESS, options=(*several, *settings))
        print(f"torc was ready in {start(server, options.nodes):.2f} s on {ADDRESS}")
        try:
            failed = run_all(names, ADDRESS, CQL_PORT, "torc", options.nodes, server, variables, options.until)
            code = server.stop()
            if code != 0:
                print(f"FAIL torc ended with {code} after SIGTERM:\n{server.log_tail()}")
                failed += 1
        finally:
            server.kill()
        return failed


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"clients: {failure}")
