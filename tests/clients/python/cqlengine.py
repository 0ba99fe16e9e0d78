"""The object mapper of the Python driver, cqlengine, with its own schema: `cqlengine.py HOST PORT torc|cassandra`."""

import datetime
import decimal
import os
import sys
import time
import uuid
import warnings

os.environ["CQLENG_ALLOW_SCHEMA_MANAGEMENT"] = "1"

from cassandra.cqlengine import columns, connection, functions, management, models, usertype
from cassandra.cqlengine.query import BatchQuery, LWTException

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import check, finish  # noqa: E402

KEYSPACE = "cqle_" + uuid.uuid4().hex[:10]
ORGANISATION = uuid.uuid4()
# The mapper says that a tuple is frozen, as both servers report it.
warnings.simplefilter("ignore")
connection.setup([sys.argv[1]], KEYSPACE, port=int(sys.argv[2]), protocol_version=4)


class Address(usertype.UserType):
    street = columns.Text()
    number = columns.Integer()
    tags = columns.Set(columns.Text)


class User(models.Model):
    __keyspace__ = KEYSPACE
    __options__ = {
        "compaction": {"class": "LeveledCompactionStrategy", "sstable_size_in_mb": "64"},
        "gc_grace_seconds": 3600, "comment": "users", "bloom_filter_fp_chance": 0.02,
    }  # fmt: skip
    organisation = columns.UUID(primary_key=True)
    name = columns.Text(primary_key=True, clustering_order="DESC")
    age = columns.Integer(index=True)
    balance = columns.Decimal()
    ratio = columns.Double()
    created = columns.DateTime()
    day = columns.Date()
    time = columns.Time()
    tags = columns.Set(columns.Text)
    numbers = columns.List(columns.Integer)
    counts = columns.Map(columns.Text, columns.Integer)
    address = columns.UserDefinedType(Address)
    motto = columns.Text(static=True)
    pair = columns.Tuple(columns.Text, columns.Integer)
    data = columns.Blob()
    large = columns.BigInt()
    huge = columns.VarInt()
    host = columns.Inet()
    flag = columns.Boolean()
    event = columns.TimeUUID()


class Counter(models.Model):
    __keyspace__ = KEYSPACE
    key = columns.Text(primary_key=True)
    count = columns.Counter()


def here():
    return User.objects(organisation=ORGANISATION)


def names(query):
    return [user.name for user in query]


def raises_lwt(action):
    try:
        action()
    except LWTException as error:
        return error.existing
    raise AssertionError("it was applied")


def test_schema():
    management.create_keyspace_network_topology(KEYSPACE, {"datacenter1": 1})
    management.sync_type(KEYSPACE, Address)
    for table in (User, Counter, User):
        management.sync_table(table)


def test_create_and_read():
    values = dict(
        balance=decimal.Decimal("1.5"), ratio=1.5, created=datetime.datetime(2026, 1, 2, 3, 4, 5, 6000), day=datetime.date(2020, 1, 2),
        time=datetime.time(1, 2, 3), tags={"a", "b"}, numbers=[1, 2], counts={"x": 1}, pair=("a", 1), data=b"\x01", large=2**40, huge=2**70,
        host="127.0.0.1", flag=True, event=uuid.uuid1(),
    )  # fmt: skip
    for at in range(20):
        address = Address(street="s", number=at, tags={"q"})
        User.create(organisation=ORGANISATION, name=f"n{at:02}", age=at % 5, motto="m", address=address, **values)
    user = User.get(organisation=ORGANISATION, name="n05")
    for name, value in values.items():
        assert getattr(user, name) == value or str(getattr(user, name)) == str(value), (name, getattr(user, name), value)
    assert (user.motto, user.address.number, user.address.tags) == ("m", 5, {"q"}), user


def test_queries():
    assert here().count() == 20
    assert names(here().limit(3)) == ["n19", "n18", "n17"]
    assert names(here().order_by("name").limit(3)) == ["n00", "n01", "n02"]
    assert len(here().filter(name__in=["n01", "n02"])) == 2
    assert names(here().filter(name__gt="n10", name__lte="n13")) == ["n13", "n12", "n11"]
    assert len(here().filter(tags__contains="a").allow_filtering()) == 20
    assert list(here().values_list("name", flat=True).limit(1)) == ["n19"]
    assert len(User.objects.distinct(["organisation"])) == 1
    assert len(User.objects.filter(pk__token__gte=functions.Token(ORGANISATION)).limit(5)) == 5


def test_index():
    # The index is built in the background.
    for _ in range(100):
        try:
            if len(User.objects(age=3)) == 4:
                break
        except Exception as error:
            assert "not yet available" in str(error), error
        time.sleep(0.1)
    assert len(User.objects(age=3)) == 4 and len(here().filter(age=3)) == 4


def test_updates():
    user = User.get(organisation=ORGANISATION, name="n05")
    user.tags.add("z")
    user.numbers = [*user.numbers, 9]
    user.counts["y"] = 2
    user.update()
    query = User.objects(organisation=ORGANISATION, name="n05")
    query.update(tags__add={"k"}, numbers__prepend=[0], counts__update={"w": 4}, age=44)
    query.update(tags__remove={"k"}, counts__remove={"w"})
    user = query.get()
    found = (user.age, user.tags, user.numbers, user.counts)
    assert found == (44, {"a", "b", "z"}, [0, 1, 2, 9], {"x": 1, "y": 2}), found


def test_conditions():
    query = User.objects(organisation=ORGANISATION, name="n05")
    assert raises_lwt(lambda: User.if_not_exists().create(organisation=ORGANISATION, name="n05"))["name"] == "n05"
    assert raises_lwt(lambda: query.iff(age=1).update(age=2))["age"] == 44
    query.iff(age=44).update(age=2)
    query.if_exists().update(age=3)
    assert query.get().age == 3


def test_batch_ttl_timestamp():
    with BatchQuery(timestamp=datetime.datetime.now()) as batch:
        User.batch(batch).create(organisation=ORGANISATION, name="zz", age=1)
        User.objects(organisation=ORGANISATION, name="n00").batch(batch).delete()
    assert names(here().limit(1)) == ["zz"] and here().count() == 20
    User.ttl(100).create(organisation=ORGANISATION, name="ttl")
    query = User.objects(organisation=ORGANISATION, name="ttl")
    query.ttl(50).update(age=1)
    query.timestamp(datetime.timedelta(seconds=-5)).update(age=3)
    assert query.get().age == 1


def test_counters():
    for number in (5, -2):
        Counter.objects(key="a").update(count=number)
    assert Counter.get(key="a").count == 3


check("schema", test_schema)
check("create_and_read", test_create_and_read)
check("queries", test_queries)
check("index", test_index)
check("updates", test_updates)
check("conditions", test_conditions)
check("batch_ttl_timestamp", test_batch_ttl_timestamp)
check("counters", test_counters)
try:
    management.drop_keyspace(KEYSPACE)
except Exception as error:
    print(f"could not clean up: {error}")
finish()
