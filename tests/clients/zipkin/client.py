"""Zipkin's server with its Cassandra storage over a running node: `client.py HOST PORT torc JAR`.

It makes its own schema (user types, SASI indexes, one of them of texts with delimiters), stores spans and finds traces by service, span
name, remote service, annotation, tag and duration.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

CLIENTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [CLIENTS, os.path.dirname(CLIENTS)]

from checks import check, finish  # noqa: E402
from node import free_port  # noqa: E402

HOST, PORT = sys.argv[1], sys.argv[2]
JAR = os.environ["TEST_ZIPKIN"]
TRACES = 30
START_SECONDS = 90
VISIBLE_SECONDS = 20


URL = f"http://127.0.0.1:{free_port()}"
NOW = int(time.time() * 1e6)


def get(path, **query):
    with urllib.request.urlopen(f"{URL}{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
        return json.load(answer)


def trace_id(n):
    return f"{n + 1:016x}"


def front(n):
    """The first span of a trace."""
    method = "GET" if n % 2 else "POST"
    tags = {"http.method": method, **({"error": "x"} if n % 5 == 0 else {})}
    return {
        "traceId": trace_id(n), "id": trace_id(n), "name": f"{method.lower()} /x", "kind": "CLIENT", "timestamp": NOW - n * 1000,
        "duration": 1000 * (n + 1), "localEndpoint": {"serviceName": "front" if n % 3 else "web", "ipv4": "10.0.0.1"},
        "remoteEndpoint": {"serviceName": "back", "port": 80}, "tags": tags,
        "annotations": [{"timestamp": NOW, "value": "retry"}] if n % 7 == 0 else [],
    }  # fmt: skip


def back(n):
    return {
        "traceId": trace_id(n), "id": f"{n + 100:016x}", "parentId": trace_id(n), "name": "query", "kind": "SERVER",
        "timestamp": NOW - n * 1000 + 10, "duration": 500, "localEndpoint": {"serviceName": "back"},
    }  # fmt: skip


def found(**query):
    end = int(time.time() * 1000) + 60_000
    traces = get("/api/v2/traces", limit=100, lookback=86_400_000, endTs=end, **query)
    return sorted({span["traceId"] for trace in traces for span in trace})


def expect(where, **query):
    """The traces of a query are those whose first span passes; they are visible soon."""
    expected = sorted(trace_id(n) for n in range(TRACES) if where(n))
    deadline = time.monotonic() + VISIBLE_SECONDS
    while (seen := found(**query)) != expected and time.monotonic() < deadline:
        time.sleep(0.2)
    assert seen == expected, (query, seen, expected)


def test_health():
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            status = get("/health")["zipkin"]["status"]
        except (OSError, urllib.error.HTTPError):
            status = "not up"
        if status == "UP":
            return
        assert time.monotonic() < deadline, status
        time.sleep(0.5)


def test_store():
    spans = json.dumps([span for n in range(TRACES) for span in (front(n), back(n))]).encode()
    request = urllib.request.Request(f"{URL}/api/v2/spans", spans, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 202, answer.status
    expect(lambda n: True)


def test_names():
    assert get("/api/v2/services") == ["back", "front", "web"]
    assert get("/api/v2/spans", serviceName="front") == ["get /x", "post /x"]
    assert get("/api/v2/remoteServices", serviceName="front") == ["back"]


def test_services():
    expect(lambda n: n % 3 == 0, serviceName="web")
    expect(lambda n: n % 3 and n % 2, serviceName="front", spanName="get /x")
    expect(lambda n: n % 3, serviceName="front", remoteServiceName="back")


def test_annotations():
    expect(lambda n: n % 5 == 0, annotationQuery="error")
    expect(lambda n: n % 2, annotationQuery="http.method=GET")
    expect(lambda n: n % 5 == 0 and n % 2, annotationQuery="http.method=GET and error")
    expect(lambda n: n % 7 == 0, annotationQuery="retry")
    expect(lambda n: n % 3 == 0 and n % 5 == 0, serviceName="web", annotationQuery="error")
    # A tag is found by its key, too, and by no part of it.
    expect(lambda n: True, annotationQuery="http.method")
    expect(lambda n: False, annotationQuery="http")


def test_durations():
    expect(lambda n: n % 3 and n >= 19, serviceName="front", minDuration=20_000)
    expect(lambda n: n % 3 and 4 <= n <= 9, serviceName="front", minDuration=5_000, maxDuration=10_000)


def test_traces():
    assert len(get(f"/api/v2/trace/{trace_id(3)}")) == 2
    assert len(get("/api/v2/traceMany", traceIds=f"{trace_id(0)},{trace_id(1)}")) == 2


settings = {
    "STORAGE_TYPE": "cassandra3", "CASSANDRA_CONTACT_POINTS": f"{HOST}:{PORT}", "CASSANDRA_LOCAL_DC": "datacenter1",
    "QUERY_PORT": URL.rsplit(":", 1)[1],
}  # fmt: skip
with tempfile.TemporaryFile("w+") as log:
    server = subprocess.Popen(["java", "-Xmx300m", "-jar", JAR], env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT)
    try:
        check("health", test_health)
        check("store", test_store)
        check("names", test_names)
        check("services", test_services)
        check("annotations", test_annotations)
        check("durations", test_durations)
        check("traces", test_traces)
    finally:
        server.kill()
        server.wait()
    log.seek(0)
    for line in [line for line in log if " ERROR " in line][:10]:
        print(f"     zipkin: {line[:300].rstrip()}")
finish()
