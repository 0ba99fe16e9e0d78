"""The port of the DynamoDB API: slow, huge and broken requests, documents that no client would write, clients that do not read."""

import copy
import gzip
import http.client
import json
import os
import random
import socket
import struct
import threading
import time

from ports import check
from world import API

SECONDS = 20
OPERATION = "DynamoDB_20120810."
AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00"


def head(*headers, method="POST", path="/", target="ListTables"):
    """The head of a request, without the blank line that ends it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/x-amz-json-1.0", f"Authorization: {AUTHORIZATION}"]
    return "\r\n".join([*lines, f"X-Amz-Target: {OPERATION}{target}", *headers]).encode() + b"\r\n"


def answer(peer):
    """Status and body of the answer; 0 when the server closes instead."""
    response = http.client.HTTPResponse(peer)
    try:
        response.begin()
        return response.status, response.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, b""


def ask(world, data, ends=False, port=API):
    """Sends bytes and reads the answer; bytes that the server does not read because it has answered are no error. With `ends` nothing else is sent,
    and a client that ends a whole request may get no answer."""
    with socket.create_connection((world.host, port), SECONDS) as peer:
        try:
            for part in [data] if isinstance(data, bytes) else data:
                peer.sendall(part)
            if ends:
                peer.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            return answer(peer)
        except TimeoutError:
            check(False, f"{data[:80] if isinstance(data, bytes) else 'a body in parts'} is not answered in {SECONDS} s")


def posted(target, body, *headers):
    """A whole request."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(f"Content-Length: {len(body)}", *headers, target=target) + b"\r\n" + body


def refused(world, what, data, allowed=(0, 400, 404, 405, 411, 413, 414, 431, 501, 505)):
    status, body = ask(world, data, ends=0 in allowed)
    check(status in allowed, f"{what} is answered with {status}: {body[:200]}")


def served(world):
    status, body = ask(world, posted("ListTables", {}))
    check(status == 200, f"others are answered with {status}: {body[:200]}")


def api_heads(world):
    """Heads that lie, that are too long, that are no HTTP; targets, methods and paths that there are not."""
    for line in ("Content-Length: 1000000000000000", "Content-Length: 18446744073709551616", "Content-Length: -1", "Content-Length: 1e3",
                 "Content-Length: 5\r\nContent-Length: 6", "Content-Length:", "Transfer-Encoding: chunked\r\nContent-Length: 5",
                 "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, chunked", "Content-Length: 16777217", "Expect: 200-nothing\r\nContent-Length: 9",
                 "X-Long: " + "x" * 100_000, "\r\n".join(f"X-{at}: y" for at in range(200)), "X-\0: y", ": y", "no colon", " folded: y"):  # fmt: skip
        refused(world, line[:60], head(line) + b"\r\n{}")
    for target in ("", "Nothing", "ListTables.x", "listtables", "L" * 60_000, "\u00e9", "ListTables\0", "../ListTables", "CreateGlobalTable"):
        refused(world, f"target {target[:30]}", posted(target, {}))
    for data in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\r\n\r\n", b"\r\n" * 10_000, b"\x16\x03\x01\x02\x00\x01" + b"\0" * 600, b"\0" * 5_000,
                 b"POST / HTTP/9.9\r\n\r\n", b"POST " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n", b"\xff" * 100, b"G", b""):  # fmt: skip
        refused(world, repr(data[:30]), data)
    for method in ("GET", "PUT", "DELETE", "TRACE", "OPTIONS", "CONNECT", "X" * 5_000, "post"):
        refused(world, method[:20], head("Content-Length: 2", method=method, path="/x") + b"\r\n{}")
    for path in ("//", "*", "http://elsewhere/", "/" + "%00" * 100, "/?X-Amz-Signature=", "/?" + "a=b&" * 10_000):
        ask(world, head("Content-Length: 2", path=path) + b"\r\n{}")
    for origin in ("Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"):
        refused(world, origin, head(origin, "Content-Length: 2") + b"\r\n{}", allowed=(403,))
    served(world)


def chunks(data, size):
    """A body in chunks."""
    for at in range(0, len(data), size):
        part = data[at : at + size]
        yield b"%x\r\n" % len(part) + part + b"\r\n"
    yield b"0\r\n\r\n"


def api_bodies(world):
    """Bodies longer than may be, in chunks that lie, packed a thousand times, and promised but never sent."""
    begin = head("Transfer-Encoding: chunked") + b"\r\n"
    for size in (b"ffffffffffffffff", b"7fffffffffffffff", b"-1", b"0x5", b"5;" + b"x" * 100_000, b"", b"5\n", b"g", b"1" * 1_000):
        refused(world, f"a chunk of {size[:20]}", begin + size + b"\r\n{}\r\n0\r\n\r\n")
    trailers = b"".join(b"X-%d: y\r\n" % at for at in range(100_000))
    ask(world, begin + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n")
    refused(world, "a body of 20 MiB", (begin, *chunks(b" " * (20 << 20), 1 << 16)))
    status, body = ask(world, (begin, b"".join(chunks(b"{" + b" " * 20_000 + b"}", 1))))
    check(status == 200, f"a body in chunks of one byte is answered with {status}: {body[:200]}")
    bomb = gzip.compress(bytes(200 << 20), 9)
    packed = "Content-Encoding: gzip"
    for name, data in (("a bomb", bomb), ("half a bomb", bomb[:1_000]), ("no gzip", b"x" * 100), ("nothing", b""),
                       ("twice", gzip.compress(gzip.compress(b"{}")))):  # fmt: skip
        refused(world, name, posted("ListTables", data, packed), allowed=(400, 413, 500))
    for encoding in ("br", "gzip, gzip", "identity", "deflate", "\0", "gzip" * 1_000):
        ask(world, posted("ListTables", b"{}", f"Content-Encoding: {encoding}"))
    served(world)
    return promised_bodies(world)


def promised_bodies(world):
    """A quarter of a gibibyte of bodies that never end, of one client, down to the last bytes that it may have: others are served meanwhile."""
    worst = 0
    # As many as there may be, and one on each shard that is as long as it may be.
    for sizes in ((*[8_000_000] * 32, *[400_000] * 32, *[20_000] * 50, *[1_000] * 50, *[20] * 100, *[1] * 100), [(16 << 20) - 1] * 4):
        many = []
        try:
            for size in sizes:
                peer = socket.create_connection((world.host, API), SECONDS)
                many.append(peer)
                peer.settimeout(0.5)
                try:
                    peer.sendall(head("Content-Length: 16777216", target="PutItem") + b"\r\n" + b" " * size)
                except OSError:
                    pass
            worst = max(worst, served_beside(world))
        finally:
            for peer in many:
                peer.close()
    return f"others waited {worst:.2f} s at most beside bodies that do not end"


def served_beside(world):
    """How long another client has to wait at most beside bodies that do not end, on every shard."""
    worst = 0
    for _ in range(4):
        client = world.api()
        for _ in range(5):
            begun = time.monotonic()
            try:
                client.call("ListTables", {})
            except http.client.HTTPException as error:
                check(False, f"another client is refused beside bodies that do not end: {error}")
            worst = max(worst, time.monotonic() - begun)
        client.close()
    return worst


TABLE = "hostile"
KEY = {"p": {"S": "a"}, "r": {"N": "1"}}
ITEM = {**KEY, "s": {"S": "x"}, "n": {"N": "1.5"}, "b": {"B": "AAE="}, "l": {"L": [{"N": "1"}]}, "m": {"M": {"a": {"BOOL": True}}},
        "ss": {"SS": ["a", "b"]}, "ns": {"NS": ["1", "2"]}, "z": {"NULL": True}}  # fmt: skip
REQUESTS = {
    "PutItem": {"TableName": TABLE, "Item": ITEM, "ConditionExpression": "attribute_not_exists(#p) OR n < :n", "ReturnValues": "ALL_OLD",
                "ExpressionAttributeNames": {"#p": "p"}, "ExpressionAttributeValues": {":n": {"N": "2"}}},
    "GetItem": {"TableName": TABLE, "Key": KEY, "ConsistentRead": True, "ProjectionExpression": "s, l[0], m.a"},
    "UpdateItem": {"TableName": TABLE, "Key": KEY, "UpdateExpression": "SET n = n + :n, l[0] = :n REMOVE m.a ADD ns :s", "ReturnValues": "ALL_NEW",
                   "ExpressionAttributeValues": {":n": {"N": "2"}, ":s": {"NS": ["3"]}}},
    "DeleteItem": {"TableName": TABLE, "Key": KEY, "Expected": {"s": {"Value": {"S": "x"}, "Exists": True}}},
    "Query": {"TableName": TABLE, "KeyConditionExpression": "p = :p AND r BETWEEN :a AND :b", "FilterExpression": "contains(s, :p)", "Limit": 5,
              "ScanIndexForward": False, "ExclusiveStartKey": KEY, "Select": "ALL_ATTRIBUTES",
              "ExpressionAttributeValues": {":p": {"S": "a"}, ":a": {"N": "0"}, ":b": {"N": "9"}}},
    "Scan": {"TableName": TABLE, "Limit": 5, "Segment": 0, "TotalSegments": 2, "ScanFilter": {"n": {"ComparisonOperator": "GT", "AttributeValueList": [{"N": "0"}]}}},
    "BatchGetItem": {"RequestItems": {TABLE: {"Keys": [KEY], "AttributesToGet": ["s"]}}, "ReturnConsumedCapacity": "TOTAL"},
    "BatchWriteItem": {"RequestItems": {TABLE: [{"PutRequest": {"Item": ITEM}}, {"DeleteRequest": {"Key": {"p": {"S": "b"}, "r": {"N": "2"}}}}]}},
    "TransactWriteItems": {"TransactItems": [{"Put": {"TableName": TABLE, "Item": ITEM}}], "ClientRequestToken": "t"},
    "TransactGetItems": {"TransactItems": [{"Get": {"TableName": TABLE, "Key": KEY}}]},
    "ExecuteStatement": {"Statement": f"SELECT * FROM {TABLE} WHERE p = ? AND r > 0", "Parameters": [{"S": "a"}], "Limit": 3},
    "BatchExecuteStatement": {"Statements": [{"Statement": f"INSERT INTO {TABLE} VALUE {{'p': 'c', 'r': 1}}"}]},
    "ExecuteTransaction": {"TransactStatements": [{"Statement": f"UPDATE {TABLE} SET s = 'y' WHERE p = 'a' AND r = 1"}]},
    "DescribeTable": {"TableName": TABLE},
    "ListTables": {"Limit": 5, "ExclusiveStartTableName": "aaa"},
    "TagResource": {"ResourceArn": "arn:aws:dynamodb:us-east-1:000000000000:table/" + TABLE, "Tags": [{"Key": "a", "Value": "b"}]},
    "DescribeTimeToLive": {"TableName": TABLE},
    "UpdateTable": {"TableName": TABLE, "BillingMode": "PAY_PER_REQUEST"},
    "CreateTable": {"TableName": "made", "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}], "BillingMode": "PAY_PER_REQUEST",
                    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}], "Tags": [{"Key": "a", "Value": "b"}]},
    "DeleteTable": {"TableName": "made"},
}  # fmt: skip


def deep(depth, value, kind="L"):
    for _ in range(depth):
        value = {kind: [value]} if kind == "L" else {"M": {"a": value}}
    return value


def odd_values():
    """Values that may stand in the place of any value of a document."""
    numbers = ("", "NaN", "Infinity", "1e125", "1e126", "-1e-131", "1e99999999999", "9" * 38, "9" * 39, "0x1", "1_0", "\u0661", "1 ", "9" * 100_000)
    return [
        None, True, 0, -1, 2**31, 2**63, 2**64, 1e308, 0.5, "", "x", "\0", "\U0010ffff", "x" * 70_000, [], {}, [[]], [{}] * 200, {"": ""},
        {"S": ""}, {"S": 1}, {"N": 1}, {"B": "?"}, {"B": "AA"}, {"SS": []}, {"SS": ["a", "a"]}, {"NS": ["1", "1.0"]}, {"NULL": False}, {"X": "y"},
        {"S": "a", "N": "1"}, {"L": [{}]}, {"M": {"": {"S": "a"}}}, {"S": "x" * 500_000}, deep(32, {"S": "a"}), deep(33, {"S": "a"}, "M"),
        deep(400, {"N": "1"}), *({"N": number} for number in numbers), "a" + ".a" * 300, "(" * 400, "#p", ":n", "a[18446744073709551616]",
        "attribute_exists(p)" + " AND attribute_exists(p)" * 400, "SET " + ", ".join(f"a{at} = :n" for at in range(400)), "ALL_OLD", "NONE",
        "SELECT * FROM hostile", "DELETE FROM hostile WHERE " + "NOT " * 400 + "p = 'a'",
    ]  # fmt: skip


def places(document, path=()):
    """The paths of all values below a document."""
    children = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def replaced(document, path, value):
    document = copy.deepcopy(document)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return document


def api_documents(world):
    """JSON that is none or too deep, and every value of every operation's request replaced: an answer, and never an internal error."""
    draw = random.Random(int(os.environ.get("FUZZ_SEED", "11")))
    client = world.api()
    client.call("CreateTable", {
        "TableName": TABLE, "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}, {"AttributeName": "r", "AttributeType": "N"}],
    })  # fmt: skip
    texts = [b"", b"null", b"[]", b'"', b"{", b"}", b'{"a"', b'{"a":}', b"{,}", b"\xff\xfe", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":"\\u12"}', b"{}{}",
             b'{"TableName":"hostile","TableName":"other"}', b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000,
             b'{"Limit":' + b"9" * 1_000_000 + b"}", b'{"Limit":1e999999999}', b'{"Limit":-0}', b'{"Limit":NaN}', b"{\"a\":'b'}", b"// x\n{}",
             b'{"' + b"x" * 5_000_000 + b'":1}', b'{"a":[' + b"0," * 2_000_000 + b"0]}", b'{"a":"' + b"\\u0000" * 1_000_000 + b'"}']  # fmt: skip
    statuses = {}

    def send(operation, body):
        client.connection.request("POST", "/", body, {"X-Amz-Target": OPERATION + operation, "Content-Type": "application/x-amz-json-1.0"})
        response = client.connection.getresponse()
        content = response.read()
        check(response.status in (200, 400), f"{operation} with {body[:300]} is answered with {response.status}: {content[:300]}")
        statuses[response.status] = statuses.get(response.status, 0) + 1
        return response.status, content

    for text in texts:
        for operation in ("PutItem", "ListTables"):
            send(operation, text)
    for operation, request in REQUESTS.items():
        status, content = send(operation, json.dumps(request).encode())
        check(status == 200 or b"ConditionalCheck" in content, f"{operation} as it should be is refused: {content[:200]}")
    odd = odd_values()
    everything = [(operation, path) for operation, request in REQUESTS.items() for path in places(request)]
    for operation, path in everything:
        for value in draw.sample(odd, len(odd) if world.scale > 1 else 3):
            send(operation, json.dumps(replaced(REQUESTS[operation], path, value)).encode())
    client.call("DeleteTable", {"TableName": TABLE})
    client.close()
    return f"{len(everything)} places, {', '.join(f'{count} answers of {status}' for status, count in sorted(statuses.items()))}"


def api_never_read(world):
    """Clients that ask for megabytes and read nothing cost a bounded part of the memory."""
    client = world.api()
    client.call("CreateTable", {
        "TableName": "large", "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
    })  # fmt: skip
    for key in "abc":
        client.call("PutItem", {"TableName": "large", "Item": {"p": {"S": key}, "v": {"S": key * 380_000}}})
    before, deaf, stop = world.rss(), [], time.monotonic() + 3
    requests = posted("Scan", {"TableName": "large"}) * 200

    def pour(peer):
        peer.settimeout(0.5)
        try:
            while time.monotonic() < stop:
                peer.sendall(requests)
        except OSError:
            pass

    threads = []
    for _ in range(40):
        deaf.append(socket.create_connection((world.host, API), SECONDS))
        threads.append(threading.Thread(target=pour, args=(deaf[-1],)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for peer in deaf:
        # As one that is gone, not one that has read.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    client.call("DeleteTable", {"TableName": "large"})
    client.close()
    return f"{max(0, world.rss_most - before) >> 20} MiB more than before"


def api_idle(world):
    """1,500 connections that say nothing or half a request keep nobody out."""
    many, worst = [], 0
    try:
        for at in range(1_500):
            many.append(socket.create_connection((world.host, API), SECONDS))
            if at % 3 == 0:
                many[-1].sendall(head()[: at % 200])
        for _ in range(20):
            begun = time.monotonic()
            served(world)
            worst = max(worst, time.monotonic() - begun)
    finally:
        for peer in many:
            peer.close()
    return f"others waited {worst:.2f} s at most"


SCENARIOS = (
    ("api_heads", api_heads),
    ("api_bodies", api_bodies),
    ("api_documents", api_documents),
    ("api_never_read", api_never_read),
    ("api_idle", api_idle),
)
