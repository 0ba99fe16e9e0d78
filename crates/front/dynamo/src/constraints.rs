//! The constraints of requests' members that need neither a table nor the rest of the request. AWS looks at them before anything else and names all
//! that are broken in one message, up to ten. Their order is that of a hash map of Java, in which AWS keeps the members of a structure by their names.

use items::json;
use items::partiql::STATEMENT_MAX;
use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::request::{NAME_PATTERN, Request, broken, is_name_character, name_bound, place};

/// The constraints that a message names at most.
const BROKEN_MAX: usize = 10;

/// A constraint of a member that is given.
enum Rule {
    OneOf(&'static [&'static str]),
    /// A number, from the first to the second.
    Value(i64, i64),
    /// Bytes of a text.
    Length(usize, usize),
    /// Elements of a list.
    Count(usize, usize),
    /// A `KeySchema` of at most so many elements.
    Keys(usize),
    /// The name of an index or a backup.
    Name,
    /// The name of a table or its ARN.
    Table,
    /// Names of tables or their ARNs as those of members, of which there is one.
    Tables,
    /// A structure.
    Fields(&'static Shape),
    /// A list of structures.
    Elements(&'static Shape),
    /// A map with such values.
    Values(&'static Shape),
}

use Rule::{Count, Elements, Fields, Keys, Length, Name, OneOf, Table, Tables, Value, Values};

struct Member {
    name: &'static str,
    is_required: bool,
    rules: &'static [Rule],
}

/// A structure: the members that have constraints, of so many.
struct Shape {
    members: usize,
    constrained: &'static [Member],
}

const fn given(name: &'static str, rules: &'static [Rule]) -> Member {
    Member { name, is_required: false, rules }
}

const fn required(name: &'static str, rules: &'static [Rule]) -> Member {
    Member { name, is_required: true, rules }
}

const fn shape(members: usize, constrained: &'static [Member]) -> Shape {
    Shape { members, constrained }
}

const ANY: usize = usize::MAX;
const COMPARISONS: &[&str] = &[
    "IN",
    "NULL",
    "BETWEEN",
    "LT",
    "NOT_CONTAINS",
    "EQ",
    "GT",
    "NOT_NULL",
    "NE",
    "LE",
    "BEGINS_WITH",
    "GE",
    "CONTAINS",
];
const TABLE: Member = required("TableName", &[Table]);
const KEY: Member = required("Key", &[]);
const INDEX: Member = given("IndexName", &[Name]);
const CAPACITY: Member = given("ReturnConsumedCapacity", &[OneOf(&["INDEXES", "TOTAL", "NONE"])]);
const COLLECTIONS: Member = given("ReturnItemCollectionMetrics", &[OneOf(&["SIZE", "NONE"])]);
const RETURNS: Member =
    given("ReturnValues", &[OneOf(&["ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"])]);
const ON_FAILURE: Member = given("ReturnValuesOnConditionCheckFailure", &[OneOf(&["ALL_OLD", "NONE"])]);
const OPERATOR: Member = given("ConditionalOperator", &[OneOf(&["OR", "AND"])]);
const ATTRIBUTES: Member = given("AttributesToGet", &[Count(1, ANY)]);
const LIMIT: Member = given("Limit", &[Value(1, i32::MAX as i64)]);
const PAGE: Member = given("Limit", &[Value(1, 100)]);
const SELECT: Member = given(
    "Select",
    &[OneOf(&["SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"])],
);
const BILLING: Member = given("BillingMode", &[OneOf(&["PROVISIONED", "PAY_PER_REQUEST"])]);
const CLASS: Member = given("TableClass", &[OneOf(&["STANDARD", "STANDARD_INFREQUENT_ACCESS"])]);
const THROUGHPUT: Member = given("ProvisionedThroughput", &[Fields(&UNITS)]);
const INDEX_KEYS: Member = required("KeySchema", &[Keys(8)]);
const PROJECTION: Member = required("Projection", &[Fields(&PROJECTED)]);
const NEW_INDEX: Member = required("IndexName", &[Name]);
const ARN: &[Rule] = &[Length(37, 1024)];

const CONDITION: Shape =
    Shape { members: 2, constrained: &[required("ComparisonOperator", &[OneOf(COMPARISONS)])] };
const EXPECTATION: Shape =
    Shape { members: 4, constrained: &[given("ComparisonOperator", &[OneOf(COMPARISONS)])] };
const UNITS: Shape = Shape {
    members: 2,
    constrained: &[
        required("ReadCapacityUnits", &[Value(1, i64::MAX)]),
        required("WriteCapacityUnits", &[Value(1, i64::MAX)]),
    ],
};
const KEY_ELEMENT: Shape = Shape {
    members: 2,
    constrained: &[
        required("AttributeName", &[Length(1, 255)]),
        required("KeyType", &[OneOf(&["HASH", "RANGE"])]),
    ],
};
const DEFINITION: Shape = Shape {
    members: 2,
    constrained: &[
        required("AttributeName", &[Length(1, 255)]),
        required("AttributeType", &[OneOf(&["B", "N", "S"])]),
    ],
};
const PROJECTED: Shape = Shape {
    members: 2,
    constrained: &[
        given("ProjectionType", &[OneOf(&["ALL", "INCLUDE", "KEYS_ONLY"])]),
        given("NonKeyAttributes", &[Count(1, ANY)]),
    ],
};
const LOCAL_INDEX: Shape = Shape { members: 3, constrained: &[NEW_INDEX, INDEX_KEYS, PROJECTION] };
const GLOBAL_INDEX: Shape =
    Shape { members: 6, constrained: &[NEW_INDEX, INDEX_KEYS, PROJECTION, THROUGHPUT] };
const INDEX_UPDATE: Shape = Shape {
    members: 3,
    constrained: &[
        given("Create", &[Fields(&GLOBAL_INDEX)]),
        given("Update", &[Fields(&Shape { members: 4, constrained: &[NEW_INDEX, THROUGHPUT] })]),
        given("Delete", &[Fields(&Shape { members: 1, constrained: &[NEW_INDEX] })]),
    ],
};
const TIME_TO_LIVE: Shape = Shape {
    members: 2,
    constrained: &[required("AttributeName", &[Length(1, 255)]), required("Enabled", &[])],
};
const RECOVERY: Shape = Shape {
    members: 2,
    constrained: &[
        required("PointInTimeRecoveryEnabled", &[]),
        given("RecoveryPeriodInDays", &[Value(1, 35)]),
    ],
};
const RESTORED: [Member; 5] = [
    required("TargetTableName", &[Name]),
    given("BillingModeOverride", &[OneOf(&["PROVISIONED", "PAY_PER_REQUEST"])]),
    given("ProvisionedThroughputOverride", &[Fields(&UNITS)]),
    given("GlobalSecondaryIndexOverride", &[Elements(&GLOBAL_INDEX)]),
    given("LocalSecondaryIndexOverride", &[Elements(&LOCAL_INDEX)]),
];

/// The parameters of the operations on items.
fn items_shape(operation: &str) -> Option<&'static Shape> {
    const WRITE: Member = given("Expected", &[Values(&EXPECTATION)]);
    const PUT: Shape = shape(
        11,
        &[TABLE, required("Item", &[]), CAPACITY, COLLECTIONS, RETURNS, ON_FAILURE, OPERATOR, WRITE],
    );
    const DELETE: Shape =
        shape(11, &[TABLE, KEY, CAPACITY, COLLECTIONS, RETURNS, ON_FAILURE, OPERATOR, WRITE]);
    // The same members and others.
    const UPDATE: Shape = shape(13, DELETE.constrained);
    const GET: Shape = shape(7, &[TABLE, KEY, CAPACITY, ATTRIBUTES]);
    const FILTER: &[Rule] = &[Values(&CONDITION)];
    const QUERY: Shape = shape(
        17,
        &[
            TABLE,
            INDEX,
            LIMIT,
            SELECT,
            CAPACITY,
            ATTRIBUTES,
            OPERATOR,
            given("KeyConditions", FILTER),
            given("QueryFilter", FILTER),
        ],
    );
    const SCAN: Shape = shape(
        16,
        &[
            TABLE,
            INDEX,
            LIMIT,
            SELECT,
            CAPACITY,
            ATTRIBUTES,
            OPERATOR,
            given("ScanFilter", FILTER),
            given("Segment", &[Value(0, 999_999)]),
            given("TotalSegments", &[Value(1, 1_000_000)]),
        ],
    );
    Some(match operation {
        "PutItem" => &PUT,
        "GetItem" => &GET,
        "UpdateItem" => &UPDATE,
        "DeleteItem" => &DELETE,
        "Query" => &QUERY,
        "Scan" => &SCAN,
        _ => return None,
    })
}

/// The parameters of batches, transactions and statements.
fn batches_shape(operation: &str) -> Option<&'static Shape> {
    const BATCH_GET: Shape = shape(2, &[required("RequestItems", &[Tables]), CAPACITY]);
    const BATCH_WRITE: Shape = shape(3, &[required("RequestItems", &[]), CAPACITY, COLLECTIONS]);
    const TOKEN: Member = given("ClientRequestToken", &[Length(1, 36)]);
    const READ: Shape = shape(1, &[required("Get", &[Fields(&shape(4, &[TABLE, KEY]))])]);
    const CHECK: Rule = Fields(&shape(6, &[TABLE, KEY, required("ConditionExpression", &[]), ON_FAILURE]));
    const PART: Shape = shape(
        4,
        &[
            given("ConditionCheck", &[CHECK]),
            given("Put", &[Fields(&shape(6, &[TABLE, required("Item", &[]), ON_FAILURE]))]),
            given("Delete", &[Fields(&shape(6, &[TABLE, KEY, ON_FAILURE]))]),
            given(
                "Update",
                &[Fields(&shape(7, &[TABLE, KEY, required("UpdateExpression", &[]), ON_FAILURE]))],
            ),
        ],
    );
    const TRANSACT_GET: Shape =
        shape(2, &[required("TransactItems", &[Count(1, 100), Elements(&READ)]), CAPACITY]);
    const TRANSACT_WRITE: Shape = shape(
        4,
        &[required("TransactItems", &[Count(1, 100), Elements(&PART)]), TOKEN, CAPACITY, COLLECTIONS],
    );
    const STATEMENT: Member = required("Statement", &[Length(1, STATEMENT_MAX)]);
    const EXECUTE: Shape = shape(7, &[LIMIT, CAPACITY, ON_FAILURE]);
    const BATCH_EXECUTE: Shape = shape(
        2,
        &[required("Statements", &[Count(1, 25), Elements(&shape(4, &[STATEMENT, ON_FAILURE]))]), CAPACITY],
    );
    const TRANSACT_EXECUTE: Shape = shape(
        3,
        &[
            required("TransactStatements", &[Count(1, 100), Elements(&shape(3, &[STATEMENT, ON_FAILURE]))]),
            TOKEN,
            CAPACITY,
        ],
    );
    Some(match operation {
        "BatchGetItem" => &BATCH_GET,
        "BatchWriteItem" => &BATCH_WRITE,
        "TransactGetItems" => &TRANSACT_GET,
        "TransactWriteItems" => &TRANSACT_WRITE,
        "ExecuteStatement" => &EXECUTE,
        "BatchExecuteStatement" => &BATCH_EXECUTE,
        "ExecuteTransaction" => &TRANSACT_EXECUTE,
        _ => return None,
    })
}

/// The parameters of the operations on tables of which more than one has constraints.
fn tables_shape(operation: &str) -> Option<&'static Shape> {
    const CREATE: Shape = Shape {
        members: 18,
        constrained: &[
            TABLE,
            required("AttributeDefinitions", &[Elements(&DEFINITION)]),
            required("KeySchema", &[Keys(2)]),
            BILLING,
            CLASS,
            THROUGHPUT,
            given("GlobalSecondaryIndexes", &[Elements(&GLOBAL_INDEX)]),
            given("LocalSecondaryIndexes", &[Elements(&LOCAL_INDEX)]),
        ],
    };
    const UPDATE: Shape = Shape {
        members: 17,
        constrained: &[
            TABLE,
            BILLING,
            CLASS,
            THROUGHPUT,
            given("AttributeDefinitions", &[Elements(&DEFINITION)]),
            given("GlobalSecondaryIndexUpdates", &[Elements(&INDEX_UPDATE)]),
        ],
    };
    const EXPIRE: Shape = Shape {
        members: 2,
        constrained: &[TABLE, required("TimeToLiveSpecification", &[Fields(&TIME_TO_LIVE)])],
    };
    const RECOVER: Shape = Shape {
        members: 2,
        constrained: &[TABLE, required("PointInTimeRecoverySpecification", &[Fields(&RECOVERY)])],
    };
    const LIST: Shape =
        Shape { members: 2, constrained: &[PAGE, given("ExclusiveStartTableName", &[Table])] };
    Some(match operation {
        "CreateTable" => &CREATE,
        "UpdateTable" => &UPDATE,
        "UpdateTimeToLive" => &EXPIRE,
        "UpdateContinuousBackups" => &RECOVER,
        "ListTables" => &LIST,
        _ => return None,
    })
}

/// The parameters of the operations on backups and streams.
fn others_shape(operation: &str) -> Option<&'static Shape> {
    const BACK_UP: Shape = Shape { members: 2, constrained: &[TABLE, required("BackupName", &[Name])] };
    const BACKUPS: Shape = Shape {
        members: 7,
        constrained: &[
            PAGE,
            given("TableName", &[Table]),
            given("BackupType", &[OneOf(&["USER", "SYSTEM", "AWS_BACKUP", "ALL"])]),
            given("ExclusiveStartBackupArn", ARN),
        ],
    };
    const RESTORE: Shape = {
        let [target, billing, units, global, local] = RESTORED;
        Shape {
            members: 9,
            constrained: &[required("BackupArn", ARN), target, billing, units, global, local],
        }
    };
    const RESTORE_TO: Shape = Shape { members: 12, constrained: &RESTORED };
    const DESCRIBE_STREAM: Shape = Shape {
        members: 4,
        constrained: &[required("StreamArn", ARN), PAGE, given("ExclusiveStartShardId", &[Length(28, 65)])],
    };
    const LIST_STREAMS: Shape = Shape {
        members: 3,
        constrained: &[PAGE, given("TableName", &[Table]), given("ExclusiveStartStreamArn", ARN)],
    };
    const RECORDS: Shape = Shape {
        members: 2,
        constrained: &[required("ShardIterator", &[Length(1, 2048)]), given("Limit", &[Value(1, 1000)])],
    };
    Some(match operation {
        "CreateBackup" => &BACK_UP,
        "ListBackups" => &BACKUPS,
        "RestoreTableFromBackup" => &RESTORE,
        "RestoreTableToPointInTime" => &RESTORE_TO,
        "DescribeStream" => &DESCRIBE_STREAM,
        "ListStreams" => &LIST_STREAMS,
        "GetRecords" => &RECORDS,
        _ => return None,
    })
}

/// Refuses a request with members that break their constraints.
///
/// # Errors
/// With all of these constraints, or for a member that is of another type.
pub(crate) fn check(operation: &str, request: &Request) -> Result<()> {
    let shapes = [items_shape, batches_shape, tables_shape, others_shape];
    let Some(shape) = shapes.into_iter().find_map(|shape_of| shape_of(operation)) else {
        return Ok(());
    };
    let mut found = Vec::new();
    shape.check(request.members(), &|name| place(name), &mut found)?;
    if found.is_empty() {
        return Ok(());
    }
    found.truncate(BROKEN_MAX);
    let plural = if found.len() == 1 { "" } else { "s" };
    let text = format!("{} validation error{plural} detected: {}", found.len(), found.join("; "));
    Err(ApiError::validation(text))
}

/// The bucket of a member's name in a hash map of Java with so many members.
fn bucket(name: &str, members: usize) -> usize {
    let mut buckets = 16;
    while members > buckets / 4 * 3 {
        buckets *= 2;
    }
    let hash = place(name).bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (hash ^ hash >> 16) as usize % buckets
}

/// The place of a member of a structure, by its name.
type PlaceOf<'a> = &'a dyn Fn(&str) -> String;

impl Shape {
    /// Adds the constraints that the members of a structure break.
    fn check<'a>(
        &self,
        fields: impl Iterator<Item = (&'a str, Option<&'a Json>)>,
        at: PlaceOf<'_>,
        out: &mut Vec<String>,
    ) -> Result<()> {
        let (mut found, mut seen) = (Vec::new(), 0u32);
        for (name, value) in fields {
            let Some(index) = self.constrained.iter().position(|member| member.name == name) else {
                continue;
            };
            // An item that is read already has no other constraint.
            let Some(value) = value.filter(|value| !value.is_null()) else {
                seen |= u32::from(value.is_none()) << index;
                continue;
            };
            seen |= 1 << index;
            let mut of_member = Vec::new();
            for rule in self.constrained.get(index).map(|member| member.rules).unwrap_or_default() {
                rule.check(value, &|| at(name), &mut of_member)?;
            }
            if !of_member.is_empty() {
                found.push((name, of_member));
            }
        }
        for (index, member) in self.constrained.iter().enumerate() {
            if member.is_required && seen & 1 << index == 0 {
                found.push((member.name, vec![broken("null", &at(member.name), "Member must not be null")]));
            }
        }
        found.sort_by_key(|(name, _)| bucket(name, self.members));
        out.extend(found.into_iter().flat_map(|(_, of_member)| of_member));
        Ok(())
    }
}

/// The members of a structure.
fn fields(structure: &Json) -> Result<impl Iterator<Item = (&str, Option<&Json>)>> {
    Ok(json::read_map(structure)?.iter().map(|(name, value)| (name.as_str(), Some(value))))
}

/// The bound that a number is beyond.
fn bound<T: PartialOrd + std::fmt::Display>(value: T, (least, most): (T, T)) -> Option<String> {
    match value {
        value if value < least => Some(format!("greater than or equal to {least}")),
        value if value > most => Some(format!("less than or equal to {most}")),
        _ => None,
    }
}

impl Rule {
    /// Adds the constraints that a value breaks.
    fn check(&self, value: &Json, at: &dyn Fn() -> String, out: &mut Vec<String>) -> Result<()> {
        match self {
            OneOf(allowed) => {
                let text = json::read_string(value)?;
                if !allowed.contains(&text) {
                    let set = format!("Member must satisfy enum value set: [{}]", allowed.join(", "));
                    out.push(broken(text, &at(), &set));
                }
            }
            Value(least, most) => {
                let number = json::read_integer(value)?;
                let beyond = bound(number, (*least, *most));
                let value =
                    |bound| broken(&number.to_string(), &at(), &format!("Member must have value {bound}"));
                out.extend(beyond.map(value));
            }
            Length(least, most) => {
                let text = json::read_string(value)?;
                let beyond = bound(text.len(), (*least, *most));
                out.extend(
                    beyond.map(|bound| broken(text, &at(), &format!("Member must have length {bound}"))),
                );
            }
            Count(least, most) => {
                let count = json::read_list(value)?.len();
                let shown = if count == 0 { "[]" } else { "[...]" };
                let beyond = bound(count, (*least, *most));
                out.extend(
                    beyond.map(|bound| broken(shown, &at(), &format!("Member must have length {bound}"))),
                );
            }
            Keys(most) => check_keys(value, *most, at, out)?,
            Name => check_name(json::read_string(value)?, at, out),
            Table => {
                let name = json::read_string(value)?;
                let bound = (!name.starts_with("arn:")).then(|| name_bound(name)).flatten();
                out.extend(bound.map(|bound| broken(name, &at(), bound)));
            }
            Tables => check_tables(value, at, out)?,
            Fields(shape) => {
                shape.check(fields(value)?, &|name| format!("{}.{}", at(), place(name)), out)?;
            }
            Elements(shape) => {
                for (index, element) in json::read_list(value)?.iter().enumerate() {
                    let place = |name: &str| format!("{}.{}.member.{}", at(), index + 1, place(name));
                    shape.check(fields(element)?, &place, out)?;
                }
            }
            Values(shape) => {
                for (key, element) in json::read_map(value)? {
                    let place = |name: &str| format!("{}.{key}.member.{}", at(), place(name));
                    shape.check(fields(element)?, &place, out)?;
                }
            }
        }
        Ok(())
    }
}

/// Adds the constraints of the name of an index or a backup.
fn check_name(name: &str, at: &dyn Fn() -> String, out: &mut Vec<String>) {
    if !name.chars().all(is_name_character) {
        out.push(broken(name, &at(), NAME_PATTERN));
    }
    let beyond = bound(name.len(), (3, 255));
    out.extend(beyond.map(|bound| broken(name, &at(), &format!("Member must have length {bound}"))));
}

/// Adds the constraints of a `KeySchema` of at most so many elements.
fn check_keys(value: &Json, most: usize, at: &dyn Fn() -> String, out: &mut Vec<String>) -> Result<()> {
    let elements = json::read_list(value)?;
    match bound(elements.len(), (1, most)) {
        Some(bound) => {
            let shown = shown_keys(elements);
            out.push(broken(&shown, &at(), &format!("Member must have length {bound}")));
            Ok(())
        }
        None => Elements(&KEY_ELEMENT).check(value, at, out),
    }
}

/// A `KeySchema` in messages.
fn shown_keys(elements: &[Json]) -> String {
    let text =
        |element: &Json, name: &str| element.get(name).and_then(Json::as_str).unwrap_or("null").to_owned();
    let shown = elements.iter().take(100).map(|element| {
        let (name, kind) = (text(element, "AttributeName"), text(element, "KeyType"));
        format!("KeySchemaElement(attributeName={name}, keyType={kind})")
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(", "))
}

/// Adds the constraints of the names of tables, which are those of members.
fn check_tables(value: &Json, at: &dyn Fn() -> String, out: &mut Vec<String>) -> Result<()> {
    let tables = json::read_map(value)?;
    if tables.is_empty() {
        out.push(broken("{}", &at(), "Member must have length greater than or equal to 1"));
    }
    if tables.keys().any(|name| !name.starts_with("arn:") && name_bound(name).is_some()) {
        let constraint = "Map keys must satisfy constraint: [Member must have length less than or equal to 255, Member must \
                          have length greater than or equal to 3, Member must satisfy regular expression pattern: \
                          [a-zA-Z0-9_.-]+]";
        out.push(broken(&value.to_string(), &at(), constraint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn refusal(operation: &str, request: Json) -> String {
        let request = Request::part(&request).expect("an object");
        check(operation, &request).map_or_else(|error| error.message, |()| "-".to_owned())
    }

    /// The orders are those of AWS's answers.
    #[test]
    fn several_broken_constraints_are_in_one_message() {
        let enums = json!({ "ReturnConsumedCapacity": "X", "ReturnValues": "Y", "TableName": "" });
        assert_eq!(
            refusal("UpdateItem", enums),
            "4 validation errors detected: Value 'X' at 'returnConsumedCapacity' failed to satisfy constraint: Member must satisfy \
             enum value set: [INDEXES, TOTAL, NONE]; Value '' at 'tableName' failed to satisfy constraint: Member must have \
             length greater than or equal to 1; Value 'Y' at 'returnValues' failed to satisfy constraint: Member must satisfy \
             enum value set: [ALL_NEW, UPDATED_OLD, ALL_OLD, NONE, UPDATED_NEW]; Value null at 'key' failed to satisfy \
             constraint: Member must not be null"
        );
        let null = |name: &str| {
            format!("Value null at '{name}' failed to satisfy constraint: Member must not be null")
        };
        for (operation, first, second) in [
            ("GetItem", "key", "tableName"),
            ("UpdateItem", "tableName", "key"),
            ("DeleteItem", "key", "tableName"),
        ] {
            let expected = format!("2 validation errors detected: {}; {}", null(first), null(second));
            assert_eq!(refusal(operation, json!({})), expected, "{operation}");
        }
        let put = refusal("PutItem", json!({ "TableName": "", "ReturnValues": "X", "Item": {} }));
        assert!(put.starts_with("2 validation errors detected: Value 'X' at 'returnValues'"), "{put}");
        let write = json!({ "ClientRequestToken": "x".repeat(37), "ReturnConsumedCapacity": "X",
                            "ReturnItemCollectionMetrics": "Y", "TransactItems": [{}] });
        let write = refusal("TransactWriteItems", write);
        let places: Vec<&str> =
            write.split(" at '").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
        assert_eq!(places, ["clientRequestToken", "returnConsumedCapacity", "returnItemCollectionMetrics"]);
        let units = json!({ "TableName": "abc", "ProvisionedThroughput": { "ReadCapacityUnits": 0, "WriteCapacityUnits": 0 } });
        let units = refusal("UpdateTable", units);
        assert!(units.find("writeCapacityUnits") < units.find("readCapacityUnits"), "{units}");
    }

    #[test]
    fn structures_lists_and_maps_have_places() {
        let index = |name: &str| {
            json!({ "IndexName": name, "KeySchema": [{ "AttributeName": "a", "KeyType": "HASH" }],
                                         "Projection": { "ProjectionType": "ALL" } })
        };
        let create = json!({
            "TableName": "abc", "LocalSecondaryIndexes": [index("l1")], "GlobalSecondaryIndexes": [index("g1")],
            "AttributeDefinitions": [], "KeySchema": [{ "AttributeName": "a", "KeyType": "HASH" }],
        });
        let short = |name: &str, of: &str| {
            format!(
                "Value '{name}' at '{of}.1.member.indexName' failed to satisfy constraint: Member must have length greater than \
                 or equal to 3"
            )
        };
        let expected = format!(
            "2 validation errors detected: {}; {}",
            short("g1", "globalSecondaryIndexes"),
            short("l1", "localSecondaryIndexes")
        );
        assert_eq!(refusal("CreateTable", create), expected);
        let get = json!({ "RequestItems": { "bad!name": { "Keys": [{ "pk": { "S": "a" } }] } }, "ReturnConsumedCapacity": "X" });
        let get = refusal("BatchGetItem", get);
        let start = "2 validation errors detected: Value '{\"bad!name\":{\"Keys\":[{\"pk\":{\"S\":\"a\"}}]}}' at 'requestItems' \
                     failed to satisfy constraint: Map keys must satisfy constraint: [";
        assert!(get.starts_with(start) && get.ends_with("[INDEXES, TOTAL, NONE]"), "{get}");
        let filter = json!({ "TableName": "abc", "ScanFilter": { "a": {}, "b": { "ComparisonOperator": "" } }, "Limit": 0 });
        let filter = refusal("Scan", filter);
        let start = "3 validation errors detected: Value null at 'scanFilter.a.member.comparisonOperator'";
        assert!(filter.starts_with(start) && filter.contains("; Value '0' at 'limit'"), "{filter}");
        assert!(filter.contains("Value '' at 'scanFilter.b.member.comparisonOperator'"), "{filter}");
    }

    #[test]
    fn a_message_does_not_grow_with_the_request() {
        let conditions: Map<String, Json> = (0..50).map(|at| (at.to_string(), json!({}))).collect();
        let many = refusal("Query", json!({ "TableName": "abc", "KeyConditions": conditions }));
        assert!(many.starts_with("10 validation errors detected: "), "{many}");
        assert_eq!(many.matches("Member must not be null").count(), 10);
        let long = refusal(
            "Query",
            json!({ "TableName": "abc", "Select": "x".repeat(100_000), "IndexName": "i".repeat(100_000) }),
        );
        assert!(long.starts_with("2 validation errors") && long.len() < 3_000, "{}", long.len());
    }

    #[test]
    fn values_of_another_type_come_first() {
        for request in
            [json!({ "TableName": 5 }), json!({ "TableName": "", "Limit": "1" }), json!({ "ScanFilter": [] })]
        {
            let request = Request::part(&request).expect("an object");
            let error = check("Scan", &request).expect_err("another type");
            assert_eq!(error.kind, crate::error::ErrorKind::Serialization);
        }
        assert_eq!(refusal("Scan", json!({ "TableName": "abc", "Limit": null })), "-");
        let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/abc";
        assert_eq!(refusal("BatchGetItem", json!({ "RequestItems": { arn: {} } })), "-");
        assert_eq!(refusal("Scan", json!({ "TableName": arn })), "-");
    }
}
