#!/usr/bin/env python3
"""Torc beside Apache Cassandra: the same load on both, the server on one core and the client on another.

  bench/run.py [--quick] [--torc BINARY] [--only torc|cassandra] [--name NAME]

Each server runs alone, pinned to core 0, and is driven by `torc bench load` on core 1: figures are the server's CPU an
operation (from /proc), throughput and latency. Cassandra is warmed for a minute first. Instructions an operation come
from callgrind when it is installed. Results go to bench/results/NAME.md and NAME.json (NAME is the date).
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests"))

from environment import Failure  # noqa: E402
from node import Oracle, Torc  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
PIPELINED = ["-c", "8", "-f", "32"]
SINGLE = ["-c", "32", "-f", "1"]

# Name, the arguments of the load generator, and which figure is compared with which goal (a ratio, or for p99 a part).
LOADS = [
    ("write, 8 connections x 32 in flight", ["write", *PIPELINED], "cpu", 12),
    ("read, 8 connections x 32 in flight", ["read", *PIPELINED], "cpu", 12),
    ("write, 32 connections x 1 in flight", ["write", *SINGLE], "cpu", 5),
    ("read, 32 connections x 1 in flight", ["read", *SINGLE], "cpu", 5),
    ("mixed, open loop of RATE/s", ["mixed", "-c", "32", "-f", "64", "--rate", "RATE"], "p99", 20),
    ("slices of 500 rows, 8 connections x 4 in flight", ["wide-partition", "-c", "8", "-f", "4"], "cpu", 12),
]  # fmt: skip


class Pinned:
    """A server that is started on one core; `start` waits until it lets clients in."""

    def __init__(self, server, core, nice):
        server.command = pinned(core, nice, server.command)
        self.server = server

    @property
    def pid(self):
        return self.server.process.pid


def pinned(core, nice, command):
    """A command on one core, before other work of the machine where that is allowed (else nice warns and continues)."""
    return ["nice", "-n", str(nice), "taskset", "-c", str(core), *command]


def cpu_seconds(pid):
    """CPU time that a process has used, all threads, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_megabytes(pid):
    """Memory of a process."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) / 1024


def idle(pid, seconds):
    """CPU in percent of a core, and memory, of a server that nobody talks to."""
    before, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    used = (cpu_seconds(pid) - before) / (time.monotonic() - begun)
    return {"cpu_percent": round(100 * used, 2), "memory_megabytes": round(resident_megabytes(pid), 1)}


class Run:
    """The options, and the folder of one comparison."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.torc = options.torc or build()
        self.seconds, self.warmup = options.seconds or (6 if options.quick else 20), 3 if options.quick else 5

    def load(self, server, arguments, seconds, warmup, value_size=100):
        """One run of the load generator: its figures."""
        file = os.path.join(self.folder, "load.json")
        keys = [] if arguments[0] == "wide-partition" else ["--keys", str(self.options.keys)]
        command = [
            *pinned(self.options.client_core, self.options.nice, [self.torc]), "bench", "load", *arguments, *keys,
            "--host", server.server.host, "--value-size", str(value_size), "--duration", f"{seconds}s",
            "--warmup", f"{warmup}s", "--server-pid", str(server.pid), "--json", file, "--quiet",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)}:\n{done.stdout}\n{server.server.log_tail()}")
        with open(file, encoding="utf-8") as figures:
            return json.load(figures)

    def measure(self, name, server, heat_seconds):
        """All figures of one server."""
        result = {"loads": {}}
        say(f"{name}: starting")
        # A JVM on a core that it has to share may take minutes.
        result["start_seconds"] = round(server.server.start(600), 3)
        try:
            time.sleep(3)
            result["idle_before"] = idle(server.pid, 5 if self.options.quick else 10)
            if heat_seconds:
                say(f"{name}: warming for {heat_seconds} s")
                self.load(server, ["mixed", *PIPELINED], heat_seconds, 0)
            for title, arguments, _, _ in LOADS:
                arguments = [part.replace("RATE", str(self.options.rate)) for part in arguments]
                figures = self.load(server, arguments, self.seconds, self.warmup)
                result["loads"][title] = figures
                say(f"{name}: {title}: {describe(figures)}")
            time.sleep(5)
            result["idle_after"] = idle(server.pid, 5 if self.options.quick else 10)
        finally:
            server.server.stop(60)
        return result


def say(text):
    print(text, file=sys.stderr, flush=True)


def build():
    """The program, built for speed."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    subprocess.run(["cargo", "build", "-q", "--release", "-p", "torc"], cwd=ROOT, check=True)
    return os.path.join(target, "release", "torc")


def cpu(figures):
    return figures["server"]["cpu_micros_per_operation"]["total"]


def p99(figures):
    """Of the slower kind, in milliseconds; none when a server was so late that nothing due in time was answered."""
    return max((kind["p99"] / 1000 for kind in figures["latency_micros"].values()), default=None)


def describe(figures):
    errors = sum(error["count"] for error in figures["errors"].values())
    late = "-" if p99(figures) is None else f"{p99(figures):.2f}"
    return (
        f"{cpu(figures):.2f} us of server CPU, {figures['operations_per_second']:.0f}/s, p99 {late} ms, "
        f"client {figures['client_cpu_micros_per_operation']['total']:.2f} us"
        + (f", {errors} errors" if errors else "")
        + (f", {figures['unsent']} unsent" if figures["unsent"] else "")
    )


def instructions(torc):
    """Instructions an operation under callgrind, and the functions that take them, as text; none without valgrind."""
    script = os.path.join(HERE, "callgrind.sh")
    done = subprocess.run([script], env=dict(os.environ, TORC=torc), stdout=subprocess.PIPE, text=True)
    return done.stdout if done.returncode == 0 else None


def markdown(results, options):
    """The report."""
    torc, cassandra = results["servers"].get("torc"), results["servers"].get("cassandra")
    lines = [
        f"# Benchmarks of {results['date']}",
        "",
        f"{results['machine']}. Server on core {options.server_core}, client on core {options.client_core}, 100-byte "
        f"values, {options.keys:,} keys, one node, one copy. Load average of the machine at the start "
        f"{results['load_average_before']:.1f}, at the end {results['load_average_after']:.1f}"
        + (
            ": **other work shared the machine** (CPU an operation is what it disturbs least; latencies it does disturb)."
            if results["load_average_before"] > 1.5 else "."
        )
        + f" Servers and clients of both ran at niceness {options.nice}.",
        "",
        f"Commit {results['commit']}." + (" A quick run: short, and Cassandra barely warm." if options.quick else ""),
        "",
        "| | Torc | Cassandra 5.0.6 | ratio | goal |",
        "|---|---:|---:|---:|---:|",
    ]

    def shown(title):
        return title.replace("RATE", f"{options.rate:,}")

    def row(title, get, digits, unit, goal, smaller=True):
        left, right = (get(server) if server else None for server in (torc, cassandra))
        cells = [f"{value:,.{digits}f} {unit}" if value is not None else "–" for value in (left, right)]
        ratio = ""
        if left is not None and right is not None and min(left, right) > 0:
            ratio = f"{(right / left if smaller else left / right):.1f}×"
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {ratio} | {goal} |")

    def of(title, get):
        return lambda server: get(server["loads"][title]) if title in server["loads"] else None

    for title, _, figure, goal in LOADS:
        row(f"{shown(title)}: server CPU", of(title, cpu), 2, "µs", f"{goal}×" if figure == "cpu" else "")
        row(f"{shown(title)}: rate", of(title, lambda f: f["operations_per_second"]), 0, "/s", "", False)
        row(f"{shown(title)}: p99", of(title, p99), 2, "ms", f"{goal}×" if figure == "p99" else "")
    row("start", lambda server: server["start_seconds"], 2, "s", "0.5 s")
    row("idle memory", lambda server: server["idle_before"]["memory_megabytes"], 0, "MB", "100 MB")
    row("idle CPU, of a core", lambda server: server["idle_before"]["cpu_percent"], 2, "%", "near 0")
    row("memory after the load", lambda server: server["idle_after"]["memory_megabytes"], 0, "MB", "")
    client = [
        figures["client_cpu_micros_per_operation"]["total"]
        for server in (torc, cassandra) if server
        for title, figures in server["loads"].items() if "8 connections x 32" in title
    ]  # fmt: skip
    lines += ["", f"The load generator itself took {min(client):.2f} to {max(client):.2f} µs of CPU a pipelined operation."]
    troubles = [
        f"- {name}, {shown(title)}: {kind}: {error['count']} ({error['first']})"
        for name, server in results["servers"].items()
        for title, figures in server["loads"].items()
        for kind, error in figures["errors"].items()
    ]
    troubles += [
        f"- {name}, {shown(title)}: {figures['unsent']} operations were due and never sent"
        for name, server in results["servers"].items()
        for title, figures in server["loads"].items() if figures["unsent"]
    ]  # fmt: skip
    if troubles:
        lines += ["", "Errors:", "", *troubles]
    if results.get("instructions"):
        lines += ["", "`torc bench simple-query` under callgrind (goals: 6,000 a read, 9,000 a write):", "", "```"]
        lines += [*results["instructions"].rstrip().splitlines(), "```"]
    return "\n".join(lines) + "\n"


def begin(quick):
    """The head of results: date, machine, and version."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "commit": commit.stdout.strip() or "unknown",
        "quick": quick,
        "load_average_before": os.getloadavg()[0],
        "servers": {},
    }


def keep(results, name, text):
    """Writes results for programs and for people, and prints the latter."""
    os.makedirs(os.path.join(HERE, "results"), exist_ok=True)
    path = os.path.join(HERE, "results", name)
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    with open(path + ".md", "w", encoding="utf-8") as file:
        file.write(text)
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs, for a look")
    parser.add_argument("--torc", help="the program (built when not given)")
    parser.add_argument("--only", choices=["torc", "cassandra"], help="measure one server only")
    parser.add_argument("--name", default=datetime.date.today().isoformat(), help="name of the results")
    parser.add_argument("--address", default="127.0.5.4", help="loopback address of the servers")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--keys", type=int, default=None, help="keys (100,000; quick 20,000)")
    parser.add_argument("--rate", type=int, default=10_000, help="operations a second of the open loop")
    parser.add_argument("--seconds", type=int, help="length of each load (20; quick 6)")
    parser.add_argument("--heat", type=int, help="seconds for which Cassandra is warmed (60; quick 10)")
    parser.add_argument("--nice", type=int, default=-15, help="niceness of servers and clients alike (-15)")
    parser.add_argument("--no-instructions", action="store_true", help="leave callgrind out")
    options = parser.parse_args()
    options.keys = options.keys or (20_000 if options.quick else 100_000)
    results = begin(options.quick)
    with tempfile.TemporaryDirectory(prefix="torc-bench-") as folder:
        run = Run(options, folder)
        if options.only != "cassandra":
            place = os.path.join(folder, "torc")
            os.makedirs(place)
            server = Torc(run.torc, place, host=options.address, shards=1)
            results["servers"]["torc"] = run.measure("Torc", Pinned(server, options.server_core, options.nice), 0)
        if options.only != "torc":
            server = Oracle(os.path.join(folder, "cassandra"), host=options.address, environment={"HEAP": "2G"})
            heat = options.heat or (10 if options.quick else 60)
            results["servers"]["cassandra"] = run.measure("Cassandra", Pinned(server, options.server_core, options.nice), heat)
        if not options.no_instructions and options.only != "cassandra":
            say("callgrind")
            results["instructions"] = instructions(run.torc)
    results["load_average_after"] = os.getloadavg()[0]
    keep(results, options.name, markdown(results, options))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bench: {failure}")
