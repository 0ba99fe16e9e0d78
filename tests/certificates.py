"""Certificates for tests, made with openssl as docs/operations/security.md shows it."""

import os

from environment import run


def openssl(*arguments):
    run(["openssl", *arguments], "openssl")


def make_authority(folder):
    """A new authority in `folder`: authority.pem and authority.key."""
    path = os.path.join(folder, "authority")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
            "-subj", "/CN=authority of a test", "-keyout", f"{path}.key", "-out", f"{path}.pem")  # fmt: skip


def issue(folder, addresses):
    """A new certificate of the authority in `folder` for these addresses: node.pem and node.key, in place of those that there were."""
    path, authority = os.path.join(folder, "node"), os.path.join(folder, "authority")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=node of a test",
            "-keyout", f"{path}.key.new", "-out", f"{path}.csr")  # fmt: skip
    with open(f"{path}.ext", "w", encoding="utf-8") as file:
        file.write("subjectAltName=" + ",".join(f"IP:{address}" for address in addresses) + "\n")
    openssl("x509", "-req", "-in", f"{path}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "30", "-extfile", f"{path}.ext", "-out", f"{path}.pem.new")  # fmt: skip
    for name in (f"{path}.key", f"{path}.pem"):
        os.replace(f"{name}.new", name)
