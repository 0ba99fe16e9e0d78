"""Logins and permissions, with the Python driver and the AWS SDK: `client.py HOST CQL_PORT torc`.

The node has PasswordAuthenticator and CassandraAuthorizer; the port of the DynamoDB API is TEST_DYNAMODB_PORT, 8000 by default.
"""

import hashlib
import os
import sys
import time
import urllib.error
import urllib.request

import boto3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from aws import refused  # noqa: E402
from checks import check, finish  # noqa: E402

HOST, CQL_PORT = sys.argv[1], int(sys.argv[2])
ENDPOINT = f"http://{HOST}:{os.environ.get('TEST_DYNAMODB_PORT', '8000')}"
clusters = []


def session(user, password):
    """A CQL session of a role."""
    cluster = Cluster([HOST], CQL_PORT, auth_provider=PlainTextAuthProvider(user, password), connect_timeout=20)
    clusters.append(cluster)
    return cluster.connect()


def superuser():
    """A session of the first superuser, which a node creates just after it begins to serve."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return session("cassandra", "cassandra")
        except NoHostAvailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def dynamodb(key, secret):
    """A client of the DynamoDB API that signs with these."""
    return boto3.client(
        "dynamodb", endpoint_url=ENDPOINT, region_name="us-east-1", aws_access_key_id=key,
        aws_secret_access_key=secret, config=Config(retries={"max_attempts": 1}),
    )  # fmt: skip


root = superuser()
for statement in (
    "CREATE KEYSPACE IF NOT EXISTS logins WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS logins.t (p int PRIMARY KEY, v int)",
    "CREATE ROLE IF NOT EXISTS reader WITH PASSWORD = 'r' AND LOGIN = true",
    "CREATE ROLE IF NOT EXISTS nobody WITH PASSWORD = 'n' AND LOGIN = true",
    "CREATE ROLE IF NOT EXISTS locked WITH PASSWORD = 'l' AND LOGIN = false",
    "GRANT SELECT ON logins.t TO reader",
):
    root.execute(statement)


def secret(role):
    """The secret of a role for signatures: the hash of its password."""
    return root.execute("SELECT salted_hash FROM system_auth.roles WHERE role = %s", (role,)).one().salted_hash


def logins():
    for user, password in [("reader", "wrong"), ("none", "x"), ("locked", "l")]:
        try:
            session(user, password)
        except NoHostAvailable as error:
            assert "AuthenticationFailed" in repr(error.errors) or "Bad credentials" in repr(error.errors), error.errors
        else:
            raise AssertionError(f"{user} logged in")


def permissions():
    reader = session("reader", "r")
    prepared = reader.prepare("SELECT v FROM logins.t WHERE p = ?")
    reader.execute(prepared, (1,))
    for statement in ("INSERT INTO logins.t (p, v) VALUES (1, 1)", "DROP TABLE logins.t", "TRUNCATE logins.t",
                      "CREATE ROLE x", "SELECT * FROM system_auth.roles"):  # fmt: skip
        try:
            reader.execute(statement)
        except Unauthorized:
            continue
        raise AssertionError(f"not refused: {statement}")
    root.execute("REVOKE SELECT ON logins.t FROM reader")
    try:
        reader.execute(prepared, (1,))
        raise AssertionError("a prepared statement outlives its permission")
    except Unauthorized:
        pass


def masks():
    """A role sees masked values, until it may see more; prepared statements follow."""
    for statement in (
        "CREATE TABLE IF NOT EXISTS logins.people (p int PRIMARY KEY, name text MASKED WITH mask_inner(1, 1), born date MASKED WITH DEFAULT)",
        "INSERT INTO logins.people (p, name, born) VALUES (1, 'Grace Hopper', '1906-12-09')",
        "GRANT SELECT ON logins.people TO reader",
    ):
        root.execute(statement)
    reader = session("reader", "r")
    column = reader.cluster.metadata.keyspaces["logins"].tables["people"].columns["name"]
    assert column.cql_type == "text", column.cql_type
    prepared = reader.prepare("SELECT name, born FROM logins.people WHERE p = ?")
    hidden, shown = ("G**********r", "1970-01-01"), ("Grace Hopper", "1906-12-09")
    by_name = "SELECT p FROM logins.people WHERE name = 'Grace Hopper' ALLOW FILTERING"

    def seen(client):
        row = client.execute(prepared, (1,)).one()
        return row.name, str(row.born)

    assert seen(reader) == hidden, seen(reader)
    assert seen(root) == shown, seen(root)
    try:
        reader.execute(by_name)
        raise AssertionError("a masked column reveals its value in WHERE")
    except Unauthorized as error:
        assert "no UNMASK nor SELECT_MASKED permission" in str(error), error
    root.execute("GRANT SELECT_MASKED ON logins.people TO reader")
    assert reader.execute(by_name).one().p == 1
    assert seen(reader) == hidden, seen(reader)
    root.execute("GRANT UNMASK ON logins.people TO reader")
    assert seen(reader) == shown, seen(reader)
    root.execute("REVOKE UNMASK ON logins.people FROM reader")
    root.execute("ALTER TABLE logins.people ALTER born DROP MASKED")
    assert seen(reader) == (hidden[0], shown[1]), seen(reader)


def signatures():
    refused("UnrecognizedClientException", "security token", dynamodb("none", "x").list_tables)
    refused("UnrecognizedClientException", "security token", dynamodb("locked", secret("locked") or "x").list_tables)
    refused("InvalidSignatureException", "does not match", dynamodb("reader", "r").list_tables)
    dynamodb("reader", secret("reader")).list_tables()
    request = urllib.request.Request(
        ENDPOINT, b"{}", {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
    )
    try:
        urllib.request.urlopen(request, timeout=10)
        raise AssertionError("not signed")
    except urllib.error.HTTPError as error:
        assert b"MissingAuthenticationToken" in error.read()


def presigned():
    headers = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
    credentials = Credentials("reader", secret("reader"))

    class Presigner(SigV4QueryAuth):
        """Signs a body, too, which botocore takes for parameters of the query."""

        def payload(self, request):
            return hashlib.sha256(b"{}").hexdigest()

    def ask(expires, body=b"{}"):
        request = AWSRequest("POST", ENDPOINT + "/", headers)
        Presigner(credentials, "dynamodb", "us-east-1", expires).add_auth(request)
        sent = urllib.request.Request(request.url, body, headers)
        return urllib.request.urlopen(sent, timeout=10).read()

    assert b"TableNames" in ask(60)
    for wrong in ({"expires": 0}, {"expires": 60, "body": b'{"Limit":1}'}):
        try:
            ask(**wrong)
        except urllib.error.HTTPError as error:
            assert b"Signature" in error.read()
        else:
            raise AssertionError(f"not refused: {wrong}")


def grants():
    owner, reader = dynamodb("cassandra", secret("cassandra")), dynamodb("reader", secret("reader"))
    table = "granted"
    create = {
        "TableName": table, "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST",
    }  # fmt: skip
    refused("AccessDeniedException", "CREATE", reader.create_table, **create)
    owner.create_table(**create)
    item = {"p": {"S": "a"}}
    owner.put_item(TableName=table, Item=item)
    refused("AccessDeniedException", "SELECT", reader.get_item, TableName=table, Key=item)
    arn = owner.describe_table(TableName=table)["Table"]["TableArn"]
    refused("AccessDeniedException", "SELECT", reader.export_table_to_point_in_time, TableArn=arn, S3Bucket="any")
    imported = {"S3BucketSource": {"S3Bucket": "any"}, "InputFormat": "CSV", "TableCreationParameters": create}
    refused("AccessDeniedException", "CREATE", reader.import_table, **imported)
    refused("ValidationException", "alternator_export_directory", owner.import_table, **imported)
    root.execute('GRANT SELECT ON "alternator_granted"."granted" TO reader')
    refused("ValidationException", "alternator_export_directory", reader.export_table_to_point_in_time, TableArn=arn, S3Bucket="any")
    assert reader.get_item(TableName=table, Key=item)["Item"] == item
    refused("AccessDeniedException", "MODIFY", reader.put_item, TableName=table, Item=item)
    put = {"Put": {"TableName": table, "Item": item}}
    refused("AccessDeniedException", "MODIFY", reader.transact_write_items, TransactItems=[put])
    refused("AccessDeniedException", "MODIFY", reader.batch_write_item,
            RequestItems={table: [{"PutRequest": {"Item": item}}]})  # fmt: skip
    refused("AccessDeniedException", "DROP", reader.delete_table, TableName=table)
    # The creator of a table has all permissions on it; none is left when it is dropped.
    root.execute("GRANT CREATE ON ALL KEYSPACES TO reader")
    reader.create_table(**{**create, "TableName": "own"})
    reader.put_item(TableName="own", Item=item)
    reader.delete_table(TableName="own")
    owner.create_table(**{**create, "TableName": "own"})
    refused("AccessDeniedException", "MODIFY", reader.put_item, TableName="own", Item=item)
    for name in (table, "own"):
        owner.delete_table(TableName=name)


def system_tables():
    """System tables as items: what a role may read by CQL, and settings that superusers change."""
    owner, reader = dynamodb("cassandra", secret("cassandra")), dynamodb("reader", secret("reader"))
    prefix = ".scylla.alternator."
    # Settings are those of one node.
    node = next(host for host in root.cluster.metadata.all_hosts() if host.address == HOST)
    assert reader.scan(TableName=prefix + "system.local")["Items"][0]["key"] == {"S": "local"}
    refused("AccessDeniedException", "SELECT", reader.scan, TableName=prefix + "system_auth.roles")
    roles = owner.query(TableName=prefix + "system_auth.roles", KeyConditionExpression="#r = :r",
                        ExpressionAttributeNames={"#r": "role"}, ExpressionAttributeValues={":r": {"S": "reader"}})["Items"]  # fmt: skip
    assert [item["can_login"] for item in roles] == [{"BOOL": True}], roles
    change = {"TableName": prefix + "system.config", "Key": {"name": {"S": "alternator_warn_authorization"}},
              "UpdateExpression": "SET #v = :v", "ExpressionAttributeNames": {"#v": "value"},
              "ExpressionAttributeValues": {":v": {"S": "true"}}}  # fmt: skip
    refused("ResourceNotFoundException", "alternator_allow_system_table_write", owner.update_item, **change)
    root.execute("UPDATE system.config SET value = 'true' WHERE name = 'alternator_allow_system_table_write'", host=node)
    deadline = time.monotonic() + 10
    while True:
        try:
            owner.update_item(**change)
            break
        except owner.exceptions.ResourceNotFoundException:
            assert time.monotonic() < deadline, "the option does not come into effect"
            time.sleep(0.1)
    shown = root.execute("SELECT value FROM system.config WHERE name = 'alternator_warn_authorization'", host=node).one()
    assert shown.value == "true", shown
    refused("AccessDeniedException", "", reader.update_item, **change)
    for name in ("alternator_warn_authorization", "alternator_allow_system_table_write"):
        root.execute(f"UPDATE system.config SET value = 'false' WHERE name = '{name}'", host=node)


check("logins", logins)
check("permissions", permissions)
check("masks of columns", masks)
check("signatures", signatures)
check("presigned requests", presigned)
check("grants of the DynamoDB API", grants)
check("system tables of the DynamoDB API", system_tables)
for statement in ("DROP KEYSPACE logins", "DROP ROLE reader", "DROP ROLE nobody", "DROP ROLE locked"):
    root.execute(statement)
for cluster in clusters:
    cluster.shutdown()
finish()
