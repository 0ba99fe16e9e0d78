"""Exports and imports of the DynamoDB API with the AWS SDK for Python: `exports.py HOST CQL_PORT torc`.

TEST_EXPORTS is the directory that the node's option alternator_export_directory names. A table is exported, its files are read as those of AWS
are, and imported into another table, which must be the same; files that AWS could have written, CSV, damaged files, and requests that lead out
of the directory. With TEST_S3 the node uses an S3 at this address, which this program serves from TEST_EXPORTS.
"""

import base64
import datetime
import decimal
import gzip
import hashlib
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Mapping

import boto3
import zstandard
from amazon.ion import simpleion
from amazon.ion.simple_types import IonPyBool, IonPyNull
from boto3.dynamodb.types import Binary, TypeDeserializer
from botocore.config import Config

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import s3  # noqa: E402
from aws import refused  # noqa: E402
from checks import check, finish  # noqa: E402

HOST = sys.argv[1]
PORT = int(os.environ.get("TEST_DYNAMODB_PORT", "8000"))
DIRECTORY = os.environ["TEST_EXPORTS"]
S3 = os.environ.get("TEST_S3")
WAIT_SECONDS = 60
OPTIONS = {
    "endpoint_url": f"http://{HOST}:{PORT}",
    "region_name": "us-east-1",
    "aws_access_key_id": "any",
    "aws_secret_access_key": "any",
    "config": Config(retries={"max_attempts": 2}),
}
client = boto3.client("dynamodb", **OPTIONS)
resource = boto3.resource("dynamodb", **OPTIONS)


class Deserializer(TypeDeserializer):
    """Takes numbers with more digits than are significant, as AWS sends them, which boto3's refuses: 1 with 125 zeros."""

    def _deserialize_n(self, value):
        return decimal.Decimal(value)


KEYS = {
    "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}, {"AttributeName": "c", "AttributeType": "N"}],
    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "c", "KeyType": "RANGE"}],
    "BillingMode": "PAY_PER_REQUEST",
}


def name():
    return "t_" + uuid.uuid4().hex[:12]


def bucket():
    """A bucket, which is a folder."""
    made = "bucket-" + uuid.uuid4().hex[:8]
    os.mkdir(os.path.join(DIRECTORY, made))
    return made


def put_file(bucket_name, key, content):
    path = os.path.join(DIRECTORY, bucket_name, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def done(describe, status):
    """A description once it says that all is over."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        description = describe()
        if description[status] != "IN_PROGRESS":
            return description
        assert time.monotonic() < deadline, description
        time.sleep(0.05)


def export(arn, **parameters):
    begun = client.export_table_to_point_in_time(TableArn=arn, **parameters)["ExportDescription"]
    assert begun["ExportStatus"] in ("IN_PROGRESS", "COMPLETED") and begun["ExportArn"].startswith(arn + "/export/"), begun
    return done(lambda: client.describe_export(ExportArn=begun["ExportArn"])["ExportDescription"], "ExportStatus")


def load(table, bucket_name, prefix="", keys=None, **parameters):
    """An import, from its beginning to its end."""
    source = {"S3Bucket": bucket_name, **({"S3KeyPrefix": prefix} if prefix else {})}
    begun = client.import_table(
        S3BucketSource=source, TableCreationParameters={"TableName": table, **(keys or KEYS)}, **({"InputFormat": "DYNAMODB_JSON"} | parameters)
    )["ImportTableDescription"]
    assert begun["ImportArn"].startswith(begun["TableArn"] + "/import/"), begun
    return done(lambda: client.describe_import(ImportArn=begun["ImportArn"])["ImportTableDescription"], "ImportStatus")


def counts(description):
    return tuple(description[count] for count in ("ProcessedItemCount", "ImportedItemCount", "ErrorCount"))


def all_items(table):
    found = []
    for page in client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        found.extend(page["Items"])
    return sorted(found, key=lambda item: (item["p"]["S"], decimal.Decimal(item["c"]["N"])))


def value(rng, depth=0):
    kinds = ["text", "number", "bytes", "bool", "null", "strings", "numbers", "blobs"] + (["list", "map"] if depth < 3 else [])
    kind = rng.choice(kinds)
    if kind == "text":
        return rng.choice(["", "plain", "line\nbreak", 'quo"te', "snow\u2603", "\u0000\u0001", "x" * 3000])
    if kind == "number":
        return rng.choice([decimal.Decimal("0"), decimal.Decimal("-1.5"), decimal.Decimal("1E+125"), decimal.Decimal(10**37)])
    if kind == "bytes":
        return Binary(rng.randbytes(rng.choice([0, 1, 100])))
    if kind in ("strings", "numbers", "blobs"):
        make = {"strings": str, "numbers": decimal.Decimal, "blobs": lambda n: Binary(bytes([n]))}[kind]
        return {make(n) for n in range(rng.randint(1, 4))}
    if kind == "list":
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == "map":
        return {f"k{n}": value(rng, depth + 1) for n in range(rng.randint(0, 3))}
    return None if kind == "null" else rng.random() < 0.5


def new_table(items):
    table = resource.create_table(TableName=name(), **KEYS)
    table.wait_until_exists()
    rng = random.Random(7)
    with table.batch_writer() as batch:
        for at in range(items):
            batch.put_item(Item={"p": f"p{at % 7}", "c": at, **{f"a{n}": value(rng) for n in range(4)}})
    return table


def there_and_back():
    table, place = new_table(700), bucket()
    arn = client.describe_table(TableName=table.name)["Table"]["TableArn"]
    description = export(arn, S3Bucket=place, S3Prefix="2026/nov", ExportFormat="DYNAMODB_JSON", ExportTime=datetime.datetime.now())
    assert description["ExportStatus"] == "COMPLETED" and description["ItemCount"] == 700, description
    assert description["EndTime"] >= description["StartTime"] and description["BilledSizeBytes"] > 0
    key = description["ExportManifest"]
    assert key.startswith("2026/nov/AWSDynamoDB/") and key.endswith("/manifest-summary.json"), key

    def read(key):
        with open(os.path.join(DIRECTORY, place, key), "rb") as file:
            return file.read()

    def checksum(key):
        return base64.b64encode(hashlib.md5(read(key)).digest())

    summary = json.loads(read(key))
    assert summary["itemCount"] == 700 and summary["exportArn"] == description["ExportArn"] and summary["outputFormat"] == "DYNAMODB_JSON"
    assert read(key.replace(".json", ".md5")) == checksum(key)
    files_key = summary["manifestFilesS3Key"]
    assert read(files_key.replace(".json", ".md5")) == checksum(files_key)
    lines = []
    for line in read(files_key).splitlines():
        entry = json.loads(line)
        data = read(entry["dataFileS3Key"])
        assert entry["md5Checksum"].encode() == checksum(entry["dataFileS3Key"]) and entry["etag"] == hashlib.md5(data).hexdigest()
        of_file = gzip.decompress(data).splitlines()
        assert len(of_file) == entry["itemCount"]
        lines.extend(json.loads(one)["Item"] for one in of_file)
    items = all_items(table.name)

    def shown(all_of_them):
        return sorted(json.dumps(item, sort_keys=True, default=lambda data: base64.b64encode(data).decode()) for item in all_of_them)

    assert shown(lines) == shown(items) and len(items) == 700
    other = name()
    imported = load(other, place, os.path.dirname(key) + "/data/", InputCompressionType="GZIP")
    assert imported["ImportStatus"] == "COMPLETED" and counts(imported) == (700, 700, 0), imported
    assert imported["ProcessedSizeBytes"] > 0 and imported["TableCreationParameters"]["TableName"] == other
    assert all_items(other) == items
    # The imported table is one like any other.
    resource.Table(other).put_item(Item={"p": "more", "c": 1}, ConditionExpression="attribute_not_exists(p)")
    refused("ConditionalCheckFailedException", "", resource.Table(other).put_item, Item={"p": "p0", "c": 0}, ConditionExpression="attribute_not_exists(p)")


def ion_and_zstd():
    """Ion as the library of Ion reads and writes it, and Zstandard."""
    table, place = new_table(300), bucket()
    arn = client.describe_table(TableName=table.name)["Table"]["TableArn"]
    description = export(arn, S3Bucket=place, ExportFormat="ION")
    assert description["ExportStatus"] == "COMPLETED" and description["ExportFormat"] == "ION" and description["ItemCount"] == 300, description
    folder = os.path.join(DIRECTORY, place, os.path.dirname(description["ExportManifest"]), "data")
    lines = []
    for file in os.listdir(folder):
        assert file.endswith(".ion.gz"), file
        with gzip.open(os.path.join(folder, file)) as data:
            lines.extend(data.read().splitlines())
    assert len(lines) == 300 and all(line.startswith(b"$ion_1_0 {Item:{") for line in lines)

    def plain(value):
        """A value of Ion as the resource of boto3 shows it."""
        kind = [annotation.text for annotation in getattr(value, "ion_annotations", ())]
        if kind:
            return {plain(one) for one in value}
        if isinstance(value, Mapping):
            return {str(key): plain(one) for key, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, IonPyNull):
            return None
        if isinstance(value, (IonPyBool, bool)):
            return bool(value)
        if isinstance(value, bytes):
            return Binary(bytes(value))
        if isinstance(value, str):
            return str(value)
        return decimal.Decimal(value)

    read = [plain(simpleion.loads(line.decode()))["Item"] for line in lines]
    key = lambda item: (item["p"], item["c"])  # noqa: E731
    of_json = Deserializer().deserialize
    wanted = [{name: of_json(one) for name, one in item.items()} for item in all_items(table.name)]
    assert sorted(read, key=key) == sorted(wanted, key=key)
    back = name()
    imported = load(back, place, os.path.dirname(description["ExportManifest"]) + "/data/", InputFormat="ION", InputCompressionType="GZIP")
    assert counts(imported) == (300, 300, 0), imported
    assert all_items(back) == all_items(table.name)
    # The same as that library writes it, packed by another.
    text = "\n".join(simpleion.dumps(simpleion.loads(line.decode()), binary=False) for line in lines)
    put_file(place, "packed/one.ion.zst", zstandard.compress(text.encode(), 19))
    back = name()
    assert counts(load(back, place, "packed/", InputFormat="ION", InputCompressionType="ZSTD")) == (300, 300, 0)
    assert all_items(back) == all_items(table.name)
    put_file(place, "wrong/one.ion", simpleion.dumps({"Item": {"p": "a", "c": 1}}, binary=True))
    put_file(place, "wrong/two.ion", b"$ion_1_0 {Item:{p:\"a\",c:2026-11-28T}}\n$ion_1_0 {Item:{p:\"a\",c:2}}\n")
    assert counts(load(name(), place, "wrong/", InputFormat="ION"))[1:] == (1, 2)


def points_in_time():
    table, place = new_table(100), bucket()
    arn = client.describe_table(TableName=table.name)["Table"]["TableArn"]
    on = {"PointInTimeRecoveryEnabled": True}
    client.update_continuous_backups(TableName=table.name, PointInTimeRecoverySpecification=on)

    def state():
        return client.describe_continuous_backups(TableName=table.name)["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]

    incremental = {"ExportType": "INCREMENTAL_EXPORT", "S3Bucket": place}
    now = datetime.datetime.now(datetime.timezone.utc)
    early = {"ExportFromTime": now - datetime.timedelta(hours=1), "ExportToTime": now}
    refused("InvalidExportTimeException", "", client.export_table_to_point_in_time, TableArn=arn, IncrementalExportSpecification=early, **incremental)
    short = {"ExportFromTime": state()["EarliestRestorableDateTime"]}
    refused("InvalidExportTimeException", "15 minutes", client.export_table_to_point_in_time, TableArn=arn, IncrementalExportSpecification=short, **incremental)
    refused("ValidationException", "INCREMENTAL_EXPORT", client.export_table_to_point_in_time, TableArn=arn, S3Bucket=place, IncrementalExportSpecification=short)


def empty_table():
    table, place = new_table(0), bucket()
    description = export(client.describe_table(TableName=table.name)["Table"]["TableArn"], S3Bucket=place)
    assert description["ExportStatus"] == "COMPLETED" and description["ItemCount"] == 0, description
    key = os.path.dirname(description["ExportManifest"])
    assert counts(load(name(), place, key + "/data/", InputCompressionType="GZIP")) == (0, 0, 0)


def plain_json_and_errors():
    place = bucket()
    good = [{"Item": {"p": {"S": f"p{at}"}, "c": {"N": str(at)}, "v": {"S": "x"}}} for at in range(250)]
    bad = [b"{", b"[]", b'{"Keys":{}}', b'{"Item":{"p":{"S":"a"}}}', b'{"Item":{"p":{"N":"1"},"c":{"N":"1"}}}',
           b'{"Item":{"p":{"S":""},"c":{"N":"1"}}}', b'{"Item":{"p":{"S":"a"},"c":{"N":"1e999"}}}', b"\xff\xfe",
           json.dumps({"Item": {"p": {"S": "a"}, "c": {"N": "1"}, "v": {"S": "x" * 420_000}}}).encode()]  # fmt: skip
    lines = [json.dumps(one).encode() for one in good[:200]] + bad
    put_file(place, "in/one.json", b"\n".join(lines[::-1]) + b"\n\n\r\n")
    put_file(place, "in/deeper/two.json", b"\r\n".join(json.dumps(one).encode() for one in good[200:]))
    put_file(place, "in/long.json", b"y" * (9 << 20))
    put_file(place, "in/none.json", b"")
    put_file(place, "other.json", json.dumps(good[0]).encode())
    table = name()
    description = load(table, place, "in/", InputCompressionType="NONE")
    assert description["ImportStatus"] == "COMPLETED", description
    assert counts(description) == (250 + len(bad) + 1, 250, len(bad) + 1), description
    assert all_items(table) == sorted((one["Item"] for one in good), key=lambda item: (item["p"]["S"], int(item["c"]["N"])))
    # A prefix may end inside a name.
    assert counts(load(name(), place, "in/on"))[1] == 200
    # A packed file that ends in the middle, and one that is not packed: the readable part is imported.
    packed = gzip.compress(b"\n".join(json.dumps(one).encode() for one in good))
    put_file(place, "gz/cut.json.gz", packed[:-20])
    put_file(place, "gz/plain.json.gz", json.dumps(good[0]).encode())
    put_file(place, "gz/whole.json.gz", gzip.compress(json.dumps({"Item": {"p": {"S": "z"}, "c": {"N": "1"}}}).encode()))
    table = name()
    description = load(table, place, "gz/", InputCompressionType="GZIP")
    assert description["ImportStatus"] == "COMPLETED" and description["ErrorCount"] == 2, description
    assert {"p": {"S": "z"}, "c": {"N": "1"}} in all_items(table)


def bombs():
    place = bucket()
    put_file(place, "bomb.json.gz", gzip.compress(b"\0" * (512 << 20), 9))
    put_file(place, "deep.json.gz", gzip.compress(b'{"Item":{"p":' + b'{"L":[' * 200_000))
    description = load(name(), place, InputCompressionType="GZIP")
    assert description["ImportStatus"] == "COMPLETED" and counts(description) == (2, 0, 2), description
    assert client.list_tables(Limit=1)["TableNames"], "the node lives"


def csv():
    place = bucket()
    indexed = KEYS | {
        "AttributeDefinitions": KEYS["AttributeDefinitions"] + [{"AttributeName": "g", "AttributeType": "N"}],
        "GlobalSecondaryIndexes": [{"IndexName": "by_g", "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                                    "Projection": {"ProjectionType": "ALL"}}],
    }  # fmt: skip
    put_file(place, "a.csv", 'p,c,g,v\na,1,7,"x, ""y"""\r\nb,2,7,5\nc,no,7,x\nd,4\n"e",5,7,""\nf"f,6,7,x\n'.encode())
    table = name()
    description = load(table, place, keys=indexed, InputFormat="CSV")
    assert counts(description) == (6, 3, 3), description
    items = all_items(table)
    assert items == [
        {"p": {"S": "a"}, "c": {"N": "1"}, "g": {"N": "7"}, "v": {"S": 'x, "y"'}},
        {"p": {"S": "b"}, "c": {"N": "2"}, "g": {"N": "7"}, "v": {"S": "5"}},
        {"p": {"S": "e"}, "c": {"N": "5"}, "g": {"N": "7"}, "v": {"S": ""}},
    ], items
    found = client.query(TableName=table, IndexName="by_g", KeyConditionExpression="g = :g", ExpressionAttributeValues={":g": {"N": "7"}})
    assert found["Count"] == 3
    # Two files, whose first lines are items.
    other = bucket()
    put_file(other, "1", b"a;1;x\n")
    put_file(other, "2", b"b;2;y")
    table = name()
    options = {"Csv": {"Delimiter": ";", "HeaderList": ["p", "c", "v"]}}
    description = load(table, other, InputFormat="CSV", InputFormatOptions=options)
    assert counts(description) == (2, 2, 0) and [item["v"]["S"] for item in all_items(table)] == ["x", "y"], description
    put_file(other, "header/1", b"p,p\na,1\n")
    description = load(name(), other, "header/", InputFormat="CSV")
    assert counts(description) == (1, 0, 1), description


def refusals():
    table, place = new_table(1), bucket()
    arn = client.describe_table(TableName=table.name)["Table"]["TableArn"]
    if not S3:
        os.symlink("/", os.path.join(DIRECTORY, place, "out"))
        os.symlink("/etc", os.path.join(DIRECTORY, "linked"))

    def export_refused(error, text, **parameters):
        refused(error, text, client.export_table_to_point_in_time, **({"TableArn": arn, "S3Bucket": place} | parameters))

    for wrong in ("..", "/", "a/b", ".torc", "../x"):
        export_refused("ValidationException", "alternator_export_directory", S3Bucket=wrong)
    for wrong in ("..", "a/../../b", "/etc", "a//b", "./a"):
        export_refused("ValidationException", "S3Prefix", S3Prefix=wrong)
    if not S3:
        export_refused("ValidationException", "symbolic link", S3Prefix="out/tmp")
        export_refused("ValidationException", "symbolic link", S3Bucket="linked")
    export_refused("ValidationException", "IncrementalExportSpecification", ExportType="INCREMENTAL_EXPORT")
    export_refused("ValidationException", "encrypt", S3SseAlgorithm="AES256")
    export_refused("PointInTimeRecoveryUnavailableException", table.name, ExportTime=datetime.datetime(2024, 1, 1))
    export_refused("TableNotFoundException", "Table not found", TableArn=arn + "x")
    failed = export(arn, S3Bucket="no-such-bucket")
    assert (failed["ExportStatus"], failed["FailureCode"]) == ("FAILED", "S3NoSuchBucket"), failed

    def import_refused(error, text, source=None, **parameters):
        given = {"S3BucketSource": {"S3Bucket": place, **(source or {})}, "InputFormat": "CSV",
                 "TableCreationParameters": {"TableName": name(), **KEYS}}  # fmt: skip
        refused(error, text, client.import_table, **(given | parameters))

    before = client.list_tables()["TableNames"]
    import_refused("ValidationException", "S3KeyPrefix", {"S3KeyPrefix": "../" + place})
    import_refused("ValidationException", "S3KeyPrefix", {"S3KeyPrefix": "/etc/passwd"})
    if not S3:
        import_refused("ValidationException", "symbolic link", {"S3KeyPrefix": "out/etc/passwd"})
    import_refused("ResourceInUseException", "already exists", TableCreationParameters={"TableName": table.name, **KEYS})
    assert client.list_tables()["TableNames"] == before, "no table is left of them"
    for prefix in () if S3 else ("", "o"):
        linked = load(name(), place, prefix, InputFormat="CSV")
        assert linked["ImportStatus"] == "FAILED" and "symbolic link" in linked["FailureMessage"], linked
    for bucket_name, code in (("no-such-bucket", "S3NoSuchBucket"), (bucket(), "S3NoSuchKey")):
        failed = load(name(), bucket_name)
        assert (failed["ImportStatus"], failed["FailureCode"]) == ("FAILED", code), failed
    for wrong in (arn, arn + "/export/x", arn + "/export/../../x", arn + "/export/0"):
        refused("ExportNotFoundException", "", client.describe_export, ExportArn=wrong)
        refused("ImportNotFoundException", "", client.describe_import, ImportArn=wrong)


def tokens_and_lists():
    table, place = new_table(3), bucket()
    arn = client.describe_table(TableName=table.name)["Table"]["TableArn"]
    token = uuid.uuid4().hex
    first = client.export_table_to_point_in_time(TableArn=arn, S3Bucket=place, ClientToken=token)["ExportDescription"]
    again = client.export_table_to_point_in_time(TableArn=arn, S3Bucket=place, ClientToken=token)["ExportDescription"]
    assert first["ExportArn"] == again["ExportArn"] and again["ClientToken"] == token
    refused("ExportConflictException", "", client.export_table_to_point_in_time, TableArn=arn, S3Bucket=place, S3Prefix="other", ClientToken=token)
    arns = [first["ExportArn"]] + [export(arn, S3Bucket=place)["ExportArn"] for _ in range(4)]
    listed, more = [], {}
    while True:
        page = client.list_exports(TableArn=arn, MaxResults=2, **more)
        listed.extend(page["ExportSummaries"])
        if "NextToken" not in page:
            break
        more = {"NextToken": page["NextToken"]}
    assert [one["ExportArn"] for one in listed] == sorted(arns), listed
    assert len(os.listdir(os.path.join(DIRECTORY, place, "AWSDynamoDB"))) == 5
    imported = load(name(), place, "AWSDynamoDB/" + first["ExportArn"].rsplit("/", 1)[1] + "/data/", InputCompressionType="GZIP")
    assert counts(imported) == (3, 3, 0)
    found = client.list_imports(TableArn=imported["TableArn"])["ImportSummaryList"]
    assert [one["ImportArn"] for one in found] == [imported["ImportArn"]] and found[0]["ImportStatus"] == "COMPLETED"


if S3:
    s3.serve(DIRECTORY, S3)
check("a table goes out and comes back, by files as AWS lays them out", there_and_back)
check("Ion and Zstandard", ion_and_zstd)
check("exports of points in time", points_in_time)
check("an empty table", empty_table)
check("JSON as it is, and lines that are no items", plain_json_and_errors)
check("files that unpack to far more than they are", bombs)
check("CSV", csv)
check("refusals", refusals)
check("tokens and lists", tokens_and_lists)
finish()
