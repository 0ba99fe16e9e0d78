"""Vector indexes of the DynamoDB API with the AWS SDK for Python: `vectors.py HOST CQL_PORT torc`.

Random vectors around a few centres; the results of SearchVectors are compared with the distances to all of them, in memory and on disk, through every node.
Indexes are made with the table and added to it, items come and go by each kind of write, and a backup brings its indexes back.
"""

import array
import math
import os
import random
import sys
import time
import uuid

import boto3
from botocore.config import Config

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from aws import refused  # noqa: E402
from checks import check, finish  # noqa: E402

HOST = sys.argv[1]
PORT = int(os.environ.get("TEST_DYNAMODB_PORT", "8000"))
DIMENSIONS, ITEMS, QUERIES, TOP = 24, 1_200, 25, 10
WAIT_SECONDS = 90

random.seed(int(os.environ.get("TEST_SEED", "1")))
CENTRES = [[random.uniform(-1, 1) for _ in range(DIMENSIONS)] for _ in range(8)]
start, last = HOST.rsplit(".", 1)
# Any node answers for all.
nodes = [
    boto3.client(
        "dynamodb", endpoint_url=f"http://{start}.{int(last) + at}:{PORT}", region_name="us-east-1", aws_access_key_id="any",
        aws_secret_access_key="any", config=Config(retries={"max_attempts": 2}),
    )
    for at in range(int(os.environ.get("TEST_NODES", "1")))
]  # fmt: skip
client = nodes[0]


def vector():
    centre = random.choice(CENTRES)
    return array.array("f", [component + random.gauss(0, 0.3) for component in centre]).tolist()


def listed(components):
    return [{"N": repr(component)} for component in components]


def score(function, a, b):
    dot = sum(x * y for x, y in zip(a, b))
    if function == "DOT_PRODUCT":
        return dot
    if function == "EUCLIDEAN":
        return math.dist(a, b)
    return 1 - dot / (math.hypot(*a) * math.hypot(*b))


def definition(name, function, **others):
    return {
        "IndexName": name, "VectorAttribute": {"AttributeName": "v"}, "Dimensions": DIMENSIONS, "DistanceFunction": function,
        "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]}, **others,
    }  # fmt: skip


def create(*indexes):
    name = "t_" + uuid.uuid4().hex[:12]
    definitions = [("p", "S"), ("tenant", "S"), ("kind", "N")][: 3 if any("SearchSchema" in one for one in indexes) else 1]
    client.create_table(
        TableName=name, BillingMode="PAY_PER_REQUEST", KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": kind} for one, kind in definitions],
        **({"VectorIndexes": list(indexes)} if indexes else {}),
    )  # fmt: skip
    for node in nodes:
        node.get_waiter("table_exists").wait(TableName=name)
        for index in indexes:
            ready(node, name, index["IndexName"])
    return name


def ready(node, table, index):
    """Waits as AWS's guide says: until the index is active, and does not backfill."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        indexes = node.describe_table(TableName=table)["Table"].get("VectorIndexes", [])
        found = [one for one in indexes if one["IndexName"] == index]
        if found and found[0]["IndexStatus"] == "ACTIVE" and not found[0].get("Backfilling"):
            return found[0]
        assert time.monotonic() < deadline, indexes
        time.sleep(0.1)


def item(at, components):
    return {
        "p": {"S": str(at)}, "tenant": {"S": f"t{at % 5}"}, "kind": {"N": str(at % 3)}, "title": {"S": f"item {at}"},
        "v": {"L": listed(components)},
    }  # fmt: skip


def write(table, wanted):
    made = {at: vector() for at in wanted}
    items = [{"PutRequest": {"Item": item(at, components)}} for at, components in made.items()]
    for at in range(0, len(items), 25):
        answer = client.batch_write_item(RequestItems={table: items[at : at + 25]})
        assert not answer["UnprocessedItems"]
    return made


def recall(table, index, function, known, passes=lambda at: True, **condition):
    """The part of the nearest that is found, with their scores in order."""
    hits = wanted = 0
    for at in range(QUERIES):
        target = vector()
        answer = nodes[at % len(nodes)].search_vectors(
            TableName=table, IndexName=index, SearchVector=listed(target), TopK=TOP, **condition
        )
        results = answer["SearchResults"]
        found = [int(result["Item"]["p"]["S"]) for result in results]
        scores = [result["Score"] for result in results]
        assert scores == sorted(scores, reverse=function == "DOT_PRODUCT"), scores
        for one, given in zip(found, scores):
            assert passes(one) and one in known, one
            assert math.isclose(given, score(function, target, known[one]), rel_tol=1e-4, abs_tol=1e-5)
        order = sorted(filter(passes, known), key=lambda one: score(function, target, known[one]), reverse=function == "DOT_PRODUCT")
        assert len(found) == len(set(found)) == min(TOP, len(order))
        hits += len(set(found) & set(order[:TOP]))
        wanted += min(TOP, len(order))
    return hits / wanted


FUNCTIONS = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")
SCHEMA = [
    {"AttributeName": "tenant", "SearchSchemaElementType": "HASH"},
    {"AttributeName": "kind", "SearchSchemaElementType": "INLINE_FILTER"},
]


def searches():
    table = create(*[definition(f"by_{function}", function) for function in FUNCTIONS], definition("schema", "COSINE", SearchSchema=SCHEMA))
    shown = ready(client, table, "schema")
    assert shown["SearchSchema"] == SCHEMA and shown["Dimensions"] == DIMENSIONS
    known = write(table, range(ITEMS))
    conditions = {
        "SearchConditionExpression": "tenant = :t AND kind = :k",
        "ExpressionAttributeValues": {":t": {"S": "t2"}, ":k": {"N": "1"}},
    }
    for where in ("in memory", "on disk"):
        if where == "on disk":
            # A backup is a snapshot, which every node flushes the table for.
            client.delete_backup(BackupArn=backed_up(table))
            # And some of both.
            known.update(write(table, range(0, ITEMS, 7)))
        for function in FUNCTIONS:
            part = recall(table, f"by_{function}", function, known)
            assert part >= 0.95, (where, function, part)
        part = recall(table, "schema", "COSINE", known, lambda at: at % 5 == 2 and at % 3 == 1, **conditions)
        assert part >= 0.95, (where, "filtered", part)
    client.delete_table(TableName=table)


def writes():
    table = create(definition("near", "EUCLIDEAN"))
    target = [0.0] * DIMENSIONS

    def near(**others):
        answer = client.search_vectors(TableName=table, IndexName="near", SearchVector=listed(target), TopK=5, **others)
        return [(result["Item"].get("p", {}).get("S"), round(result["Score"], 3)) for result in answer["SearchResults"]]

    def at(distance):
        return [distance] + [0.0] * (DIMENSIONS - 1)

    client.put_item(TableName=table, Item={"p": {"S": "a"}, "v": {"L": listed(at(1.0))}, "title": {"S": "x"}, "hidden": {"S": "y"}})
    client.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": {"p": {"S": "b"}, "v": {"L": listed(at(2.0))}}}}])
    client.put_item(TableName=table, Item={"p": {"S": "none"}})
    assert near() == [("a", 1.0), ("b", 2.0)]
    client.update_item(TableName=table, Key={"p": {"S": "a"}}, UpdateExpression="SET v[0] = :x", ExpressionAttributeValues={":x": {"N": "3"}})
    assert near() == [("b", 2.0), ("a", 3.0)], "the vector of before does not count"
    client.execute_statement(Statement=f'UPDATE "{table}" REMOVE v WHERE p = \'b\'')
    assert near() == [("a", 3.0)]
    shown = client.search_vectors(TableName=table, IndexName="near", SearchVector=listed(target), TopK=1, ReturnConsumedCapacity="TOTAL")
    assert shown["SearchResults"][0]["Item"] == {"p": {"S": "a"}, "title": {"S": "x"}}, "the vector is left out, and what is not projected"
    assert shown["ConsumedCapacity"]["VectorSearchRequestBytes"] >= 1024
    assert near(ProjectionExpression="v") == [(None, 3.0)]
    client.delete_item(TableName=table, Key={"p": {"S": "a"}})
    assert near() == []
    refused("ValidationException", "Invalid size for parameter v, Expected: 24, Actual: 1 IndexName: near", client.put_item,
            TableName=table, Item={"p": {"S": "c"}, "v": {"L": [{"N": "1"}]}})  # fmt: skip
    refused("ValidationException", "The table does not have the specified index: far", client.search_vectors,
            TableName=table, IndexName="far", SearchVector=listed(target), TopK=1)  # fmt: skip
    refused("ValidationException", "does not match vector index dimension 24", client.search_vectors,
            TableName=table, IndexName="near", SearchVector=[{"N": "1"}], TopK=1)  # fmt: skip
    refused("ValidationException", "Query operation not supported on this index type.", client.query, TableName=table, IndexName="near",
            KeyConditionExpression="p = :p", ExpressionAttributeValues={":p": {"S": "a"}})  # fmt: skip
    refused("ResourceNotFoundException", "not found", client.search_vectors,
            TableName="nothing", IndexName="near", SearchVector=listed(target), TopK=1)  # fmt: skip
    client.delete_table(TableName=table)


def indexes_come_and_go():
    table = create()
    known = write(table, range(300))
    added = {"Create": definition("added", "COSINE")}
    client.update_table(TableName=table, VectorIndexUpdates=[added])
    refused("ValidationException", "already exists", client.update_table, TableName=table, VectorIndexUpdates=[added])
    for node in nodes:
        ready(node, table, "added")
    assert recall(table, "added", "COSINE", known) >= 0.95, "the items of before are in it"
    client.update_table(TableName=table, VectorIndexUpdates=[{"Delete": {"IndexName": "added"}}])
    assert "VectorIndexes" not in client.describe_table(TableName=table)["Table"]
    refused("ValidationException", "does not have the specified index", client.search_vectors,
            TableName=table, IndexName="added", SearchVector=listed(vector()), TopK=1)  # fmt: skip
    client.delete_table(TableName=table)


def backed_up(table):
    """The ARN of a backup, once it is available."""
    backup = client.create_backup(TableName=table, BackupName="vectors")["BackupDetails"]["BackupArn"]
    deadline = time.monotonic() + WAIT_SECONDS
    while client.describe_backup(BackupArn=backup)["BackupDescription"]["BackupDetails"]["BackupStatus"] != "AVAILABLE":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return backup


def backups():
    table = create(definition("near", "COSINE"), definition("schema", "EUCLIDEAN", SearchSchema=SCHEMA))
    known = write(table, range(300))
    backup = backed_up(table)
    described = client.describe_backup(BackupArn=backup)["BackupDescription"]
    features = described["SourceTableFeatureDetails"]["VectorIndexes"]
    assert sorted(one["IndexName"] for one in features) == ["near", "schema"]
    client.delete_table(TableName=table)
    restored = table + "_2"
    client.restore_table_from_backup(TargetTableName=restored, BackupArn=backup, VectorIndexOverride=[definition("near", "COSINE")])
    client.get_waiter("table_exists").wait(TableName=restored, WaiterConfig={"Delay": 1, "MaxAttempts": WAIT_SECONDS})
    ready(client, restored, "near")
    assert [one["IndexName"] for one in client.describe_table(TableName=restored)["Table"]["VectorIndexes"]] == ["near"]
    assert recall(restored, "near", "COSINE", known) >= 0.95
    client.delete_table(TableName=restored)
    client.delete_backup(BackupArn=backup)


check("searches, in memory and on disk", searches)
check("writes of each kind", writes)
check("indexes come and go", indexes_come_and_go)
check("backups have their vector indexes", backups)
finish()
