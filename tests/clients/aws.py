"""Errors of the AWS SDK, by code and text."""

from botocore.exceptions import ClientError


def refused(code, text, call, **arguments):
    """The call fails with this error, whose message contains the text; the response."""
    try:
        call(**arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error
        assert text in error.response["Error"]["Message"], error
        return error.response
    raise AssertionError(f"not refused: {call} {arguments}")
