"""PynamoDB, an object mapper for DynamoDB, against the DynamoDB API of a running node: `pynamo.py HOST CQL_PORT torc`."""

import datetime
import os
import sys
import uuid

os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", AWS_DEFAULT_REGION="us-east-1")

from pynamodb.attributes import (
    BinaryAttribute, BooleanAttribute, JSONAttribute, ListAttribute, MapAttribute, NumberAttribute, NumberSetAttribute, TTLAttribute,
    UnicodeAttribute, UnicodeSetAttribute, UTCDateTimeAttribute, VersionAttribute,
)  # fmt: skip
from pynamodb.connection import Connection
from pynamodb.exceptions import PutError, TransactWriteError, UpdateError
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex, IncludeProjection, LocalSecondaryIndex
from pynamodb.models import Model
from pynamodb.transactions import TransactGet, TransactWrite

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import check, finish  # noqa: E402

URL = f"http://{sys.argv[1]}:{os.environ.get('TEST_DYNAMODB_PORT', '8000')}"
START = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
REFUSED = "ConditionalCheckFailedException"


class Settings:
    host = URL
    region = "us-east-1"


class ByAge(GlobalSecondaryIndex):
    class Meta(Settings):
        index_name = "by_age"
        projection = AllProjection()
        read_capacity_units = write_capacity_units = 1

    age = NumberAttribute(hash_key=True)
    name = UnicodeAttribute(range_key=True)


class ByDate(LocalSecondaryIndex):
    class Meta(Settings):
        index_name = "by_date"
        projection = IncludeProjection(["age"])

    org = UnicodeAttribute(hash_key=True)
    created = UTCDateTimeAttribute(range_key=True)


class Address(MapAttribute):
    street = UnicodeAttribute()
    number = NumberAttribute(null=True)


class User(Model):
    class Meta(Settings):
        table_name = "pynamo_" + uuid.uuid4().hex[:10]
        read_capacity_units = write_capacity_units = 1

    org = UnicodeAttribute(hash_key=True)
    name = UnicodeAttribute(range_key=True)
    age = NumberAttribute(default=0)
    created = UTCDateTimeAttribute(null=True)
    address = Address(null=True)
    tags = UnicodeSetAttribute(null=True)
    items = ListAttribute(null=True)
    flag = BooleanAttribute(default=False)
    document = JSONAttribute(null=True)
    data = BinaryAttribute(null=True, legacy_encoding=False)
    numbers = NumberSetAttribute(null=True)
    expires = TTLAttribute(null=True)
    version = VersionAttribute()
    by_age = ByAge()
    by_date = ByDate()


connection = Connection(region="us-east-1", host=URL)


def refused(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError("it was carried out")


def test_table():
    assert not User.exists()
    # With its time to live.
    User.create_table(wait=True)
    assert User.exists()


def test_batch_and_get():
    with User.batch_write() as batch:
        for at in range(60):
            batch.save(User(
                "o", f"n{at:02}", age=at % 7, created=START + datetime.timedelta(days=at), address=Address(street="s", number=at),
                tags={"a", "b"}, items=[1, "x", {"q": 2}], document={"a": [1]}, data=b"\x00\x01", numbers={1, 2.5},
            ))  # fmt: skip
    user = User.get("o", "n05")
    found = (user.address.number, user.tags, user.items[2]["q"], user.document, user.data, user.numbers)
    assert found == (5, {"a", "b"}, 2, {"a": [1]}, b"\x00\x01", {1, 2.5}), found
    assert len(list(User.batch_get([("o", f"n{at:02}") for at in range(60)]))) == 60


def test_queries():
    assert [user.name for user in User.query("o", User.name.startswith("n1"))] == [f"n1{at}" for at in range(10)]
    found = User.query("o", User.name.between("n10", "n20"), User.age > 3, scan_index_forward=False, limit=4)
    assert [user.name for user in found] == ["n20", "n19", "n18", "n13"]
    assert len(list(User.by_age.query(3))) == 9
    assert len(list(User.by_age.query(3, User.name > "n30", User.tags.contains("a")))) == 5
    assert [user.age for user in User.by_date.query("o", User.created >= START + datetime.timedelta(days=57))] == [1, 2, 3]
    assert User.count("o") == 60 and User.count("o", filter_condition=User.age == 3) == 9
    pages = User.query("o", limit=10, page_size=3)
    first = [user.name for user in pages]
    rest = [user.name for user in User.query("o", last_evaluated_key=pages.last_evaluated_key)]
    assert len(first) == 10 and len(rest) == 50 and not set(first) & set(rest)


def test_scans():
    assert len(list(User.scan(User.age.is_in(1, 2) & ~User.address.number.exists()))) == 0
    assert sum(len(list(User.scan(segment=at, total_segments=2))) for at in range(2)) == 60


def test_updates():
    user = User.get("o", "n05")
    user.update(actions=[
        User.age.set(User.age + 5), User.tags.add({"z"}), User.address.number.set(99), User.items.set(User.items.append([7])),
        User.flag.set(True),
    ])  # fmt: skip
    user.refresh()
    assert (user.age, user.address.number, user.items[-1], user.flag) == (10, 99, 7, True) and "z" in user.tags
    condition = (User.age == 10) & User.address.street.exists() & User.tags.contains("z")
    user.update(actions=[User.tags.delete({"z"}), User.document.remove(), User.items[0].remove()], condition=condition)
    assert (user.tags, user.document, len(user.items)) == ({"a", "b"}, None, 3)


def test_conditions():
    user = User.get("o", "n05")
    error = refused(UpdateError, lambda: user.update(actions=[User.age.set(1)], condition=User.age == 999))
    assert error.cause_response_code == REFUSED, error
    error = refused(PutError, lambda: User("o", "n06").save(condition=User.name.does_not_exist()))
    assert error.cause_response_code == REFUSED, error
    stale, fresh = User.get("o", "n07"), User.get("o", "n07")
    fresh.save()
    error = refused(PutError, stale.save)
    assert error.cause_response_code == REFUSED, error


def test_transactions():
    with TransactWrite(connection=connection, client_request_token=str(uuid.uuid4())) as transaction:
        transaction.condition_check(User, "o", "n10", condition=User.age.exists())
        transaction.delete(User.get("o", "n11"))
        transaction.save(User("o", "new", age=1))
        transaction.update(User.get("o", "n12"), actions=[User.age.set(50)])
    with TransactGet(connection=connection) as transaction:
        found = [transaction.get(User, "o", name) for name in ("n12", "new")]
    assert [one.get().age for one in found] == [50, 1]

    def fails():
        with TransactWrite(connection=connection) as transaction:
            transaction.condition_check(User, "o", "n10", condition=User.age == 12345)
            transaction.save(User("o", "no", age=1))

    reasons = refused(TransactWriteError, fails).cancellation_reasons
    assert reasons[0].code == "ConditionalCheckFailed" and User.count("o", User.name == "no") == 0, reasons


check("table", test_table)
check("batch_and_get", test_batch_and_get)
check("queries", test_queries)
check("scans", test_scans)
check("updates", test_updates)
check("conditions", test_conditions)
check("transactions", test_transactions)
try:
    User.delete_table()
except Exception as error:
    print(f"could not clean up: {error}")
finish()
