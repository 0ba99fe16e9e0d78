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
STALLED = re.compile(r"reactor stalled for (\d+) ms: ")
STALL_MAX_MS = int(os.environ.get("TEST_STALL_MAX_MS", "1000"))


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
        super().__init__(command, host, CQL_PORT, os.path.join(folder, "torc.log"))

    def start(self, seconds=20):
        return super().start(seconds)

    def longest_stall(self):
        """The longest time in milliseconds for which one task kept a shard, as the stall detector has logged it."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return max((int(millis) for millis in STALLED.findall(log.read())), default=0)

    def check_stalls(self):
        """A poll of a debug build that lasts longer than this is a defect, however busy the machine is."""
        millis = self.longest_stall()
        if millis > STALL_MAX_MS:
            raise Failure(f"a task kept its shard for {millis} ms; {self.log} has where, search for \"backtrace\"")


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
    """A throw-away folder; it stays, and its path is printed, when the test inside it failed."""

    def __init__(self, name):
        self.path = tempfile.mkdtemp(prefix=f"torc-{name}-")

    def __enter__(self):
        return self.path

    def __exit__(self, kind, _error, _trace):
        if kind is None or (kind is SystemExit and not _error.code):
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print(f"logs and data are left in {self.path}")
