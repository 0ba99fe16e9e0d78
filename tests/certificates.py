"""Certificates for tests, made with openssl as docs/operations/security.md shows it."""

import os

from environment import run


def openssl(*arguments):
    run(["openssl", *arguments], "openssl")


def make_authority(folder, name="authority"):
    """A new authority in `folder`: NAME.pem and NAME.key."""
    path = os.path.join(folder, name)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
            "-subj", "/CN=authority of a test", "-keyout", f"{path}.key", "-out", f"{path}.pem")  # fmt: skip


def issue(folder, addresses):
    """A new certificate of the authority in `folder` for these addresses: node.pem and node.key, in place of those that there were."""
    issue_for(folder, "node", "/CN=node of a test", [f"IP:{address}" for address in addresses])


def issue_for(folder, name, subject, alternative_names, authority="authority"):
    """A new certificate of an authority in `folder`: NAME.pem and NAME.key, in place of those that there were."""
    path, authority = os.path.join(folder, name), os.path.join(folder, authority)
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject,
            "-keyout", f"{path}.key.new", "-out", f"{path}.csr")  # fmt: skip
    with open(f"{path}.ext", "w", encoding="utf-8") as file:
        file.write("subjectAltName=" + ",".join(alternative_names) + "\n" if alternative_names else "keyUsage=digitalSignature\n")
    openssl("x509", "-req", "-in", f"{path}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "30", "-extfile", f"{path}.ext", "-out", f"{path}.pem.new")  # fmt: skip
    for name in (f"{path}.key", f"{path}.pem"):
        os.replace(f"{name}.new", name)
