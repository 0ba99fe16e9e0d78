"""Environments that tests run in: made once, kept in the cache, found again by a hash of their content.

As a program: `environment.py venv NAME PACKAGE…` prints the path of a virtual environment with these packages.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("TORC_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "torc")


class Failure(Exception):
    """Something that the machine lacks or that could not be fetched; the text has the remedy."""


def run(command, what, **options):
    """Runs a command quietly; its output is shown only when it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    except FileNotFoundError:
        raise Failure(f"{what}: {command[0]} is not installed") from None
    if done.returncode != 0:
        raise Failure(f"{what} failed ({' '.join(command)}):\n{done.stdout[-4000:]}")
    return done.stdout


def folder(name, ingredients, make):
    """The folder `name-HASH` of the cache, made by `make(path)` when it is not there or was not finished.

    `ingredients` are strings that decide the content: version numbers, or the text of a lock file.
    """
    digest = hashlib.sha256("\0".join(ingredients).encode()).hexdigest()[:12]
    path = os.path.join(CACHE, f"{name}-{digest}")
    ready = os.path.join(path, ".ready")
    if os.path.exists(ready):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(ready):
            print(f"installing {name} into {path}", file=sys.stderr, flush=True)
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
            make(path)
            open(ready, "w").close()
    return path


def python_program():
    """A Python that the drivers have wheels for: 3.11 when it is there, else this one."""
    for name in ("python3.11", sys.executable):
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    raise Failure("Python 3.11 is not installed")


def venv(name, packages):
    """A virtual environment with these packages; its path."""
    program = python_program()

    def make(path):
        run([program, "-m", "venv", path], "making a virtual environment (Debian: apt-get install python3-venv)")
        pip = os.path.join(path, "bin", "pip")
        run([pip, "install", "-q", "--disable-pip-version-check", *packages], f"pip install {' '.join(packages)}")

    return folder(os.path.join("python", name), [program, *packages], make)


def read(*parts):
    """The text of a file of the repository."""
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def target_folder():
    """Where cargo builds, as `dev` decides it."""
    return os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))


if __name__ == "__main__":
    try:
        if len(sys.argv) < 4 or sys.argv[1] != "venv":
            raise Failure(__doc__)
        print(venv(sys.argv[2], sys.argv[3:]))
    except Failure as failure:
        sys.exit(f"environment: {failure}")
