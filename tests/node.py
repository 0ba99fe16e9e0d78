"""Starts and stops the servers that tests talk to: a Torc node, and the oracle."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from environment import ROOT, Failure

ADDRESS = os.environ.get("TEST_ADDRESS", "127.0.5.1")
ORACLE_ADDRESS = os.environ.get("TEST_ORACLE_ADDRESS", "127.0.5.2")
CQL_PORT = 9042
STALLED = re.compile(r"reactor stalled for (\d+) ms, (\d+) ms of them CPU time")
# CPU time of one poll in a debug build, however busy the machine is: a release build takes about a tenth of it.
STALL_MAX_MS = int(os.environ.get("TEST_STALL_MAX_MS", "200"))
LOG_NAME = "torc.log"


def answers(host, port, timeout=0.2):
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False


def free_port():
    """A port of 127.0.0.1 that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A child process with a log, which stops when the test ends."""

    def __init__(self, command, host, port, log, environment=None):
        self.command, self.host, self.port, self.log = command, host, port, log
        self.environment = environment
        self.process = None

    def start(self, seconds):
        """Starts the process and waits until its port answers; the seconds that it took."""
        if answers(self.host, self.port):
            raise Failure(f"something else listens on {self.host}:{self.port}; stop it, or set TEST_ADDRESS")
        begun = time.monotonic()
        environment = dict(os.environ, **(self.environment or {}))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        while not answers(self.host, self.port):
            if self.process.poll() is not None:
                raise Failure(f"{self.command[0]} ended with {self.process.returncode} at start:\n{self.log_tail()}")
            if time.monotonic() - begun > seconds:
                self.kill()
                raise Failure(f"{self.command[0]} was not ready in {seconds} s:\n{self.log_tail()}")
            time.sleep(0.005)
        return time.monotonic() - begun

    def log_tail(self, lines=25):
        """The end of the log."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def is_running(self):
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9, and wait until it is gone."""
        if self.is_running():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, seconds=30):
        """SIGTERM; the exit code. A server that does not end in time is killed, which is a failure."""
        if not self.is_running():
            return self.process.returncode if self.process else None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"{self.command[0]} did not stop in {seconds} s after SIGTERM") from None


class Torc(Server):
    """A Torc node under a folder of its own."""

    def __init__(self, binary, folder, host=ADDRESS, shards=2, options=()):
        self.data = os.path.join(folder, "data")
        command = [os.path.abspath(binary), "dev", "--address", host, "--shards", str(shards), "--dir", self.data, *options]
        super().__init__(command, host, CQL_PORT, os.path.join(folder, LOG_NAME))

    def start(self, seconds=20):
        return super().start(seconds)

    def longest_stall(self):
        """The CPU time in milliseconds of the longest poll, which kept everything else on a shard waiting."""
        return longest_stall(self.log)[1]


def longest_stall(path):
    """Of the stalls that the detector has logged there, the longest ones by the wall and by CPU time, milliseconds."""
    wall, cpu = 0, 0
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            found = STALLED.search(line)
            if found:
                wall, cpu = max(wall, int(found[1])), max(cpu, int(found[2]))
    return wall, cpu


def check_stalls(name, folder):
    """Fails when a poll of a Torc node whose log is below `folder` took more CPU time than a debug build may."""
    logs = [os.path.join(place, LOG_NAME) for place, _, files in os.walk(folder) if LOG_NAME in files]
    if not logs:
        return
    stalls = {log: longest_stall(log) for log in logs}
    wall, cpu = (max(times) for times in zip(*stalls.values()))
    print(f"{name}: the longest poll took {cpu} ms of CPU time ({STALL_MAX_MS} are allowed), {wall} ms by the wall", flush=True)
    for log, (_, millis) in stalls.items():
        if millis > STALL_MAX_MS:
            raise Failure(f"one task kept its shard for {millis} ms of CPU time; {log} has where, search for \"reactor\"")


class Oracle(Server):
    """An Apache Cassandra under a folder of its own."""

    def __init__(self, folder, host=ORACLE_ADDRESS, environment=None):
        self.folder = folder
        launcher = os.path.join(ROOT, "tests", "oracle", "cassandra")
        settings = {"HOST": host, "HEAP": "768M", "JMX": str(free_port()), **(environment or {})}
        super().__init__([launcher, "start", folder], host, CQL_PORT, os.path.join(folder, "cassandra.log"), settings)

    def start(self, seconds=180):
        os.makedirs(self.folder, exist_ok=True)
        return super().start(seconds)


class Workspace:
    """A throw-away folder; it stays, and its path is printed, when the test inside it failed, or a node that ran there stalled."""

    def __init__(self, name):
        self.name, self.path = name, tempfile.mkdtemp(prefix=f"torc-{name}-")

    def __enter__(self):
        return self.path

    def __exit__(self, kind, error, _trace):
        if kind is None or (kind is SystemExit and not error.code):
            try:
                check_stalls(self.name, self.path)
            except Failure:
                self.stays()
                raise
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.stays()

    def stays(self):
        print(f"logs and data are left in {self.path}")
