"""Many connections at once: half-open handshakes and idle clients, and their cost.

  connections.py --torc BINARY [--count 100000]

Needs as many open files, or the right to raise their limit; without that it takes as many connections as it may. Prints memory for each connection, and fails when
the node stops answering, takes more than 4 KiB of its own for a connection that has said nothing, 16 KiB for one that
is ready, or keeps connections that never finish the handshake.
"""

import argparse
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time

ADDRESS = os.environ.get("TEST_ADDRESS", "127.0.5.1")
OPTIONS = b"\x04\x00\x00\x01\x05\x00\x00\x00\x00"
STARTUP_BODY = b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.4.7"
STARTUP = b"\x04\x00\x00\x01\x01" + struct.pack(">I", len(STARTUP_BODY)) + STARTUP_BODY
HANDSHAKE_SECONDS = 12


def query(text):
    body = struct.pack(">I", len(text)) + text.encode() + b"\x00\x01\x00"
    return b"\x04\x00\x00\x02\x07" + struct.pack(">I", len(body)) + body


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def connect(number, first):
    """Connections from source addresses of their own, 20,000 each, so that no address runs out of ports."""
    made = []
    base = ADDRESS.rsplit(".", 1)[0]
    for at in range(number):
        one = socket.socket()
        one.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        one.bind((f"{base}.{100 + (first + at) // 20000}", 0))
        one.connect((ADDRESS, 9042))
        made.append(one)
    return made


def receive(one, length):
    data = b""
    while len(data) < length:
        part = one.recv(length - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def answer(one):
    head = receive(one, 9)
    return head[4], receive(one, struct.unpack(">I", head[5:])[0])


def is_alive(client):
    client.sendall(query("SELECT key FROM system.local"))
    return answer(client)[0] == 8


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torc", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    wanted = options.count + 1000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, hard), max(wanted, hard)))
    except (ValueError, OSError):
        # The cost of one is measured; fewer show it as well.
        options.count = hard - 1000
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        print(f"only {hard} files can be open here (ulimit -Hn): {options.count} connections")
    failed = []

    def check(name, good, detail):
        print(f"{'ok' if good else 'FAIL'} {name}: {detail}", flush=True)
        if not good:
            failed.append(name)

    with tempfile.TemporaryDirectory(prefix="torc-connections-") as folder:
        command = [options.torc, "dev", "--address", ADDRESS, "--shards", "2", "--dir", folder]
        node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            print(node.stdout.readline().strip(), flush=True)
            [client] = connect(1, 0)
            client.settimeout(60)
            client.sendall(STARTUP)
            answer(client)
            before = rss(node.pid)

            begun = time.monotonic()
            peak, half_open = before, []
            for part in range(0, options.count, 5000):
                made = connect(min(5000, options.count - part), part)
                for one in made:
                    one.sendall(STARTUP[:5])
                half_open += made
                peak = max(peak, rss(node.pid))
                check("answers", is_alive(client), f"with {len(half_open)} half-open") if part % 50_000 == 0 else None
            seconds = time.monotonic() - begun
            each = (peak - before) / len(half_open)
            check("half-open", each < 4096, f"{len(half_open)} in {seconds:.1f} s, {each:.0f} bytes each, peak {peak >> 20} MiB")
            time.sleep(HANDSHAKE_SECONDS + 3)
            closed = 0
            for one in half_open:
                one.settimeout(0)
                try:
                    closed += one.recv(100) == b""
                except BlockingIOError:
                    pass
                except ConnectionError:
                    closed += 1
                one.close()
            check("handshake timeout", closed == len(half_open), f"{closed} of {len(half_open)} were closed by the node")
            check("answers", is_alive(client), f"afterwards; {rss(node.pid) >> 20} MiB")

            after = rss(node.pid)
            begun, idle = time.monotonic(), []
            for part in range(0, options.count, 500):
                made = connect(min(500, options.count - part), part)
                for one in made:
                    one.sendall(STARTUP)
                for one in made:
                    answer(one)
                idle += made
            seconds = time.monotonic() - begun
            each = (rss(node.pid) - min(after, before)) / len(idle)
            check("idle", each < 16384, f"{len(idle)} ready in {seconds:.1f} s, {each:.0f} bytes each, {rss(node.pid) >> 20} MiB")
            check("answers", is_alive(client), "with all of them idle")
            with open(f"/proc/{node.pid}/stat", encoding="utf-8") as stat:
                ticks = sum(map(int, stat.read().split()[13:15]))
            time.sleep(10)
            with open(f"/proc/{node.pid}/stat", encoding="utf-8") as stat:
                ticks = sum(map(int, stat.read().split()[13:15])) - ticks
            check("quiet", ticks < 50, f"{ticks * 10} ms of CPU in 10 s")
            for one in idle:
                one.close()
        finally:
            node.terminate()
            node.wait(30)
    print(f"{'FAILED' if failed else 'all good'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
