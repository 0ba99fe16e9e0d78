#!/usr/bin/env python3
"""The DynamoDB API of Torc beside DynamoDB Local: the same requests to both, and the server's CPU a request.

  bench/dynamo.py [--quick] [--torc BINARY] [--only torc|local] [--name NAME] [CASE...]

Each server runs alone on core 0, the requests come from core 1 over eight connections, one at a time on each. The sender is slower than Torc, so that
only CPU is compared: throughput and latency say nothing here. DynamoDB Local keeps its data in memory and no log; Torc keeps a
commit log, and each write is a lightweight transaction (alternator_write_isolation: always_use_lwt). Each case is run until it is
warm, then measured. Results go to bench/results/dynamo-NAME.md and .json.
"""

import argparse
import datetime
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "dynamodb")]

from run import Failure, Pinned, begin, build, cpu_seconds, keep, pinned, say  # noqa: E402
from compare import API_PORT, DynamoDbLocal, Endpoint  # noqa: E402
from node import Torc  # noqa: E402

CONNECTIONS = 8
TABLE, RANGES, GROUPS = "bench", 200, 20
VALUE = {"S": "x" * 100}
GOAL = "20×"


@dataclass
class Case:
    """An operation, its request, and how many items its answer must have (none where it has no list)."""

    name: str
    operation: str
    request: Callable[[random.Random, int], dict]
    items: int | None = None


def item(partition, row, more=None):
    return {"p": {"S": f"p{partition}"}, "r": {"N": str(row)}, "g": {"S": f"g{row % GROUPS}"}, "v": VALUE, **(more or {})}


def key(rng, partitions):
    return {"p": {"S": f"p{rng.randrange(partitions)}"}, "r": {"N": str(rng.randrange(RANGES))}}


def some(rng, partitions, count):
    """Items with different keys."""
    first = rng.randrange(partitions * RANGES)
    return [item((first + at) // RANGES % partitions, (first + at) % RANGES) for at in range(count)]


def query(partition, **more):
    condition = {"KeyConditionExpression": "p = :p", "ExpressionAttributeValues": {":p": {"S": f"p{partition}"}}}
    return {"TableName": TABLE, "Limit": 100, **condition, **more}


CASES = [
    Case("PutItem", "PutItem", lambda r, n: {"TableName": TABLE, "Item": some(r, n, 1)[0]}),
    Case("GetItem", "GetItem", lambda r, n: {"TableName": TABLE, "Key": key(r, n), "ConsistentRead": True}),
    Case("UpdateItem with a condition", "UpdateItem", lambda r, n: {
        "TableName": TABLE, "Key": key(r, n), "UpdateExpression": "SET n = if_not_exists(n, :z) + :o",
        "ConditionExpression": "attribute_exists(v)", "ExpressionAttributeValues": {":z": {"N": "0"}, ":o": {"N": "1"}}}),
    Case("Query of 100 items", "Query", lambda r, n: query(r.randrange(n)), 100),
    Case("Query of 100 items by a global index", "Query", lambda r, n: {
        "TableName": TABLE, "IndexName": "by_g", "Limit": 100, "KeyConditionExpression": "g = :g AND r >= :r",
        "ExpressionAttributeValues": {":g": {"S": f"g{r.randrange(GROUPS)}"}, ":r": {"N": "0"}}}, 100),
    Case("BatchWriteItem of 25", "BatchWriteItem", lambda r, n: {
        "RequestItems": {TABLE: [{"PutRequest": {"Item": one}} for one in some(r, n, 25)]}}),
    Case("TransactWriteItems of 4", "TransactWriteItems", lambda r, n: {
        "TransactItems": [{"Put": {"TableName": TABLE, "Item": item(r.randrange(n), row)}} for row in r.sample(range(RANGES), 4)]}),
    Case("Scan of 1,000 items", "Scan", lambda r, n: {"TableName": TABLE, "Limit": 1000}, 1000),
]  # fmt: skip


def create(endpoint):
    kinds = (("p", "S"), ("r", "N"), ("g", "S"))
    status, answer = endpoint.call("CreateTable", {
        "TableName": TABLE, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}],
        "GlobalSecondaryIndexes": [{
            "IndexName": "by_g", "Projection": {"ProjectionType": "ALL"},
            "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}]}],
    })  # fmt: skip
    if status != 200:
        raise Failure(f"CreateTable: {answer}")


def send(address, case, partitions, until, counts, errors, seed):
    """One connection: requests until the time is over, or so many as `until` says."""
    endpoint, rng, count = Endpoint(*address), random.Random(seed), 0
    try:
        while time.monotonic() < until:
            status, answer = endpoint.call(case.operation, case.request(rng, partitions))
            conflict = status == 400 and "TransactionConflict" in str(answer)
            if status != 200 and not conflict or case.items is not None and len(answer.get("Items", ())) != case.items:
                raise Failure(f"{case.name}: {status} {str(answer)[:300]}")
            count += 1
    except Exception as error:  # reported by the main thread
        errors.append(error)
    counts.append(count)


def run_for(address, case, partitions, seconds):
    counts, errors, until = [], [], time.monotonic() + seconds
    threads = [
        threading.Thread(target=send, args=(address, case, partitions, until, counts, errors, seed)) for seed in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts)


def measure(name, address, pid, options, wanted):
    partitions, seconds, heat = (20, 3, 3) if options.quick else (250, 8, 15)
    endpoint = Endpoint(*address)
    create(endpoint)
    all_items = (item(p, r) for p in range(partitions) for r in range(RANGES))
    while batch := list(itertools.islice(all_items, 25)):
        status, answer = endpoint.call("BatchWriteItem", {"RequestItems": {TABLE: [{"PutRequest": {"Item": one}} for one in batch]}})
        if status != 200 or answer.get("UnprocessedItems"):
            raise Failure(f"the data could not be written: {status} {str(answer)[:300]}")
    results = {}
    for case in CASES:
        if wanted and case.name not in wanted:
            continue
        run_for(address, case, partitions, heat if name == "local" else seconds)
        begun = cpu_seconds(pid)
        count = run_for(address, case, partitions, seconds)
        results[case.name] = {"micros": (cpu_seconds(pid) - begun) * 1e6 / count, "count": count}
        say(f"{name}: {case.name}: {results[case.name]['micros']:.0f} µs of CPU, {count} requests")
    return results


def run(name, options, folder):
    """All figures of one server."""
    if name == "torc":
        server = Torc(options.torc, folder, host=options.address, shards=1)
        held = Pinned(server, 0, options.nice)
        server.start(60)
        try:
            return measure(name, (options.address, API_PORT), held.pid, options, options.case)
        finally:
            server.stop(60)
    local = DynamoDbLocal(folder, before=pinned(0, options.nice, []), heap="2g")
    try:
        return measure(name, ("127.0.0.1", local.port), local.process.pid, options, options.case)
    finally:
        local.stop()


def markdown(results):
    torc, local = (results["servers"].get(name, {}) for name in ("torc", "local"))
    lines = [
        f"# The DynamoDB API beside DynamoDB Local, {results['date']}",
        "",
        f"{results['machine']}, commit {results['commit']}. CPU of the server, microseconds a request. Load average at the start {results['load_average_before']:.1f}, "
        f"at the end {results['load_average_after']:.1f}." + (" A quick run: little data, and DynamoDB Local barely warm." if results["quick"] else ""),
        "Torc writes a commit log and makes each write a lightweight transaction; DynamoDB Local keeps its data in memory.",
        "",
        "| | Torc | DynamoDB Local | ratio | goal |",
        "|---|---:|---:|---:|---:|",
    ]
    for case in CASES:
        left, right = (server.get(case.name, {}).get("micros") for server in (torc, local))
        cells = ["–" if value is None else f"{value:,.0f}" for value in (left, right)]
        ratio = f"{right / left:.1f}×" if left and right else ""
        lines.append(f"| {case.name} | {cells[0]} | {cells[1]} | {ratio} | {GOAL} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs over little data, for a look")
    parser.add_argument("--torc", help="the program (built when not given)")
    parser.add_argument("--only", choices=["torc", "local"], help="measure one server only")
    parser.add_argument("--name", default=datetime.date.today().isoformat(), help="name of the results")
    parser.add_argument("--address", default="127.0.0.1", help="where Torc listens")
    parser.add_argument("--nice", type=int, default=-10, help="priority of the server")
    parser.add_argument("case", nargs="*", help="these cases alone, by name")
    options = parser.parse_args()
    unknown = set(options.case) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(case.name for case in CASES)}")
    options.torc = options.torc or build()
    os.sched_setaffinity(0, {os.cpu_count() - 1})
    results = begin(options.quick)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("torc", "local"):
            if options.only in (None, name):
                place = os.path.join(folder, name)
                os.makedirs(place)
                results["servers"][name] = run(name, options, place)
    results["load_average_after"] = os.getloadavg()[0]
    keep(results, f"dynamo-{options.name}", markdown(results))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(str(failure))
