"""Streams of the DynamoDB API with the AWS SDK for Python: `streams.py HOST CQL_PORT torc`.

Concurrent writes of all kinds through all nodes, while readers follow the shards, each page from another node: the records, replayed, are the table,
each once and in order.
"""

import concurrent.futures
import decimal
import itertools
import os
import random
import sys
import threading
import time
import uuid

import boto3
from boto3.dynamodb.types import TypeDeserializer
from botocore.config import Config
from botocore.exceptions import ClientError

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from aws import refused  # noqa: E402
from checks import check, finish  # noqa: E402

HOST = sys.argv[1]
PORT = int(os.environ.get("TEST_DYNAMODB_PORT", "8000"))
NODES = int(os.environ.get("TEST_NODES", "1"))
SEED = int(os.environ.get("TEST_SEED", "1"))
WRITERS, WRITES = 4, 60
# Records are shown when they are this old with torc dev, and something for a busy machine.
WAIT_SECONDS = 30


def addresses():
    start, last = HOST.rsplit(".", 1)
    return [f"{start}.{int(last) + at}" for at in range(NODES)]


def clients(service):
    """A client for each node."""
    options = {
        "region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "any",
        "config": Config(retries={"max_attempts": 4}, max_pool_connections=32),
    }  # fmt: skip
    return [boto3.client(service, endpoint_url=f"http://{address}:{PORT}", **options) for address in addresses()]


tables, streams = clients("dynamodb"), clients("dynamodbstreams")
table_api, stream_api = tables[0], streams[0]
turn = itertools.count()
read_value = TypeDeserializer().deserialize


def any_of(apis):
    """The client of the next node."""
    return apis[next(turn) % len(apis)]


def new_table(view="NEW_AND_OLD_IMAGES"):
    name = "s_" + uuid.uuid4().hex[:12]
    specification = {"StreamEnabled": True, "StreamViewType": view} if view else {"StreamEnabled": False}
    table_api.create_table(
        TableName=name, BillingMode="PAY_PER_REQUEST", StreamSpecification=specification,
        AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}, {"AttributeName": "c", "AttributeType": "N"}],
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "c", "KeyType": "RANGE"}],
    )  # fmt: skip
    table_api.get_waiter("table_exists").wait(TableName=name)
    return name


def arn_of(table):
    return table_api.describe_table(TableName=table)["Table"]["LatestStreamArn"]


def shards_of(arn, page=100):
    """All shards of a stream, by pages."""
    found, more = [], {}
    while True:
        description = any_of(streams).describe_stream(StreamArn=arn, Limit=page, **more)["StreamDescription"]
        found += description["Shards"]
        if "LastEvaluatedShardId" not in description:
            return found
        more = {"ExclusiveStartShardId": description["LastEvaluatedShardId"]}


def iterator(arn, shard, kind, number=None):
    more = {"SequenceNumber": number} if number else {}
    request = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": kind, **more}
    return any_of(streams).get_shard_iterator(**request)["ShardIterator"]


class Reader:
    """Follows all shards of a stream."""

    def __init__(self, arn, kind="TRIM_HORIZON"):
        self.arn = arn
        self.iterators = {shard["ShardId"]: iterator(arn, shard, kind) for shard in shards_of(arn)}
        self.records = {shard: [] for shard in self.iterators}

    def poll(self, limit=1000):
        """Reads a page of each shard; how many records there were."""
        count = 0
        for shard, place in list(self.iterators.items()):
            page = any_of(streams).get_records(ShardIterator=place, Limit=limit)
            assert len(page["Records"]) <= limit
            self.records[shard] += page["Records"]
            count += len(page["Records"])
            if "NextShardIterator" in page:
                self.iterators[shard] = page["NextShardIterator"]
            else:
                del self.iterators[shard]
        return count

    def all(self):
        """All records, those of each shard in order."""
        return [record for shard in self.records.values() for record in shard]

    def wait(self, wanted):
        """Polls until there are so many records, and no more come."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.all()) < wanted:
            assert time.monotonic() < deadline, f"{len(self.all())} of {wanted} records"
            self.poll()
            time.sleep(0.05)
        return self.all()


def put(table, p, c, **attributes):
    item = {"p": {"S": p}, "c": {"N": str(c)}, **{name: {"S": value} for name, value in attributes.items()}}
    any_of(tables).put_item(TableName=table, Item=item)


def descriptions():
    table = new_table("NEW_IMAGE")
    described = table_api.describe_table(TableName=table)["Table"]
    assert described["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    arn = described["LatestStreamArn"]
    assert arn.endswith(f":table/{table}/stream/{described['LatestStreamLabel']}"), arn
    stream = stream_api.describe_stream(StreamArn=arn)["StreamDescription"]
    assert (stream["StreamStatus"], stream["StreamViewType"], stream["TableName"]) == ("ENABLED", "NEW_IMAGE", table)
    assert stream["KeySchema"] == described["KeySchema"]
    assert abs(stream["CreationRequestDateTime"].timestamp() - time.time()) < 60
    shards = shards_of(arn)
    assert shards == shards_of(arn, 1) and len({shard["ShardId"] for shard in shards}) == len(shards)
    assert all(28 <= len(shard["ShardId"]) <= 65 for shard in shards)
    assert stream_api.list_streams(TableName=table)["Streams"] == [
        {"StreamArn": arn, "TableName": table, "StreamLabel": described["LatestStreamLabel"]}
    ]
    found, more = [], {}
    while True:
        page = any_of(streams).list_streams(Limit=1, **more)
        found += [one["StreamArn"] for one in page["Streams"]]
        if "LastEvaluatedStreamArn" not in page:
            break
        more = {"ExclusiveStartStreamArn": page["LastEvaluatedStreamArn"]}
    assert arn in found and len(found) == len(set(found))
    without = new_table(None)
    assert "LatestStreamArn" not in table_api.describe_table(TableName=without)["Table"]


def write(rng, table):
    """One random write of a few items, by one of the ways that there are."""
    api = any_of(tables)

    def key():
        return {"p": {"S": rng.choice("abcdefgh")}, "c": {"N": str(rng.randrange(3))}}

    def item():
        more = {name: rng.choice([{"S": "x"}, {"N": "1"}, {"SS": ["y", "z"]}]) for name in rng.sample(["u", "v", "w"], rng.randrange(3))}
        return {**key(), **more}

    def update():
        return {
            "TableName": table, "Key": key(), "UpdateExpression": f"ADD n :one REMOVE {rng.choice('uvw')}",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }  # fmt: skip

    def batch():
        items = {str(one["p"]) + str(one["c"]): one for one in (item() for _ in range(5))}
        requests = [{"PutRequest": {"Item": one}} for one in items.values()]
        while requests:
            requests = api.batch_write_item(RequestItems={table: requests})["UnprocessedItems"].get(table)

    def transaction():
        first, second = {"p": {"S": "t1"}, "c": {"N": "1"}}, {"p": {"S": "t2"}, "c": {"N": "1"}}
        more = update()
        more["Key"] = first
        actions = [{"Update": more}, rng.choice([{"Delete": {"TableName": table, "Key": second}}, {"Put": {"TableName": table, "Item": second}}])]
        api.transact_write_items(TransactItems=actions)

    def statement():
        p, c = key()["p"]["S"], rng.randrange(3)
        api.execute_statement(Statement=rng.choice([
            f"INSERT INTO \"{table}\" VALUE {{'p': '{p}', 'c': {c}, 'q': 1}}", f"DELETE FROM \"{table}\" WHERE p = '{p}' AND c = {c}",
        ]))  # fmt: skip

    act = rng.choice([
        lambda: api.put_item(TableName=table, Item=item()),
        lambda: api.put_item(TableName=table, Item=item(), ConditionExpression="attribute_not_exists(p)"),
        lambda: api.delete_item(TableName=table, Key=key()),
        lambda: api.update_item(**update()),
        batch, transaction, statement,
    ])  # fmt: skip
    try:
        act()
    except ClientError as error:
        expected = ("ConditionalCheckFailedException", "TransactionCanceledException", "DuplicateItemException", "TransactionConflictException")
        assert error.response["Error"]["Code"] in expected, error


def scan(table):
    pages = table_api.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return {plain_key(item): plain(item) for page in pages for item in page["Items"]}


def plain(item):
    return None if item is None else {name: read_value(value) for name, value in item.items()}


def plain_key(item):
    return item["p"]["S"], decimal.Decimal(item["c"]["N"])


def replayed_streams_are_the_table():
    table = new_table()
    arn = arn_of(table)
    reader, done = Reader(arn), threading.Event()

    def writes(at):
        rng = random.Random(SEED * 100 + at)
        for _ in range(WRITES):
            write(rng, table)

    def reads():
        while not done.is_set():
            reader.poll(limit=random.Random(len(reader.all())).choice([1, 5, 1000]))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        reading = pool.submit(reads)
        for writer in [pool.submit(writes, at) for at in range(WRITERS)]:
            writer.result()
        done.set()
        reading.result()
    # The last of each shard, so that all before it were seen.
    put(table, "end", 0)
    deadline = time.monotonic() + WAIT_SECONDS
    while not any(record["dynamodb"]["Keys"]["p"] == {"S": "end"} for record in reader.all()):
        assert time.monotonic() < deadline, "the last record does not come"
        reader.poll()
        time.sleep(0.05)
    while reader.poll():
        pass
    records, copy = reader.all(), {}
    assert len({record["eventID"] for record in records}) == len(records) > WRITES
    for shard in reader.records.values():
        numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in shard]
        assert numbers == sorted(set(numbers)), "numbers rise"
    for record in records:
        inner, key = record["dynamodb"], plain_key(record["dynamodb"]["Keys"])
        old, new = plain(inner.get("OldImage")), plain(inner.get("NewImage"))
        assert old == copy.get(key), f"{record} behind {copy.get(key)}"
        assert old != new and record["eventName"] == {(False, True): "INSERT", (True, True): "MODIFY", (True, False): "REMOVE"}[
            (old is not None, new is not None)]  # fmt: skip
        assert (record["eventSource"], record["eventVersion"], "userIdentity" in record) == ("aws:dynamodb", "1.1", False)
        copy[key] = new
    items = scan(table)
    assert {key: item for key, item in copy.items() if item is not None} == items and len(items) > 5
    # A second reader finds the same, from the beginning and from any record on.
    again = Reader(arn)
    again.wait(len(records))
    assert again.records == reader.records
    for shard in shards_of(arn):
        known = reader.records[shard["ShardId"]]
        for at in range(0, len(known), max(1, len(known) // 5)):
            number = known[at]["dynamodb"]["SequenceNumber"]
            for kind, start in (("AT_SEQUENCE_NUMBER", at), ("AFTER_SEQUENCE_NUMBER", at + 1)):
                found = any_of(streams).get_records(ShardIterator=iterator(arn, shard, kind, number))["Records"]
                assert found == known[start : start + len(found)] and (found or start == len(known))


def latest_records_are_those_of_later():
    table = new_table("KEYS_ONLY")
    put(table, "before", 1)
    # Another node's clock may be a little behind.
    time.sleep(0.05)
    reader = Reader(arn_of(table), "LATEST")
    for at in range(5):
        put(table, "later", at)
    records = reader.wait(5)
    assert [plain_key(record["dynamodb"]["Keys"]) for record in records] == [("later", at) for at in range(5)]
    assert all(set(record["dynamodb"]) & {"NewImage", "OldImage"} == set() for record in records)


def disabled_streams_end():
    table = new_table("KEYS_ONLY")
    put(table, "a", 1)
    arn = arn_of(table)
    refused("ValidationException", "already has an enabled stream", table_api.update_table, TableName=table,
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})  # fmt: skip
    table_api.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
    put(table, "a", 2)
    assert stream_api.describe_stream(StreamArn=arn)["StreamDescription"]["StreamStatus"] == "DISABLED"
    table_api.update_table(TableName=table, StreamSpecification={"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"})
    put(table, "a", 3)
    assert arn != arn_of(table) and len(stream_api.list_streams(TableName=table)["Streams"]) == 2
    old, new = Reader(arn), Reader(arn_of(table))
    new.wait(1)
    deadline = time.monotonic() + WAIT_SECONDS
    while old.iterators:
        assert time.monotonic() < deadline, "the shards of a disabled stream end"
        old.poll()
    keys = [[plain_key(record["dynamodb"]["Keys"]) for record in reader.all()] for reader in (old, new)]
    assert keys == [[("a", 1)], [("a", 3)]], keys


def refusals():
    table = new_table("KEYS_ONLY")
    arn = arn_of(table)
    shard = shards_of(arn)[0]
    refused("ResourceNotFoundException", "not found", stream_api.describe_stream, StreamArn=arn[:-1] + "x")
    refused("ResourceNotFoundException", "not found", stream_api.get_shard_iterator, StreamArn=arn,
            ShardId="shardId-00000000000000000000-00000000", ShardIteratorType="LATEST")  # fmt: skip
    refused("ValidationException", "", stream_api.get_shard_iterator, StreamArn=arn, ShardId=shard["ShardId"],
            ShardIteratorType="AT_SEQUENCE_NUMBER")  # fmt: skip
    refused("ValidationException", "Invalid ShardIterator", stream_api.get_records, ShardIterator=arn + "|1|x")
    for place in ("0.0.0.0.0", f"0.0.{int(time.time() * 1e6)}.0.0"):
        refused("ExpiredIteratorException", "", stream_api.get_records, ShardIterator=f"{arn}|1|{place}")
    now = int(time.time() * 1e6)
    refused("ValidationException", "Invalid ShardIterator", stream_api.get_records, ShardIterator=f"{arn}|1|{now}.4000000000.{now}.0.0")
    # The latest places that there could be are behind everything.
    page = stream_api.get_records(ShardIterator=f"{arn}|1|{now}.0.9999999999999999.18446744073709551615.4294967295")
    assert page["Records"] == [] and page["NextShardIterator"]


check("descriptions", descriptions)
check("replayed streams are the table", replayed_streams_are_the_table)
check("latest records are those of later", latest_records_are_those_of_later)
check("disabled streams end", disabled_streams_end)
check("refusals", refusals)
finish()
