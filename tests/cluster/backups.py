"""Backups of the DynamoDB API under kill -9: of a node that makes its snapshot, and of one that writes the rows of a restoration."""

import json
import threading
import time
import urllib.error
import urllib.request

from cassandra.cluster import NoHostAvailable
from world import check, wait_until

PORT = 8000
ITEMS = 6_000
BATCH = 25
# A backup waits a minute for a node that is down, and a restoration as long for one that it can do without.
BACKUP_SECONDS = 120
RESTORE_SECONDS = 240


class Refused(Exception):
    """The type of an error."""


def call(address, operation, **parameters):
    """The answer of a node; `torc dev` asks for no signature."""
    headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0"}
    request = urllib.request.Request(f"http://{address}:{PORT}/", json.dumps(parameters).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise Refused(json.loads(error.read())["__type"].rsplit("#", 1)[-1]) from None


def refusal(address, operation, **parameters):
    """The type of the error of a request that has to be refused."""
    try:
        call(address, operation, **parameters)
    except Refused as refused:
        return str(refused)
    return None


def item(at, version):
    return {"p": {"S": f"item {at}"}, "n": {"N": str(at)}, "text": {"S": f"{version} {at} " + "x" * 300}}


def put(address, table, items):
    for at in range(0, len(items), BATCH):
        requests = [{"PutRequest": {"Item": one}} for one in items[at : at + BATCH]]
        while requests:
            answer = call(address, "BatchWriteItem", RequestItems={table: requests})
            requests = answer["UnprocessedItems"].get(table, [])


def content(address, table):
    """All items by their keys, as a quorum has them."""
    found, more = {}, {}
    while True:
        page = call(address, "Scan", TableName=table, ConsistentRead=True, **more)
        for one in page["Items"]:
            check(one["p"]["S"] not in found, f"{one['p']['S']} comes twice")
            found[one["p"]["S"]] = one
        if "LastEvaluatedKey" not in page:
            return found
        more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def status(address, table):
    try:
        return call(address, "DescribeTable", TableName=table)["Table"]["TableStatus"]
    except Refused as refused:
        return str(refused)


class Watch(threading.Thread):
    """Looks at a table that is being restored, through a node that lives: it is not ACTIVE before it is whole, and no one uses or drops it."""

    def __init__(self, address, table, wanted):
        super().__init__()
        self.address, self.table, self.wanted = address, table, wanted
        self.wrong, self.looks = None, 0

    def run(self):
        end = time.monotonic() + RESTORE_SECONDS
        try:
            while time.monotonic() < end:
                found = status(self.address, self.table)
                if found == "ACTIVE":
                    check(content(self.address, self.table) == self.wanted, "the table is ACTIVE and not the one of the backup")
                    return
                check(found == "CREATING", f"the table is {found}")
                self.looks += 1
                # It may become ACTIVE between two looks.
                used = refusal(self.address, "GetItem", TableName=self.table, Key={"p": {"S": "item 0"}})
                dropped = refusal(self.address, "DeleteTable", TableName=self.table) if used else "ResourceInUseException"
                if status(self.address, self.table) == "CREATING":
                    check(used == "ResourceNotFoundException", f"an item of a table that is being restored: {used}")
                    check(dropped == "ResourceInUseException", f"DeleteTable of a table that is being restored: {dropped}")
                time.sleep(0.1)
            check(False, f"{self.table} is not restored in {RESTORE_SECONDS} s")
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            self.wrong = error


def log_of(node):
    with open(node.log, encoding="utf-8", errors="replace") as log:
        return log.read()


def answers(session):
    try:
        session.execute("SELECT key FROM system.local")
        return True
    except NoHostAvailable:
        return False


def backups_under_kill(world):
    """The node that was asked, and another one, are killed in the middle of backups; one in the middle of the restoration."""
    nodes, addresses = world.nodes, world.nodes.addresses
    table = "killed"
    call(addresses[0], "CreateTable", TableName=table, BillingMode="PAY_PER_REQUEST",
         AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}], KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
         Tags=[{"Key": "system:write_isolation", "Value": "only_rmw_uses_lwt"}])  # fmt: skip
    put(addresses[0], table, [item(at, "of the backup") for at in range(ITEMS)])
    wanted = content(addresses[0], table)
    check(len(wanted) == ITEMS, f"{len(wanted)} items")
    made = []
    # Nodes look for their parts each second: some are killed before they have made theirs, some after.
    for at, (victim, seconds) in enumerate([(2, 0.0), (0, 0.3), (2, 0.7), (1, 1.2)]):
        asked = addresses[0]
        backup = call(asked, "CreateBackup", TableName=table, BackupName=f"under-kill-{at}")["BackupDetails"]["BackupArn"]
        time.sleep(seconds)
        nodes.all[victim].kill()
        other = addresses[(victim + 1) % len(addresses)]
        time.sleep(1)
        nodes.start(victim)
        world.sees(victim)

        def available(arn=backup, through=other):
            try:
                return call(through, "DescribeBackup", BackupArn=arn)["BackupDescription"]["BackupDetails"]["BackupStatus"] == "AVAILABLE"
            except Refused as refused:
                # The ranges of the node that has just been killed cannot be read yet.
                check(str(refused) != "BackupNotFoundException", "the backup failed")
                return False

        wait_until(available, f"{backup} is available", BACKUP_SECONDS)
        made.append(backup)
    # The table changes further: nothing of that is in its backups.
    put(addresses[1], table, [item(at, "later") for at in range(0, ITEMS, 3)] + [item(at, "new") for at in range(ITEMS, ITEMS + 500)])
    interrupted = 0
    for victim, backup in zip((1, 2), made):
        restored = f"restored_{victim}"
        before = log_of(nodes.all[victim]).count("restoring this node's part")
        call(addresses[0], "RestoreTableFromBackup", TargetTableName=restored, BackupArn=backup)
        watch = Watch(addresses[0], restored, wanted)
        watch.start()
        wait_until(lambda v=victim, b=before: log_of(nodes.all[v]).count("restoring this node's part") > b, "the node restores its part")
        nodes.all[victim].kill()
        interrupted += status(addresses[0], restored) == "CREATING"
        nodes.start(victim)
        world.sees(victim)
        watch.join()
        check(watch.wrong is None, f"{restored}: {watch.wrong}")
        for address in addresses:
            wait_until(lambda a=address, t=restored: status(a, t) == "ACTIVE", f"{restored} is ACTIVE on {address}")
            check(content(address, restored) == wanted, f"{restored} through {address} is not the table of the backup")
        call(addresses[0], "DeleteTable", TableName=restored)
    check(interrupted > 0, "no restoration was interrupted")
    for backup in made:
        call(addresses[0], "DeleteBackup", BackupArn=backup)
    call(addresses[0], "DeleteTable", TableName=table)
    # The scenarios that follow use the driver's session, which has seen all nodes end and has connected to none since.
    wait_until(lambda: answers(world.session), "the driver is connected again")
    return f"{len(made)} backups, {interrupted} restorations interrupted"


SCENARIOS = (("backups under kill -9", backups_under_kill),)
