"""Lightweight transactions: exact while a node is killed, and as a dissector sees them."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.policies import FallthroughRetryPolicy
from world import HERE, KEYSPACE, PATIENCE, Workers, check, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "wireshark"))

from dissect import decode  # noqa: E402

# Verbs of crates/network/rpc/src/verb.rs, kinds of docs/design/rpc.md.
PREPARE, PROPOSE, COMMIT = "32", "33", "34"
REQUEST, ANSWER = "1", "3"


class Counting(Workers):
    """Clients that add one to a register by compare and set."""

    def __init__(self, session, threads=4):
        super().__init__(threads)
        self.session = session
        self.add = session.prepare(f"UPDATE {KEYSPACE}.register SET n = ? WHERE k = 1 IF n = ?")
        # The driver's own policy sends a statement once more to another node when a connection ends, idempotent or not: the
        # second would refuse an update that the first had applied, and it would not be counted.
        self.add.retry_policy = FallthroughRetryPolicy()
        self.read = session.prepare(f"SELECT n FROM {KEYSPACE}.register WHERE k = 1")
        self.read.consistency_level = ConsistencyLevel.SERIAL
        self.applied, self.uncertain, self.wrong = 0, [], []
        self.lock = threading.Lock()

    def now(self):
        return self.session.execute(self.read).one().n

    def makes_progress(self, what):
        """Waits for twenty more that are applied."""
        enough = self.applied + 20
        wait_until(lambda: self.applied >= enough or self.wrong, f"twenty are applied {what}; {self.uncertain[:3]}")

    def work(self, _):
        while not self.stopping.is_set():
            try:
                known = self.now()
            except Exception:  # noqa: BLE001 - nothing was asked to change
                continue
            try:
                row = self.session.execute(self.add, (known + 1, known)).one()
            except InvalidRequest as error:
                self.wrong.append(repr(error))
                return
            except Exception as error:  # noqa: BLE001 - it may have happened or not
                with self.lock:
                    self.uncertain.append(repr(error))
                continue
            if row[0]:
                with self.lock:
                    self.applied += 1
            elif row.n == known:
                self.wrong.append(f"refused at {known} although that was there")


def counts(world):
    """Increments by compare and set while a node is killed: the register has each that was applied, and none twice."""
    world.session.execute(f"CREATE TABLE {KEYSPACE}.register (k int PRIMARY KEY, n int)")
    world.session.execute(f"INSERT INTO {KEYSPACE}.register (k, n) VALUES (1, 0) IF NOT EXISTS")
    with Counting(world.session) as counting:
        counting.makes_progress("with all nodes")
        world.nodes.all[1].kill()
        counting.makes_progress("with one killed")
        world.nodes.start(1)
        world.sees(1)
        counting.makes_progress("with all nodes again")
    check(not counting.wrong, f"{counting.wrong[:3]}")
    found, sure, open_ends = counting.now(), counting.applied, len(counting.uncertain)
    check(sure <= found <= sure + open_ends, f"{sure} were applied and {open_ends} are uncertain, but {found} are there")
    return f"{sure} applied, {open_ends} uncertain, {found} there"


def capture(world):
    """The messages between the nodes during one insertion IF NOT EXISTS, captured and dissected: two voters are asked three times."""
    if not shutil.which("tshark"):
        return "SKIPPED, there is no tshark"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lwt.pcap")
        hosts = " or ".join(f"host {address}" for address in world.nodes.addresses)
        command = ["tshark", "-q", "-i", "lo", "-w", path, "-f", f"tcp port 7000 and ({hosts})"]
        with open(os.path.join(folder, "tshark.log"), "w+", encoding="utf-8") as log:
            tshark = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                wait_until(lambda: os.path.exists(path) or tshark.poll() is not None, "tshark captures")
                if tshark.poll() is not None:
                    log.seek(0)
                    return f"SKIPPED, tshark may not capture here: {log.read().strip().splitlines()[-1]}"
                time.sleep(2)
                statement = world.session.prepare(f"INSERT INTO {KEYSPACE}.register (k, n) VALUES (?, 7) IF NOT EXISTS")
                check(world.session.execute(statement, (77,)).one()[0], "the row is new")
                time.sleep(2)
            finally:
                tshark.terminate()
                tshark.wait(PATIENCE)
        seen = {}
        for message in decode(path):
            if message.get("verb") in (PREPARE, PROPOSE, COMMIT) and message.get("kind") in (REQUEST, ANSWER):
                at = (message["verb"], message["kind"])
                seen[at] = seen.get(at, 0) + 1
    # The coordinator is a replica itself, so two others are asked.
    expected = {(verb, kind): 2 for verb in (PREPARE, PROPOSE, COMMIT) for kind in (REQUEST, ANSWER)}
    check(seen == expected, f"verbs and kinds of messages: {seen}, expected {expected}")
    return "2 requests and 2 answers each of prepare, propose and commit"


# The trace steps of each replica of a traced request, with any coordinator.
STEPS = {
    "INSERT INTO {}.traced (k, n) VALUES (1, 1) IF NOT EXISTS": ("Promising ballot", "Accepting proposal", "Committing proposal"),
    "UPDATE {}.traced SET n = 2 WHERE k = 1 IF n = 1": ("Promising ballot", "Accepting proposal", "Committing proposal"),
    "UPDATE {}.traced SET n = 3 WHERE k = 1 IF n = 1": ("Promising ballot",),
}


def traces(world):
    """TRACING ON of conditional statements and counters shows the steps of every replica, each under its own address."""
    session, everybody = world.session, set(world.nodes.addresses)
    session.execute(f"CREATE TABLE {KEYSPACE}.traced (k int PRIMARY KEY, n int)")
    session.execute(f"CREATE TABLE {KEYSPACE}.counted (k int PRIMARY KEY, n counter)")

    def steps(text, level=None):
        """The activities by source, as a function: replicas write theirs when nobody waits any more."""
        statement = session.prepare(text.format(KEYSPACE))
        statement.consistency_level = level or ConsistencyLevel.ALL
        session_id = session.execute(statement, trace=True).get_query_trace(max_wait_sec=20).trace_id

        def told():
            found = {}
            for event in session.execute(f"SELECT source, activity FROM system_traces.events WHERE session_id = {session_id}"):
                found.setdefault(str(event.source), []).append(event.activity)
            return found

        return told

    def say(told, activity):
        return {source for source, activities in told.items() if any(one.startswith(activity) for one in activities)}

    def all_say(told, activity, what):
        # A coordinator traces nothing of its own vote when the two others were faster: it has moved on by then.
        def missing():
            now = told()
            return everybody - say(now, activity) - say(now, "Preparing ")

        wait_until(lambda: not missing(), f"the replicas of {what} say '{activity}': {told()}", 20)
        check(say(told(), activity) <= everybody, f"they are the nodes: {told()}")

    for text, expected in STEPS.items():
        told = steps(text)
        # Only the coordinator traces the rounds; the condition is read at the replicas.
        wait_until(lambda t=told: len(say(t(), "Preparing ")) == 1, f"one coordinates: {told()}", 20)
        for activity in expected:
            all_say(told, activity, text)
        wait_until(lambda t=told: len(say(t(), "Executing single-partition query")) >= 2, f"a quorum reads the row: {told()}", 20)
    told = steps("SELECT n FROM {}.traced WHERE k = 1", ConsistencyLevel.SERIAL)
    wait_until(lambda: len(say(told(), "Preparing ")) == 1, f"one coordinates a serial read: {told()}", 20)
    all_say(told, "Promising ballot", "a serial read")
    told = steps("UPDATE {}.counted SET n = n + 1 WHERE k = 1")
    wait_until(lambda: len(say(told(), "Added to the counters of")) == 1, f"one replica leads the counter: {told()}", 20)
    leader = say(told(), "Added to the counters of")
    wait_until(lambda: len(say(told(), "Appending to commitlog") - leader) == 2, f"two others get its state: {told()}", 20)
    return "all replicas, under their own addresses"


SCENARIOS = (("compare and set under kill -9", counts), ("a lightweight transaction on the wire", capture), ("traces of transactions and counters", traces))
