"""Requests for two servers of the DynamoDB API: tables, documents, expressions, some of them wrong. A seed decides everything."""

import random

ATTRIBUTES = ["a", "b", "c", "d", "nested", "list", "set"]
TABLES = [
    {"TableName": "plain", "keys": [("p", "S")]},
    {"TableName": "sorted", "keys": [("p", "S"), ("r", "N")]},
    {"TableName": "bytes", "keys": [("p", "B"), ("r", "S")]},
    {"TableName": "indexed", "keys": [("p", "S"), ("r", "N")],
     "indexes": {"by_a": [("a", "N")], "by_b_r": [("b", "S"), ("r", "N")], "by_r": [("r", "N"), ("a", "N")]},
     "local": {"by_p_a": [("p", "S"), ("a", "N")]}},
]
NUMBERS = ["0", "1", "-1", "2.50", "1e3", "-0.001", "99999999999999999999", "1E-10", "3", "7"]
STRINGS = ["", "a", "ab", "b", "zebra", "\u00e9", "10"]


class Generator:
    """The requests of one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one_of(self, *choices):
        """One of some things."""
        return self.random.choice(choices)

    def chance(self, percent):
        """True in so many of a hundred cases."""
        return self.random.randrange(100) < percent

    # ---- values

    def number(self):
        return {"N": self.one_of(*NUMBERS)}

    def string(self):
        return {"S": self.one_of(*STRINGS)}

    def binary(self):
        return {"B": self.one_of("", "AA==", "AAE=", "/w==")}

    def value(self, depth=2):
        """A value of any type."""
        simple = [self.number, self.number, self.string, self.string, self.binary]
        simple += [lambda: {"BOOL": self.chance(50)}, lambda: {"NULL": True}]
        sets = [
            lambda: {"SS": sorted(self.random.sample(STRINGS[1:], self.random.randrange(1, 4)))},
            lambda: {"NS": self.random.sample(["1", "2", "3", "4.5"], self.random.randrange(1, 4))},
        ]
        nested = [
            lambda: {"L": [self.value(depth - 1) for _ in range(self.random.randrange(4))]},
            lambda: {"M": {name: self.value(depth - 1) for name in self.random.sample("xyz", self.random.randrange(4))}},
        ]
        return self.random.choice(simple + sets + (nested if depth else []))()

    def key_value(self, kind):
        """A value of a key; seldom one that no key may have."""
        if self.chance(2):
            return self.value(0)
        if kind == "N":
            return {"N": self.one_of("1", "2", "3.0", "-1")}
        return {"S": self.one_of("k", "l", "m")} if kind == "S" else {"B": self.one_of("AA==", "AQ==")}

    def key(self, table):
        """A key of a table; seldom one that lacks a part or has too much."""
        key = {name: self.key_value(kind) for name, kind in table["keys"]}
        if self.chance(2):
            key.pop(self.one_of(*key))
        if self.chance(1):
            key["other"] = self.string()
        return key

    def item(self, table):
        """An item with its key."""
        item = {name: self.value() for name in self.random.sample(ATTRIBUTES, self.random.randrange(5))}
        if self.chance(60):
            item["a"] = self.number()
        item.update(self.key(table))
        return item

    # ---- expressions

    def expressions(self):
        """An empty set of names and values."""
        return {"names": {}, "values": {}}

    def path(self, used, depth=0):
        """A path into a document."""
        name = self.one_of(*ATTRIBUTES)
        if self.chance(25):
            used["names"]["#" + name] = name
            name = "#" + name
        for _ in range(self.one_of(0, 0, 0, 1, 2)):
            name += self.one_of(".x", ".y", "[0]", "[1]", "[9]")
        return name

    def operand(self, used, value=None):
        """A value by its name."""
        name = f":v{len(used['values'])}"
        used["values"][name] = value or self.value(1)
        return name

    def condition(self, used, depth=2):
        """A condition."""
        path = self.path(used)
        kind = self.random.randrange(12 if depth else 8)
        if kind == 0:
            return f"attribute_exists({path})"
        if kind == 1:
            return f"attribute_not_exists({path})"
        if kind == 2:
            types = ("S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS")
            return f"attribute_type({path}, {self.operand(used, {'S': self.one_of(*types)})})"
        if kind == 3:
            return f"begins_with({path}, {self.operand(used, self.string())})"
        if kind == 4:
            return f"contains({path}, {self.operand(used)})"
        if kind == 5:
            low, high = sorted(self.random.sample(["1", "2", "3", "9"], 2))
            return f"{path} BETWEEN {self.operand(used, {'N': low})} AND {self.operand(used, {'N': high})}"
        if kind == 6:
            return f"{path} IN ({', '.join(self.operand(used) for _ in range(self.random.randrange(1, 4)))})"
        if kind == 7:
            return f"size({path}) {self.one_of('=', '<', '>=')} {self.operand(used, {'N': self.one_of('0', '1', '3')})}"
        if kind in (8, 9):
            return f"({self.condition(used, depth - 1)}) {self.one_of('AND', 'OR')} ({self.condition(used, depth - 1)})"
        if kind == 10:
            return f"NOT {self.condition(used, depth - 1)}"
        return f"{path} {self.one_of('=', '<>', '<', '<=', '>', '>=')} {self.operand(used)}"

    def update(self, used):
        """An update expression."""
        clauses = []
        # Always: an update that only removes makes an item of none in DynamoDB Local, and none in AWS.
        sets = []
        for _ in range(self.random.randrange(1, 3)):
            path = self.path(used)
            source = self.one_of("value", "value", "plus", "if", "append", "path")
            if source == "plus":
                right = f"{path} {self.one_of('+', '-')} {self.operand(used, self.number())}"
            elif source == "if":
                right = f"if_not_exists({self.path(used)}, {self.operand(used)})"
            elif source == "append":
                right = f"list_append({path}, {self.operand(used, {'L': [self.value(0)]})})"
            elif source == "path":
                right = self.path(used)
            else:
                right = self.operand(used)
            sets.append(f"{path} = {right}")
        clauses.append("SET " + ", ".join(sets))
        if self.chance(30):
            clauses.append("REMOVE " + self.path(used))
        if self.chance(25):
            added = self.one_of(self.number(), {"NS": ["1", "9"]}, {"SS": ["a", "q"]})
            clauses.append(f"ADD {self.one_of('a', 'set', 'd')} {self.operand(used, added)}")
        if self.chance(15):
            clauses.append(f"DELETE {self.one_of('set', 'b')} {self.operand(used, {'SS': ['a']})}")
        self.random.shuffle(clauses)
        return " ".join(clauses)

    def with_names(self, request, used):
        """Adds the names and values that expressions of a request use."""
        if used["names"]:
            request["ExpressionAttributeNames"] = used["names"]
        if used["values"]:
            request["ExpressionAttributeValues"] = used["values"]
        return request

    # ---- the parameters of before expressions

    def legacy_test(self):
        """A comparison with its values; seldom one that does not fit."""
        operator = self.one_of("EQ", "NE", "LE", "LT", "GE", "GT", "NULL", "NOT_NULL", "CONTAINS", "NOT_CONTAINS", "BEGINS_WITH", "IN", "BETWEEN")
        if operator in ("NULL", "NOT_NULL"):
            values = []
        elif operator == "BETWEEN":
            low, high = sorted(self.random.sample(["1", "2", "3", "9"], 2))
            values = [{"N": low}, {"N": high}]
        elif operator == "IN":
            values = [self.one_of(self.number, self.string)() for _ in range(self.random.randrange(1, 4))]
        elif operator == "BEGINS_WITH":
            values = [self.string()]
        elif operator in ("LE", "LT", "GE", "GT"):
            values = [self.one_of(self.number, self.string, self.binary)()]
        else:
            values = [self.value(1)]
        if self.chance(4):
            values.append(self.value(0))
        test = {"ComparisonOperator": operator}
        if values or self.chance(30):
            test["AttributeValueList"] = values
        return test

    def legacy_conditions(self, request, parameter):
        """Adds conditions to a request, and seldom what joins them."""
        count = self.one_of(1, 1, 2, 3)
        conditions = {}
        for name in self.random.sample(ATTRIBUTES, count):
            if parameter == "Expected" and self.chance(40):
                conditions[name] = self.one_of({"Exists": False}, {"Value": self.value(1)}, {"Exists": True, "Value": self.value(1)})
                if self.chance(4):
                    conditions[name]["Exists"] = self.chance(50)
            else:
                conditions[name] = self.legacy_test()
        request[parameter] = conditions
        if self.chance(50 if count > 1 else 5):
            request["ConditionalOperator"] = self.one_of("AND", "OR")

    def legacy_updates(self):
        """`AttributeUpdates`"""
        updates = {}
        for at, name in enumerate(self.random.sample(ATTRIBUTES, self.one_of(1, 1, 2))):
            # One that only deletes makes an item of none in DynamoDB Local, as an update expression that only removes.
            action = self.one_of("PUT", "PUT", "ADD", "ADD", None) if at == 0 else self.one_of("ADD", "DELETE", "DELETE", None)
            update = {"Action": action} if action else {}
            if action == "ADD" and not self.chance(10):
                update["Value"] = self.one_of(self.number(), self.number(), {"SS": ["a", "q"]}, {"NS": ["1", "9"]}, {"L": [self.value(0)]})
            elif action == "DELETE":
                if self.chance(50):
                    update["Value"] = self.one_of({"SS": ["a"]}, {"NS": ["1"]}, self.value(0))
            elif not self.chance(2):
                update["Value"] = self.value()
            updates[name] = update
        return updates

    def legacy_write(self, table):
        """A put, an update or a deletion without expressions."""
        request = {"TableName": table["TableName"]}
        operation = self.one_of("PutItem", "UpdateItem", "UpdateItem", "DeleteItem")
        if operation == "PutItem":
            request["Item"] = self.item(table)
        else:
            request["Key"] = self.key(table)
        if operation == "UpdateItem" and not self.chance(5):
            request["AttributeUpdates"] = self.legacy_updates()
        if self.chance(50):
            self.legacy_conditions(request, "Expected")
        if self.chance(60):
            values = ("ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW") if operation == "UpdateItem" else ("ALL_OLD",)
            request["ReturnValues"] = self.one_of(*values)
        if self.chance(2):
            request["ConditionExpression"] = "attribute_exists(a)"
        return operation, request

    def legacy_read(self, table):
        """A read without expressions."""
        request = {"TableName": table["TableName"], "ConsistentRead": True}
        operation = self.one_of("GetItem", "Scan", "Query", "Query")
        if operation == "GetItem":
            request["Key"] = self.key(table)
        if operation == "Query":
            keys = table["keys"]
            if "indexes" in table and self.chance(60):
                indexes = {**table["indexes"], **table["local"]}
                index = request["IndexName"] = self.one_of(*indexes)
                request["ConsistentRead"] = index in table["local"]
                keys = indexes[index]
            (name, kind), *rest = keys
            conditions = {name: {"ComparisonOperator": "EQ", "AttributeValueList": [self.key_value(kind)]}}
            if rest and self.chance(60):
                name, kind = rest[0]
                operator = self.one_of("EQ", "LE", "LT", "GE", "GT", "BETWEEN", "BEGINS_WITH" if kind == "S" else "GE")
                values = [self.key_value(kind) for _ in range(2 if operator == "BETWEEN" else 1)]
                conditions[name] = {"ComparisonOperator": operator, "AttributeValueList": values}
            if self.chance(3):
                conditions[name]["ComparisonOperator"] = self.one_of("NE", "NULL", "CONTAINS", "GT")
            request["KeyConditions"] = conditions
            request["ScanIndexForward"] = self.chance(50)
        if operation != "GetItem" and self.chance(50):
            self.legacy_conditions(request, operation + "Filter")
        if self.chance(30):
            names = self.random.sample([*ATTRIBUTES, table["keys"][0][0]], self.one_of(1, 2, 3))
            request["AttributesToGet"] = names + (names[:1] if self.chance(4) else [])
        if self.chance(2):
            request["ProjectionExpression"] = "a"
        return operation, request

    # ---- requests

    def write(self, table, returns):
        """A put, an update or a deletion: operation and request."""
        used, request = self.expressions(), {"TableName": table["TableName"]}
        operation = self.one_of("PutItem", "PutItem", "UpdateItem", "UpdateItem", "UpdateItem", "DeleteItem")
        if operation == "PutItem":
            request["Item"] = self.item(table)
        else:
            request["Key"] = self.key(table)
        if operation == "UpdateItem":
            request["UpdateExpression"] = self.update(used)
        if self.chance(30):
            request["ConditionExpression"] = self.condition(used)
        if returns and self.chance(60):
            values = ("ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW") if operation == "UpdateItem" else ("ALL_OLD",)
            request["ReturnValues"] = self.one_of(*values)
        return operation, self.with_names(request, used)

    def transaction(self):
        """A TransactWriteItems of a few writes."""
        parts = []
        for _ in range(self.random.randrange(1, 4)):
            table = self.one_of(*TABLES)
            operation, request = self.write(table, False)
            parts.append({operation.removesuffix("Item"): request})
        return "TransactWriteItems", {"TransactItems": parts}

    def read(self, table):
        """A read: operation and request."""
        used, request = self.expressions(), {"TableName": table["TableName"], "ConsistentRead": True}
        operation = self.one_of("GetItem", "GetItem", "Scan", "Query")
        index = None
        if operation != "GetItem" and "indexes" in table and self.chance(70):
            index = request["IndexName"] = self.one_of(*table["indexes"], *table["local"])
            request["ConsistentRead"] = index in table["local"]
        if operation == "GetItem":
            request["Key"] = self.key(table)
        if operation == "Query":
            keys = table["keys"]
            if index:
                keys = {**table["indexes"], **table["local"]}[index]
            name, kind = keys[0]
            used["values"][":hash"] = self.key_value(kind)
            condition = f"{name} = :hash"
            if len(keys) > 1 and self.chance(60):
                name, kind = keys[1]
                used["values"][":range"] = self.key_value(kind)
                condition += f" AND {name} {self.one_of('=', '<', '<=', '>', '>=')} :range"
            request["KeyConditionExpression"] = condition
            request["ScanIndexForward"] = self.chance(50)
        if operation != "GetItem" and self.chance(40):
            request["FilterExpression"] = self.condition(used)
        if self.chance(30):
            request["ProjectionExpression"] = self.path(used)
        return operation, self.with_names(request, used)

    # ---- statements

    def literal(self, value):
        """A value as PartiQL writes it; none for one that it cannot write."""
        ((kind, inner),) = value.items()
        if kind == "S":
            return "'" + inner.replace("'", "''") + "'"
        if kind == "N":
            return inner
        if kind == "BOOL":
            return str(inner).lower()
        if kind == "NULL":
            return "null"
        if kind in ("SS", "NS"):
            return "<<" + ", ".join(self.literal({kind[0]: one}) for one in inner) + ">>"
        if kind == "L":
            parts = [self.literal(one) for one in inner]
            return None if None in parts else "[" + ", ".join(parts) + "]"
        if kind == "M":
            parts = [(name, self.literal(one)) for name, one in inner.items()]
            if any(text is None for _, text in parts):
                return None
            return "{" + ", ".join(f"'{name}': {text}" for name, text in parts) + "}"
        return None

    def term(self, parameters, value):
        """A value, written out or as a parameter."""
        text = self.literal(value) if self.chance(60) else None
        if text is None:
            parameters.append(value)
            return "?"
        return text

    def statement_path(self):
        """A path of a statement."""
        # `list` and `set` are words of DynamoDB Local's PartiQL.
        return f'"{self.one_of(*ATTRIBUTES)}"' + self.one_of("", "", "", "", ".x", "[0]", "['y']", ".x[1]")

    def statement_condition(self, parameters, depth=1):
        """A condition of a statement."""
        path, kind = self.statement_path(), self.random.randrange(11 if depth else 8)
        if kind == 0:
            return f"{path} IS {self.one_of('', 'NOT ')}MISSING"
        if kind == 1:
            return f"begins_with({path}, {self.term(parameters, self.string())})"
        if kind == 2:
            return f"contains({path}, {self.term(parameters, self.value(0))})"
        if kind == 3:
            low, high = sorted(self.random.sample(["1", "2", "3", "9"], 2))
            return f"{path} BETWEEN {self.term(parameters, {'N': low})} AND {self.term(parameters, {'N': high})}"
        if kind == 4:
            values = ", ".join(self.term(parameters, self.value(0)) for _ in range(self.random.randrange(1, 4)))
            return f"{path} IN ({values})"
        if kind == 5:
            return f"size({path}) {self.one_of('=', '<', '>=')} {self.one_of('0', '1', '3')}"
        if kind == 6:
            return f"attribute_type({path}, '{self.one_of('S', 'N', 'B', 'BOOL', 'NULL', 'L', 'M', 'SS', 'NS')}')"
        if kind in (8, 9):
            left = self.statement_condition(parameters, depth - 1)
            return f"({left} {self.one_of('AND', 'OR')} {self.statement_condition(parameters, depth - 1)})"
        if kind == 10:
            return f"NOT ({self.statement_condition(parameters, depth - 1)})"
        return f"{path} {self.one_of('=', '<>', '<', '<=', '>', '>=')} {self.term(parameters, self.value(1))}"

    def key_terms(self, table, parameters):
        """The equalities that a write needs."""
        key = {name: self.key_value(kind) for name, kind in table["keys"]}
        return " AND ".join(f"{name} = {self.term(parameters, value)}" for name, value in key.items())

    def assignment(self, parameters):
        """A SET of a statement."""
        path = self.statement_path()
        source = self.one_of("value", "value", "plus", "append", "if", "add")
        if source == "plus":
            right = f"{path} {self.one_of('+', '-')} {self.term(parameters, {'N': self.one_of('1', '2.5', '7')})}"
        elif source == "append":
            right = f"list_append({path}, {self.term(parameters, {'L': [self.value(0)]})})"
        elif source == "if":
            right = f"if_not_exists({self.statement_path()}, {self.term(parameters, self.value(0))})"
        elif source == "add":
            path = '"set"'
            right = f"{self.one_of('set_add', 'set_delete')}({path}, {self.term(parameters, {'SS': ['a', 'q']})})"
        else:
            right = self.term(parameters, self.value(1))
        return f"SET {path} = {right}"

    def statement(self):
        """A statement with its parameters: operation and request."""
        table, parameters = self.one_of(*TABLES), []
        name, kind = f'"{table["TableName"]}"', self.random.randrange(10)
        if kind < 3:
            item = self.item(table)
            members = ", ".join(f"'{one}': {self.term(parameters, value)}" for one, value in item.items())
            text = f"INSERT INTO {name} VALUE {{{members}}}"
        elif kind < 6:
            text = f"UPDATE {name} " + " ".join(self.assignment(parameters) for _ in range(self.random.randrange(1, 3)))
            if self.chance(20):
                text += " REMOVE " + self.statement_path()
            text += " WHERE " + self.key_terms(table, parameters)
            if self.chance(30):
                text += " AND " + self.statement_condition(parameters)
            if self.chance(60):
                text += f" RETURNING {self.one_of('ALL', 'MODIFIED')} {self.one_of('OLD', 'NEW')} *"
        elif kind < 7:
            text = f"DELETE FROM {name} WHERE " + self.key_terms(table, parameters)
            if self.chance(30):
                text += " AND " + self.statement_condition(parameters)
            if self.chance(60):
                text += " RETURNING ALL OLD *"
        else:
            what = "*" if self.chance(60) else ", ".join(self.random.sample(["a", "b", "c", "p"], 2))
            text = f"SELECT {what} FROM {name}"
            key, kind = table["keys"][0]
            parts = [f"{key} = {self.term(parameters, self.key_value(kind))}"]
            if len(table["keys"]) > 1 and self.chance(50):
                key, kind = table["keys"][1]
                sign = self.one_of("=", "<", "<=", ">", ">=")
                parts.append(f"{key} {sign} {self.term(parameters, self.key_value(kind))}")
            if self.chance(40):
                parts.append(self.statement_condition(parameters))
            text += " WHERE " + " AND ".join(parts)
        request = {"Statement": text, "ConsistentRead": True}
        if parameters:
            request["Parameters"] = parameters
        return "ExecuteStatement", request

    def request(self):
        """Any request; some writes ask for what they cost on each index."""
        operation, request = self.any_request()
        if operation in ("PutItem", "UpdateItem", "DeleteItem") and self.chance(30):
            request["ReturnConsumedCapacity"] = "INDEXES"
        return operation, request

    def any_request(self):
        """A request of any kind."""
        table = self.one_of(*TABLES)
        if self.chance(25):
            return self.statement()
        kind = self.random.randrange(10)
        if self.chance(20):
            return self.legacy_write(table) if kind < 6 else self.legacy_read(table)
        if kind < 6:
            return self.write(table, True)
        if kind < 7:
            return self.transaction()
        return self.read(table)
