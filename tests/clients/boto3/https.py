"""The AWS SDK for Python over HTTPS: `https.py HOST CQL_PORT torc`.

TEST_TLS is the folder with the authority that has issued the node's certificate, and with the node's files, which are replaced here while
the node runs. The ports are TEST_DYNAMODB_PORT and TEST_DYNAMODB_HTTPS_PORT, 8000 and 8043 by default.
"""

import os
import socket
import ssl
import sys
import tempfile
import time
import uuid

import boto3
from botocore.config import Config
from botocore.exceptions import SSLError

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.dirname(sys.path[-1]))

import certificates  # noqa: E402
from aws import refused  # noqa: E402
from checks import check, finish  # noqa: E402

HOST = sys.argv[1]
PORT = int(os.environ.get("TEST_DYNAMODB_PORT", "8000"))
HTTPS_PORT = int(os.environ.get("TEST_DYNAMODB_HTTPS_PORT", "8043"))
TLS = os.environ["TEST_TLS"]
AUTHORITY = os.path.join(TLS, "authority.pem")
# The node looks at its files every 10 s.
RELOADED_SECONDS = 30


def client(url, verify=AUTHORITY):
    return boto3.client(
        "dynamodb", endpoint_url=url, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any",
        verify=verify, config=Config(retries={"max_attempts": 0}, connect_timeout=5, read_timeout=5),
    )  # fmt: skip


encrypted = client(f"https://{HOST}:{HTTPS_PORT}")
plain = client(f"http://{HOST}:{PORT}")


def both_ports():
    name = "t_" + uuid.uuid4().hex[:12]
    encrypted.create_table(
        TableName=name, AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}], BillingMode="PAY_PER_REQUEST",
    )  # fmt: skip
    encrypted.get_waiter("table_exists").wait(TableName=name)
    # An item of many TLS records, there and back.
    item = {"p": {"S": "a"}, "v": {"S": "x" * 390_000}}
    encrypted.put_item(TableName=name, Item=item)
    for one in (encrypted, plain):
        assert one.get_item(TableName=name, Key={"p": {"S": "a"}}, ConsistentRead=True)["Item"] == item
    refused("ConditionalCheckFailedException", "conditional", encrypted.put_item, TableName=name, Item=item,
            ConditionExpression="attribute_not_exists(p)")  # fmt: skip
    plain.delete_table(TableName=name)
    refused("ResourceNotFoundException", "", encrypted.describe_table, TableName=name)


def wrong_authority():
    with tempfile.TemporaryDirectory() as folder:
        certificates.make_authority(folder)
        stranger = client(f"https://{HOST}:{HTTPS_PORT}", os.path.join(folder, "authority.pem"))
        try:
            stranger.list_tables()
        except SSLError as error:
            assert "CERTIFICATE_VERIFY_FAILED" in str(error), error
        else:
            raise AssertionError("a certificate of nobody was accepted")


def wrong_protocol():
    begun = time.monotonic()
    refused("ValidationException", "https://", client(f"http://{HOST}:{HTTPS_PORT}").list_tables)
    try:
        client(f"https://{HOST}:{PORT}").list_tables()
    except SSLError:
        pass
    else:
        raise AssertionError("the port without TLS accepted a handshake")
    assert time.monotonic() - begun < 4, "nothing waits for a timeout"


def versions():
    def agreed(version):
        context = ssl.create_default_context(cafile=AUTHORITY)
        context.minimum_version = context.maximum_version = version
        # The protocols that browsers and some SDKs offer; only HTTP/1.1 is spoken here.
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection((HOST, HTTPS_PORT), 5) as raw, context.wrap_socket(raw, server_hostname=HOST) as tls:
            tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert tls.recv(4096).startswith(b"HTTP/1.1 200")
            return tls.version()

    assert agreed(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert agreed(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"


def certificate_is_reloaded():
    def shown():
        return ssl.get_server_certificate((HOST, HTTPS_PORT), ca_certs=AUTHORITY, timeout=5)

    encrypted.list_tables()
    before = shown()
    certificates.issue(TLS, [HOST])
    deadline = time.monotonic() + RELOADED_SECONDS
    while shown() == before:
        assert time.monotonic() < deadline, f"the certificate of before is shown {RELOADED_SECONDS} s later"
        time.sleep(0.5)
    # The earlier connection stays open, and a new one is verified.
    encrypted.list_tables()
    client(f"https://{HOST}:{HTTPS_PORT}").list_tables()


check("the port with TLS beside the one without", both_ports)
check("a certificate of another authority", wrong_authority)
check("the wrong protocol", wrong_protocol)
check("versions of TLS", versions)
check("a certificate that is replaced", certificate_is_reloaded)
finish()
