#!/usr/bin/env python3
"""The DynamoDB API of Torc beside DynamoDB Local: the same requests to both, and the server's CPU a request.

  bench/dynamo.py [--quick] [--torc BINARY] [--only torc|local] [--name NAME] [CASE...]

Each server runs alone on core 0, the requests come from core 1: made in advance, over 64 connections, one at a time on each, so that the server is busy
most of the time. A server that sleeps between two requests is measured with the price of waking it, which is 40 µs on a virtual machine and
hides all else. DynamoDB Local keeps its data in memory and no log; Torc keeps a commit log, and each write is a lightweight transaction
(alternator_write_isolation: always_use_lwt). Each case is run until it is warm, then measured. Results go to bench/results/dynamo-NAME.md and .json.
"""

import argparse
import datetime
import itertools
import json
import os
import random
import selectors
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "dynamodb")]

from run import Failure, Pinned, begin, build, cpu_seconds, keep, pinned, say  # noqa: E402
from compare import API_PORT, AUTHORIZATION, DynamoDbLocal, Endpoint  # noqa: E402
from node import Torc  # noqa: E402

CONNECTIONS, REQUESTS = 64, 2000
# Of so many answers one is parsed and its items are counted; of all the status is looked at.
CHECKED_EVERY = 50
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


def encoded(case, partitions):
    """Requests of a case as they are sent."""
    rng, all_requests = random.Random(1), []
    for _ in range(REQUESTS):
        body = json.dumps(case.request(rng, partitions)).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.{case.operation}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nAuthorization: {AUTHORIZATION}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        all_requests.append(head.encode() + body)
    return all_requests


class Connection:
    """One connection, which has a request under way."""

    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def answer(self):
        """Status and body of the answer once all of it is here; none before."""
        part = self.socket.recv(1 << 18)
        if not part:
            raise Failure("the server has closed a connection")
        self.received += part
        head_len = self.received.find(b"\r\n\r\n")
        if head_len < 0:
            return None
        head = self.received[:head_len].lower()
        at = head.find(b"content-length:")
        if at < 0:
            raise Failure(f"an answer without a length: {head!r}")
        body_len = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(self.received) < head_len + 4 + body_len:
            return None
        body, self.received = self.received[head_len + 4 :], b""
        return int(head[9:12]), body


def check(case, number, status, body):
    """Whether the answer is that of the case."""
    if status == 400 and b"TransactionConflict" in body:
        return
    if status != 200:
        raise Failure(f"{case.name}: {status} {body[:300]!r}")
    if case.items is not None and number % CHECKED_EVERY == 0 and len(json.loads(body).get("Items", ())) != case.items:
        raise Failure(f"{case.name}: not {case.items} items in {body[:300]!r}")


def run_for(address, case, requests, seconds):
    """Sends requests for some time; how many were answered."""
    with selectors.DefaultSelector() as waiting:
        sending, count = itertools.cycle(requests), 0
        connections = [Connection(address) for _ in range(CONNECTIONS)]
        for connection in connections:
            waiting.register(connection.socket, selectors.EVENT_READ, connection)
            connection.socket.sendall(next(sending))
        until, under_way = time.monotonic() + seconds, len(connections)
        while under_way:
            ready = waiting.select(30)
            if not ready:
                raise Failure(f"{case.name}: no answer within 30 s")
            is_over = time.monotonic() >= until
            for key, _ in ready:
                answer = key.data.answer()
                if answer is None:
                    continue
                check(case, count, *answer)
                count += 1
                if is_over:
                    under_way -= 1
                    waiting.unregister(key.fileobj)
                else:
                    key.fileobj.sendall(next(sending))
        for connection in connections:
            connection.socket.close()
    return count


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
        requests = encoded(case, partitions)
        run_for(address, case, requests, heat if name == "local" else seconds)
        begun, began = cpu_seconds(pid), time.monotonic()
        count = run_for(address, case, requests, seconds)
        used, passed = cpu_seconds(pid) - begun, time.monotonic() - began
        results[case.name] = {"micros": used * 1e6 / count, "count": count, "busy": used / passed}
        say(f"{name}: {case.name}: {used * 1e6 / count:.1f} µs of CPU, {count / passed:.0f}/s, busy {used / passed:.0%}")
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
        cells = ["–" if value is None else f"{value:,.1f}" for value in (left, right)]
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
