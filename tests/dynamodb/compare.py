"""Holds a Torc node against DynamoDB Local: `compare.py --torc BINARY [--seed N] [--cases N] [--requests N]`.

Each case makes the same tables in both and sends the same requests, generated from its seed. Status, type of error and answer must
agree; texts of errors need not, because those of DynamoDB Local are not those of AWS (which Torc has). Differences that are known
and accepted are in `accepted.txt`, with their reasons.
"""

import argparse
import decimal
import http.client
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import environment  # noqa: E402
from environment import Failure, read  # noqa: E402
from generate import TABLES, Generator  # noqa: E402
from node import ADDRESS, Torc, Workspace, answers, free_port  # noqa: E402

API_PORT = 8000
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00"
)


class Endpoint:
    """One server."""

    def __init__(self, host, port):
        self.connection = http.client.HTTPConnection(host, port, timeout=30)

    def call(self, operation, request):
        """Status and body of an answer."""
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0",
            "Authorization": AUTHORIZATION,
        }  # fmt: skip
        self.connection.request("POST", "/", json.dumps(request).encode(), headers)
        response = self.connection.getresponse()
        body = response.read()
        try:
            return response.status, json.loads(body)
        except ValueError:
            return response.status, {"__type": "no JSON", "message": body.decode(errors="replace")}


class DynamoDbLocal:
    """DynamoDB Local in memory, from Maven Central; `before` are the words of the command before its own."""

    def __init__(self, folder, before=(), heap="384m"):
        def make(path):
            environment.run(
                ["mvn", "-q", "-B", "-f", os.path.join(HERE, "pom.xml"), "dependency:copy-dependencies",
                 f"-DoutputDirectory={path}", "-DincludeScope=runtime"],
                "fetching DynamoDB Local with Maven",
            )  # fmt: skip

        jars = environment.folder("dynamodb-local", [read("tests/dynamodb/pom.xml")], make)
        self.port = free_port()
        self.log = os.path.join(folder, "dynamodb-local.log")
        command = [
            *before, "java", f"-Xmx{heap}", f"-Djava.library.path={jars}", "-cp", os.path.join(jars, "*"),
            "com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-port", str(self.port),
        ]  # fmt: skip
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not answers("127.0.0.1", self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"DynamoDB Local does not start: {read(self.log)}")
            time.sleep(0.1)

    def stop(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()


def number(text):
    """A number in one form: DynamoDB Local gives it as it was written, where AWS leaves zeros out."""
    return format(decimal.Decimal(text).normalize(), "f")


def normal(value):
    """A value without parts that have no order or no single form: members of sets, zeros of numbers."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((kind, inner),) = value.items()
            if kind == "N" and isinstance(inner, str):
                return {kind: number(inner)}
            if kind == "NS" and isinstance(inner, list):
                return {kind: sorted(map(number, inner))}
            if kind in ("SS", "BS") and isinstance(inner, list):
                return {kind: sorted(inner)}
        return {name: normal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [normal(inner) for inner in value]
    return value


def answer(operation, request, status, body):
    """The compared part of an answer."""
    if status != 200:
        kind = body.get("__type", "").rsplit("#")[-1]
        reasons = [(reason.get("Code"), normal(reason.get("Item"))) for reason in body.get("CancellationReasons", [])]
        return status, kind, reasons
    body = normal(body)
    # What writes cost on global indexes is compared. DynamoDB Local counts bytes of local indexes that AWS's documents do not name, nothing for
    # reads that find nothing, and shows the cost of some requests that do not ask for it.
    consumed = body.pop("ConsumedCapacity", {})
    if operation in ("PutItem", "UpdateItem", "DeleteItem") and "ReturnConsumedCapacity" in request:
        body["ConsumedCapacity"] = consumed.get("GlobalSecondaryIndexes", {})
    if operation == "Scan" or "IndexName" in request:
        # Partitions come in the order of their hashes, and so do items of an index with equal keys.
        body["Items"] = sorted(body.get("Items", []), key=lambda item: json.dumps(item, sort_keys=True))
    return status, body


def accepted_patterns():
    """The patterns of accepted differences: a line each, behind the lines with their reason."""
    lines = read("tests/dynamodb/accepted.txt").splitlines()
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def key_schema(keys):
    """`KeySchema` of keys."""
    return [{"AttributeName": name, "KeyType": role} for (name, _), role in zip(keys, ("HASH", "RANGE"))]


def run_case(seed, requests, torc, local, accepted):
    """One case; the lines of its differences, and how many were accepted."""
    generator, differences, ignored = Generator(seed), [], 0
    for table in TABLES:
        request = {
            "TableName": table["TableName"], "BillingMode": "PAY_PER_REQUEST", "KeySchema": key_schema(table["keys"]),
        }  # fmt: skip
        attributes = list(table["keys"])
        for kind, parameter in (("indexes", "GlobalSecondaryIndexes"), ("local", "LocalSecondaryIndexes")):
            for name, keys in table.get(kind, {}).items():
                attributes += [key for key in keys if key not in attributes]
                index = {"IndexName": name, "KeySchema": key_schema(keys), "Projection": {"ProjectionType": "ALL"}}
                request.setdefault(parameter, []).append(index)
        request["AttributeDefinitions"] = [{"AttributeName": name, "AttributeType": kind} for name, kind in attributes]
        for endpoint in (torc, local):
            endpoint.call("DeleteTable", {"TableName": table["TableName"]})
            status, body = endpoint.call("CreateTable", request)
            if status != 200:
                raise Failure(f"a table is not created: {body}")
    for number in range(requests):
        operation, request = generator.request()
        found = [endpoint.call(operation, request) for endpoint in (torc, local)]
        ours, theirs = (answer(operation, request, *one) for one in found)
        if ours == theirs:
            continue
        text = (
            f"{operation} {json.dumps(request)}\n    torc:  {found[0][0]} {json.dumps(found[0][1])}\n"
            f"    local: {found[1][0]} {json.dumps(found[1][1])}"
        )
        if any(pattern.search(text.replace("\n", " ")) for pattern in accepted):
            ignored += 1
            if ours[0] != theirs[0] and operation not in ("GetItem", "Query", "Scan"):
                # One has written and the other has not: later answers prove nothing any more.
                break
            continue
        differences.append(f"seed {seed}, request {number}: {text}")
        break
    return differences, ignored, number + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torc", required=True, help="the binary")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--cases", type=int, default=20, help="how many")
    parser.add_argument("--requests", type=int, default=200, help="of a case")
    options = parser.parse_args()
    with Workspace("dynamodb") as folder:
        local, torc = DynamoDbLocal(folder), Torc(options.torc, folder, ADDRESS)
        failed = passed = ignored = count = 0
        try:
            torc.start()
            while not answers(ADDRESS, API_PORT) and torc.is_running():
                time.sleep(0.005)
            ends = Endpoint(ADDRESS, API_PORT), Endpoint("127.0.0.1", local.port)
            accepted = accepted_patterns()
            for seed in range(options.seed, options.seed + options.cases):
                differences, known, requests = run_case(seed, options.requests, *ends, accepted)
                ignored, count = ignored + known, count + requests
                failed, passed = failed + bool(differences), passed + (not differences)
                for line in differences:
                    print(line, flush=True)
        finally:
            torc.kill()
            local.stop()
        print(f"{count} requests, {ignored} differences of the accepted kinds")
        print(f"{passed} passed, {failed} failed")
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"dynamodb: {failure}")
