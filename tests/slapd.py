"""OpenLDAP's server for tests: a directory of a few people and groups, with TLS, in a folder of its own.

Debian's package is installed where that is possible; `Slapd.missing()` says why there is none otherwise.
"""

import os
import shutil
import socket
import subprocess
import time

from environment import Failure

SUFFIX = "dc=example,dc=org"
READER, READER_PASSWORD = f"cn=reader,{SUFFIX}", "reads"
PORT, SECURE_PORT = 3389, 3636
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
SCHEMAS = ("core", "cosine", "inetorgperson")
START_SECONDS = 20

CONFIGURATION = """\
{schemas}
modulepath {modules}
moduleload back_mdb
pidfile {folder}/slapd.pid
TLSCACertificateFile {tls}/authority.pem
TLSCertificateFile {tls}/node.pem
TLSCertificateKeyFile {tls}/node.key
TLSVerifyClient never
sizelimit 500
database mdb
maxsize 16777216
suffix "{suffix}"
rootdn "cn=root,{suffix}"
rootpw rootpw
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{reader}" read by * none
"""


def entry(name, classes, **attributes):
    lines = [f"dn: {name}", *(f"objectClass: {one}" for one in classes)]
    for attribute, values in attributes.items():
        lines += [f"{attribute}: {value}" for value in ([values] if isinstance(values, str) else values)]
    return "\n".join(lines) + "\n"


def person(user, password, unit="people"):
    return entry(f"uid={user},ou={unit},{SUFFIX}", ["inetOrgPerson"], cn=user, sn=user, userPassword=password)


def content():
    """People, two of whom have the same mail address, and groups."""
    member = [f"uid={user},ou=people,{SUFFIX}" for user in ("root", "ann", "bob")]
    unit = lambda name: entry(f"ou={name},{SUFFIX}", ["organizationalUnit"])
    group = lambda name, members: entry(f"cn={name},ou=groups,{SUFFIX}", ["groupOfNames"], member=members)
    return "\n".join([
        entry(SUFFIX, ["dcObject", "organization"], o="Example"),
        unit("people"), unit("others"), unit("groups"),
        entry(READER, ["organizationalRole", "simpleSecurityObject"], userPassword=READER_PASSWORD),
        person("root", "toor"), person("ann", "secret"), person("bob", "hidden"), person("eve", "evil"),
        person("twice", "one"), person("twice", "two", "others"),
        entry(f"uid=silent,ou=people,{SUFFIX}", ["inetOrgPerson"], cn="silent", sn="silent"),
        group("readers", member[1:]), group("writers", member[2:]), group("unknown", member),
    ])  # fmt: skip


class Slapd:
    """A server on an address; `folder` is its own, `tls` has authority.pem, node.pem and node.key."""

    def __init__(self, folder, tls, host, port=PORT, secure_port=SECURE_PORT):
        self.folder, self.tls, self.host = folder, tls, host
        self.port, self.secure_port = port, secure_port
        self.process = None

    @staticmethod
    def missing():
        """Why there is no server to run, after trying to install it; None when there is one."""
        if shutil.which("slapd", path=PATH):
            return None
        if os.geteuid() == 0 and shutil.which("apt-get"):
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
            for arguments in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", "slapd"]):
                subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return None if shutil.which("slapd", path=PATH) else "slapd is not installed (Debian: apt-get install slapd)"

    def program(self, name):
        return shutil.which(name, path=PATH)

    def create(self):
        """Writes configuration and content."""
        os.makedirs(os.path.join(self.folder, "data"))
        schemas = next((one for one in ("/etc/ldap/schema", "/etc/openldap/schema") if os.path.isdir(one)), None)
        modules = next((one for one in ("/usr/lib/ldap", "/usr/lib/openldap") if os.path.isdir(one)), None)
        if not schemas or not modules:
            raise Failure("slapd is installed, but its schemas or modules are not found")
        path = self.configuration()
        text = CONFIGURATION.format(
            schemas="\n".join(f"include {schemas}/{name}.schema" for name in SCHEMAS),
            modules=modules, folder=self.folder, tls=self.tls, suffix=SUFFIX, reader=READER,
        )  # fmt: skip
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        added = subprocess.run([self.program("slapadd"), "-q", "-f", path], input=content(), text=True, capture_output=True)
        if added.returncode != 0:
            raise Failure(f"slapadd failed: {added.stderr}")

    def configuration(self):
        return os.path.join(self.folder, "slapd.conf")

    def start(self):
        urls = f"ldap://{self.host}:{self.port}/ ldaps://{self.host}:{self.secure_port}/"
        with open(os.path.join(self.folder, "log"), "ab") as log:
            # With a level of debugging it stays in the foreground.
            command = [self.program("slapd"), "-f", self.configuration(), "-h", urls, "-d", "0"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"slapd does not serve: {open(os.path.join(self.folder, 'log')).read()}") from None
                time.sleep(0.05)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def modify(self, changes):
        """Changes the content while no server runs: `changes` is LDIF."""
        changed = subprocess.run([self.program("slapmodify"), "-f", self.configuration()], input=changes, text=True, capture_output=True)
        if changed.returncode != 0:
            raise Failure(f"slapmodify failed: {changed.stderr}")
