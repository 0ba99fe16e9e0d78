"""Backups of the DynamoDB API with the AWS SDK for Python: `backups.py HOST CQL_PORT torc`.

A table is backed up, changed and deleted; the table that is restored is the one of the backup, with its indexes. Lists, pages, overrides, and the
errors of AWS. Backups of tables with many items are restored while other clients look at the table, which must not be active half restored.
"""

import datetime
import os
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
WAIT_SECONDS = 90
NO_BACKUP = "arn:aws:dynamodb:us-east-1:000000000000:table/nothing/backup/01489602797149-73d8d5bc"


def client_of(host):
    return boto3.client(
        "dynamodb", endpoint_url=f"http://{host}:{PORT}", region_name="us-east-1", aws_access_key_id="any",
        aws_secret_access_key="any", config=Config(retries={"max_attempts": 2}),
    )  # fmt: skip


client = client_of(HOST)
start, last = HOST.rsplit(".", 1)
# Any node answers for all.
nodes = [client_of(f"{start}.{int(last) + at}") for at in range(int(os.environ.get("TEST_NODES", "1")))]
made = []


def name():
    made.append("t_" + uuid.uuid4().hex[:12])
    return made[-1]


def wait(of, wanted, what):
    """What a function returns once it is wanted."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = of()
        if wanted(found):
            return found
        assert time.monotonic() < deadline, (what, found)
        time.sleep(0.1)


def create(**parameters):
    table = name()
    client.create_table(
        **{
            "TableName": table,
            "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}, {"AttributeName": "c", "AttributeType": "N"},
                                     {"AttributeName": "g", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "c", "KeyType": "RANGE"}],
            "GlobalSecondaryIndexes": [{"IndexName": "by_g", "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                                        "Projection": {"ProjectionType": "ALL"}}],
            "BillingMode": "PAY_PER_REQUEST",
            **parameters,
        }
    )  # fmt: skip
    return table


def fill(table, count, mark="a"):
    batch = [
        {"PutRequest": {"Item": {"p": {"S": f"p{at % 7}"}, "c": {"N": str(at)}, "g": {"S": f"g{at % 3}"}, "v": {"S": mark * 300},
                                 "n": {"M": {"l": {"L": [{"N": "1.5"}, {"BOOL": True}]}, "s": {"SS": ["x", "y"]}}}}}}
        for at in range(count)
    ]  # fmt: skip
    for at in range(0, count, 25):
        left = {table: batch[at : at + 25]}
        while left:
            left = client.batch_write_item(RequestItems=left).get("UnprocessedItems")


def items(table):
    pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return sorted((item for page in pages for item in page["Items"]), key=lambda item: (item["p"]["S"], float(item["c"]["N"])))


def back_up(table, named="nightly"):
    details = client.create_backup(TableName=table, BackupName=named)["BackupDetails"]
    assert details["BackupStatus"] == "CREATING" and details["BackupType"] == "USER" and details["BackupName"] == named, details
    arn = details["BackupArn"]
    assert f":table/{table}/backup/" in arn, arn
    wait(lambda: described(arn)["BackupDetails"], lambda found: found["BackupStatus"] == "AVAILABLE", "backup")
    return arn


def described(arn):
    return client.describe_backup(BackupArn=arn)["BackupDescription"]


def restore(arn, **parameters):
    target = name()
    answer = client.restore_table_from_backup(TargetTableName=target, BackupArn=arn, **parameters)["TableDescription"]
    assert answer["TableStatus"] == "CREATING" and answer["RestoreSummary"]["RestoreInProgress"] is True, answer
    return target


def active(table):
    of = lambda: client.describe_table(TableName=table)["Table"]  # noqa: E731
    return wait(of, lambda found: found["TableStatus"] == "ACTIVE", "restoration")


def whole_life():
    table = create(StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    fill(table, 200)
    client.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ends"})
    client.delete_item(TableName=table, Key={"p": {"S": "p0"}, "c": {"N": "0"}})
    before = items(table)
    assert len(before) == 199
    arn = back_up(table)
    description = described(arn)
    source, features = description["SourceTableDetails"], description["SourceTableFeatureDetails"]
    assert source["TableName"] == table and source["BillingMode"] == "PAY_PER_REQUEST", source
    assert [key["AttributeName"] for key in source["KeySchema"]] == ["p", "c"], source
    assert features["GlobalSecondaryIndexes"][0]["IndexName"] == "by_g", features
    assert features["TimeToLiveDescription"]["AttributeName"] == "ends", features
    assert features["StreamDescription"]["StreamEnabled"] is True, features
    assert description["BackupDetails"]["BackupSizeBytes"] > 0, description
    # What comes later is in the table and not in the backup.
    fill(table, 150, "b")
    client.delete_item(TableName=table, Key={"p": {"S": "p1"}, "c": {"N": "1"}})
    client.put_item(TableName=table, Item={"p": {"S": "new"}, "c": {"N": "1"}})
    assert items(table) != before
    target = restore(arn)
    restored = active(target)
    assert items(target) == before
    summary = restored["RestoreSummary"]
    assert summary["RestoreInProgress"] is False and summary["SourceBackupArn"] == arn, summary
    assert restored["GlobalSecondaryIndexes"][0]["IndexStatus"] == "ACTIVE", restored
    assert "StreamSpecification" not in restored, restored
    assert client.describe_time_to_live(TableName=target)["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED"
    by_index = client.query(TableName=target, IndexName="by_g", KeyConditionExpression="g = :g", ExpressionAttributeValues={":g": {"S": "g1"}})
    assert by_index["Count"] == len([item for item in before if item["g"]["S"] == "g1"]), by_index["Count"]
    # The restored table is one like any other: written, backed up, deleted.
    client.put_item(TableName=target, Item={"p": {"S": "p0"}, "c": {"N": "0"}}, ConditionExpression="attribute_not_exists(p)")
    client.delete_item(TableName=target, Key={"p": {"S": "p2"}, "c": {"N": "2"}})
    changed = items(target)
    again = restore(back_up(target))
    active(again)
    assert items(again) == changed
    # A backup outlives its table.
    client.delete_table(TableName=table)
    late = restore(arn)
    active(late)
    assert items(late) == before


def never_half_restored():
    table = create(GlobalSecondaryIndexes=[{"IndexName": "by_g", "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}])
    fill(table, 2000)
    arn = back_up(table)
    target = restore(arn)
    seen = 0
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            count = client.scan(TableName=target, Select="COUNT", ConsistentRead=True)["Count"]
            break
        except client.exceptions.ResourceNotFoundException:
            seen += 1
        if seen == 1:
            refused("ResourceInUseException", "being created", client.delete_table, TableName=target)
            refused("ResourceInUseException", "being created", client.update_table, TableName=target, BillingMode="PAY_PER_REQUEST")
            refused("ResourceNotFoundException", "not found", client.put_item, TableName=target, Item={"p": {"S": "x"}, "c": {"N": "1"}})
            refused("TableInUseException", "being created", client.create_backup, TableName=target, BackupName="early")
            refused("BackupInUseException", "restored", client.delete_backup, BackupArn=arn)
            refused("TableAlreadyExistsException", target, client.restore_table_from_backup, TargetTableName=target, BackupArn=arn)
        assert time.monotonic() < deadline
    assert seen > 0, "it was active before anything was restored"
    assert len(items(target)) == 2000, count
    client.get_waiter("table_exists").wait(TableName=target, WaiterConfig={"Delay": 1, "MaxAttempts": 5})


def lists():
    first, second = create(), create()
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    arns = [back_up(first, "one"), back_up(first, "two"), back_up(second, "one")]
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    for node in nodes:
        found = node.list_backups(TableName=first)["BackupSummaries"]
        assert [one["BackupArn"] for one in found] == arns[:2], found
        assert found[0]["TableName"] == first and found[0]["BackupName"] == "one", found
    page = client.list_backups(TableName=first, Limit=1)
    assert len(page["BackupSummaries"]) == 1 and page["LastEvaluatedBackupArn"] == arns[0], page
    rest = client.list_backups(TableName=first, Limit=1, ExclusiveStartBackupArn=arns[0])
    assert rest["BackupSummaries"][0]["BackupArn"] == arns[1] and "LastEvaluatedBackupArn" not in rest, rest
    pages = client.get_paginator("list_backups").paginate(PaginationConfig={"PageSize": 1})
    all_pages = [one["BackupArn"] for page in pages for one in page["BackupSummaries"]]
    assert set(arns) <= set(all_pages) and len(all_pages) == len(set(all_pages)), all_pages
    ranged = client.list_backups(TimeRangeLowerBound=begin, TimeRangeUpperBound=end)["BackupSummaries"]
    # Times are whole seconds: those of other tables may be among them.
    assert {one["BackupArn"] for one in ranged if one["TableName"] in (first, second)} == set(arns), ranged
    assert not client.list_backups(TimeRangeLowerBound=end)["BackupSummaries"]
    assert not client.list_backups(TableName=first, BackupType="SYSTEM")["BackupSummaries"]
    assert len(client.list_backups(TableName=first, BackupType="ALL")["BackupSummaries"]) == 2
    deleted = client.delete_backup(BackupArn=arns[0])["BackupDescription"]
    assert deleted["BackupDetails"]["BackupStatus"] == "DELETED", deleted
    assert [one["BackupArn"] for one in client.list_backups(TableName=first)["BackupSummaries"]] == arns[1:2]
    refused("BackupNotFoundException", arns[0], client.describe_backup, BackupArn=arns[0])
    refused("BackupNotFoundException", arns[0], client.delete_backup, BackupArn=arns[0])
    refused("BackupNotFoundException", arns[0], client.restore_table_from_backup, TargetTableName=name(), BackupArn=arns[0])


def overrides():
    table = create(
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("p", "a", "b")],
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {"IndexName": f"by_{key}", "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}
            for key in ("a", "b")
        ],
    )
    client.put_item(TableName=table, Item={"p": {"S": "1"}, "a": {"S": "2"}, "b": {"S": "3"}})
    arn = back_up(table)
    by_b = {"IndexName": "by_b", "KeySchema": [{"AttributeName": "b", "KeyType": "HASH"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}
    target = restore(arn, GlobalSecondaryIndexOverride=[by_b])
    made_table = active(target)
    assert [index["IndexName"] for index in made_table["GlobalSecondaryIndexes"]] == ["by_b"], made_table
    assert {one["AttributeName"] for one in made_table["AttributeDefinitions"]} == {"p", "b"}, made_table
    throughput = {"ReadCapacityUnits": 3, "WriteCapacityUnits": 4}
    target = restore(arn, BillingModeOverride="PROVISIONED", ProvisionedThroughputOverride=throughput, GlobalSecondaryIndexOverride=[])
    made_table = active(target)
    assert made_table["ProvisionedThroughput"]["WriteCapacityUnits"] == 4 and "GlobalSecondaryIndexes" not in made_table, made_table
    other = {**by_b, "IndexName": "other"}
    refused("ValidationException", "other", client.restore_table_from_backup, TargetTableName=name(), BackupArn=arn, GlobalSecondaryIndexOverride=[other])
    refused("ValidationException", "ReadCapacityUnits", client.restore_table_from_backup, TargetTableName=name(), BackupArn=arn, BillingModeOverride="PROVISIONED")


def empty_table():
    arn = back_up(create())
    target = restore(arn)
    active(target)
    assert items(target) == []


def refusals():
    table = create()
    refused("TableNotFoundException", "Table not found", client.create_backup, TableName="nothing", BackupName="abc")
    refused("ValidationException", "backupName", client.create_backup, TableName=table, BackupName="a b c")
    refused("BackupNotFoundException", "Backup not found", client.describe_backup, BackupArn=NO_BACKUP)
    refused("BackupNotFoundException", "Backup not found", client.delete_backup, BackupArn=NO_BACKUP)
    arn = back_up(table)
    refused("TableAlreadyExistsException", table, client.restore_table_from_backup, TargetTableName=table, BackupArn=arn)
    # The ARN of another table with the same end is none.
    refused("BackupNotFoundException", "Backup not found", client.describe_backup, BackupArn=arn.replace(table, "t_" + "0" * 12))


def continuous_backups():
    table = create()
    state = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    assert state["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "DISABLED", state
    restore_to = client.restore_table_to_point_in_time
    refused("PointInTimeRecoveryUnavailableException", table, restore_to, SourceTableName=table, TargetTableName=name(), UseLatestRestorableTime=True)
    refused("TableNotFoundException", "Table not found", client.describe_continuous_backups, TableName="nothing")
    # botocore itself refuses fewer than one.
    refused("ValidationException", "recoveryPeriodInDays", recovery, table=table, enabled=True, days=36)
    fill(table, 50)
    assert recovery(table, True, 7)["RecoveryPeriodInDays"] == 7
    refused("InvalidRestoreTimeException", "just now", restore_to, SourceTableName=table, TargetTableName=name(), UseLatestRestorableTime=True)
    fill(table, 150)
    client.delete_item(TableName=table, Key={"p": {"S": "p0"}, "c": {"N": "0"}})
    then = settled(table)
    before = items(table)
    assert len(before) == 149
    # All kinds of changes behind it, by any node, also while it is restored.
    for at, node in enumerate(nodes * 3):
        key = {"p": {"S": f"p{(at + 1) % 7}"}, "c": {"N": str(at + 1)}}
        node.update_item(TableName=table, Key=key, UpdateExpression="SET v = :v", ExpressionAttributeValues={":v": {"S": "later"}})
        node.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": {"p": {"S": "new"}, "c": {"N": str(at)}}}},
                                                 {"Delete": {"TableName": table, "Key": {"p": {"S": f"p{(at + 20) % 7}"}, "c": {"N": str(at + 20)}}}}])  # fmt: skip
    target = name()
    answer = restore_to(SourceTableArn=answer_arn(table), TargetTableName=target, RestoreDateTime=then)["TableDescription"]
    assert answer["TableStatus"] == "CREATING" and answer["RestoreSummary"]["RestoreInProgress"] is True, answer
    refused("ResourceInUseException", target, client.delete_table, TableName=table)
    refused("ContinuousBackupsUnavailableException", target, recovery, table=table, enabled=False)
    fill(table, 100, "z")
    restored = active(target)
    assert items(target) == before
    assert restored["RestoreSummary"]["RestoreInProgress"] is False and restored["RestoreSummary"]["RestoreDateTime"] == then, restored
    assert restored["GlobalSecondaryIndexes"][0]["IndexName"] == "by_g", restored
    client.put_item(TableName=target, Item={"p": {"S": "p0"}, "c": {"N": "0"}}, ConditionExpression="attribute_not_exists(p)")
    refused("TableAlreadyExistsException", target, restore_to, SourceTableName=table, TargetTableName=target, RestoreDateTime=then)
    early = then - datetime.timedelta(days=1)
    refused("InvalidRestoreTimeException", "EarliestRestorableDateTime", restore_to, SourceTableName=table, TargetTableName=name(), RestoreDateTime=early)
    settled(table)
    now = items(table)
    latest = name()
    restore_to(SourceTableName=table, TargetTableName=latest, UseLatestRestorableTime=True)
    active(latest)
    assert items(latest) == now
    assert "RecoveryPeriodInDays" not in recovery(table, False)


def recovery(table, enabled, days=None):
    specification = {"PointInTimeRecoveryEnabled": enabled, **({} if days is None else {"RecoveryPeriodInDays": days})}
    answer = client.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=specification)
    return answer["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]


def answer_arn(table):
    return client.describe_table(TableName=table)["Table"]["TableArn"]


def settled(table):
    """A time behind all writes of before, when the table can be restored to it."""

    def state():
        return client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]

    then = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(seconds=1)
    # Recovery that was just enabled begins a bit later.
    then = max(then, state()["EarliestRestorableDateTime"])
    wait(lambda: state()["LatestRestorableDateTime"], lambda found: found > then, "settled")
    return then


check("a backup from its creation to its end", whole_life)
check("a table that is restored is not active before it is whole", never_half_restored)
check("lists of backups", lists)
check("overrides of a restoration", overrides)
check("an empty table", empty_table)
check("refusals", refusals)
check("recovery to a point in time", continuous_backups)
for arn in [one["BackupArn"] for one in client.list_backups()["BackupSummaries"]]:
    client.delete_backup(BackupArn=arn)
for table in made:
    try:
        client.delete_table(TableName=table)
    except client.exceptions.ResourceNotFoundException:
        pass
finish()
