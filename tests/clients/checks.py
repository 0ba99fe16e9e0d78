"""What clients in Python share: a line for each test, errors of the AWS SDK by code and text, and the sum at the end."""

import sys
import traceback

from botocore.exceptions import ClientError

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
            if frame.filename.endswith("client.py"):
                print(f"     at line {frame.lineno}: {frame.line}")
    else:
        counts["passed"] += 1
        print(f"ok {name}")


def refused(code, text, call, **arguments):
    """The call fails with this error, whose message contains the text; the response."""
    try:
        call(**arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error
        assert text in error.response["Error"]["Message"], error
        return error.response
    raise AssertionError(f"not refused: {call} {arguments}")


def finish():
    """Prints the sum and ends the program."""
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(1 if counts["failed"] else 0)
