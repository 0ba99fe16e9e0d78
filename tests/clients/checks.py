"""Shared by the clients in Python: a line for each test, and the sum at the end."""

import os
import sys
import traceback

counts = {"passed": 0, "failed": 0}


def check(name, test):
    """Runs one test and prints its line."""
    try:
        test()
    except Exception as error:  # every failure is reported, none ends the run
        counts["failed"] += 1
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"FAIL {name}: {type(error).__name__}: {str(error)[:400]} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})")
        for frame in traceback.extract_tb(error.__traceback__):
            if os.path.basename(frame.filename) == os.path.basename(sys.argv[0]):
                print(f"     at line {frame.lineno}: {frame.line}")
    else:
        counts["passed"] += 1
        print(f"ok {name}")


def finish():
    """Prints the sum and ends the program, which fails too when nothing has passed."""
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


def run_all(tests, shutdown):
    """Runs the functions of a module that begin with `test_`, in their order, and ends the program."""
    try:
        for name, test in list(tests.items()):
            if name.startswith("test_"):
                check(name.removeprefix("test_"), test)
    finally:
        shutdown()
    finish()
