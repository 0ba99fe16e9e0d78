//! System tables by ScyllaDB's names for them, as items: their keys, pages, filters and permissions, and settings that are written.

use std::cell::RefCell;
use std::rc::Rc;

use auth::Permission;
use cluster::SchemaEdit;
use dynamo::{ApiSettings, Dynamo, Isolation};
use exec::backend::Coordinator;
use exec::{ExecLimits, Executor, NodeInfo};
use schema::Role;
use serde_json::{Value as Json, json};

use crate::memory::{Memory, TestClock};
use crate::{api, body_of, call, create, ready};

const TABLES: &str = ".scylla.alternator.system_schema.tables";
const COLUMNS: &str = ".scylla.alternator.system_schema.columns";

/// The strings of an attribute in the items of all pages.
fn all(api: &Dynamo<Memory>, operation: &str, mut request: Json, attribute: &str) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let answer = body_of(call(api, operation, &request.to_string()));
        for item in answer["Items"].as_array().expect("items") {
            found.push(item[attribute]["S"].as_str().expect("a string").to_owned());
        }
        assert_eq!(answer["ScannedCount"], answer["Count"], "nothing is filtered");
        match answer.get("LastEvaluatedKey") {
            Some(key) => request["ExclusiveStartKey"] = key.clone(),
            None => return found,
        }
    }
    panic!("paging does not end");
}

fn refusal(api: &Dynamo<Memory>, operation: &str, request: &Json) -> String {
    let answer = call(api, operation, &request.to_string());
    assert_ne!(answer.status, 200, "{operation} {request}");
    let body: Json = serde_json::from_str(&answer.body).expect("JSON");
    let kind = body["__type"].as_str().and_then(|kind| kind.rsplit('#').next()).unwrap_or_default();
    format!("{kind}: {}", body["message"].as_str().unwrap_or_default())
}

/// A Query of the columns of a table.
fn of_columns(condition: &str, values: Json) -> Json {
    let mut all = json!({ ":k": { "S": "alternator_music" } });
    all.as_object_mut().expect("a map").extend(values.as_object().expect("a map").clone());
    json!({ "TableName": COLUMNS, "KeyConditionExpression": format!("keyspace_name = :k{condition}"),
            "ExpressionAttributeValues": all })
}

#[test]
fn scans_and_queries_read_all_rows_once() {
    let api = api(Isolation::Always);
    create(&api, "music", Some("N"));
    create(&api, "songs", None);
    let whole = all(&api, "Scan", json!({ "TableName": TABLES }), "table_name");
    assert!(
        whole.iter().any(|name| name == "music") && whole.iter().any(|name| name == "songs"),
        "{whole:?}"
    );
    for limit in [1, 2, 1000] {
        assert_eq!(all(&api, "Scan", json!({ "TableName": TABLES, "Limit": limit }), "table_name"), whole);
        let mut parts = Vec::new();
        for segment in 0..4 {
            let scan = json!({ "TableName": TABLES, "Limit": limit, "Segment": segment, "TotalSegments": 4 });
            parts.extend(all(&api, "Scan", scan, "table_name"));
        }
        assert_eq!(parts, whole, "segments in order");
    }
    let of = of_columns("", json!({}));
    let names = all(&api, "Query", of.clone(), "column_name");
    assert_eq!(names, [":attrs", "c", "p"]);
    for limit in 1..4 {
        let limited = |forward: bool| {
            let mut request = of.clone();
            request["Limit"] = limit.into();
            request["ScanIndexForward"] = forward.into();
            all(&api, "Query", request, "column_name")
        };
        assert_eq!(limited(true), names);
        assert_eq!(limited(false), names.iter().rev().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn conditions_and_filters_hold() {
    let api = api(Isolation::Always);
    create(&api, "music", Some("N"));
    let query =
        |condition: &str, values: Json| all(&api, "Query", of_columns(condition, values), "column_name");
    let music = json!({ ":t": { "S": "music" }, ":a": { "S": "c" } });
    assert_eq!(query(" AND table_name = :t AND column_name = :a", music.clone()), ["c"]);
    assert_eq!(query(" AND table_name = :t AND column_name > :a", music.clone()), ["p"]);
    assert_eq!(query(" AND table_name = :t AND begins_with(column_name, :a)", music), ["c"]);
    let between = json!({ ":t": { "S": "music" }, ":a": { "S": "a" }, ":z": { "S": "d" } });
    assert_eq!(query(" AND table_name = :t AND column_name BETWEEN :a AND :z", between), ["c"]);
    let filtered = json!({
        "TableName": COLUMNS, "FilterExpression": "keyspace_name = :k AND kind = :c", "Select": "COUNT",
        "ExpressionAttributeValues": { ":k": { "S": "alternator_music" }, ":c": { "S": "clustering" } },
        "ReturnConsumedCapacity": "TOTAL"
    });
    let answer = body_of(call(&api, "Scan", &filtered.to_string()));
    assert_eq!(answer["Count"], 1);
    assert!(answer["ScannedCount"].as_i64().is_some_and(|count| count > 3), "{answer}");
    assert_eq!(answer["ConsumedCapacity"]["TableName"], COLUMNS);
}

#[test]
fn values_have_the_types_of_their_columns() {
    let api = api(Isolation::Always);
    create(&api, "music", Some("N"));
    let query = json!({
        "TableName": ".scylla.alternator.system_schema.keyspaces",
        "KeyConditions": { "keyspace_name": {
            "ComparisonOperator": "EQ", "AttributeValueList": [{ "S": "alternator_music" }] } }
    });
    let answer = body_of(call(&api, "Query", &query.to_string()));
    let item = &answer["Items"][0];
    assert_eq!(item["durable_writes"], json!({ "BOOL": true }));
    let replication = item["replication"]["S"].as_str().expect("a map is a string");
    assert!(replication.starts_with("{'") && replication.contains("class"), "{replication}");
    let columns = of_columns(
        " AND table_name = :t AND column_name = :c",
        json!({ ":t": { "S": "music" }, ":c": { "S": "c" } }),
    );
    let mut columns = columns;
    columns["ProjectionExpression"] = "#p, column_name_bytes".into();
    columns["ExpressionAttributeNames"] = json!({ "#p": "position" });
    let answer = body_of(call(&api, "Query", &columns.to_string()));
    assert_eq!(answer["Items"][0], json!({ "position": { "S": "0" }, "column_name_bytes": { "B": "Yw==" } }));
}

#[test]
fn other_requests_are_refused() {
    let api = api(Isolation::Always);
    create(&api, "music", None);
    let key = json!({ "TableName": TABLES, "Key": { "keyspace_name": { "S": "system" } } });
    assert_eq!(refusal(&api, "GetItem", &key), "ResourceNotFoundException: Requested resource not found");
    let table = json!({ "TableName": TABLES });
    assert!(refusal(&api, "DescribeTable", &table).starts_with("ResourceNotFoundException: "));
    let missing = json!({ "TableName": ".scylla.alternator.system.nothing" });
    assert_eq!(
        refusal(&api, "Scan", &missing),
        "ResourceNotFoundException: Requested resource not found: Internal table: system.nothing not found"
    );
    let ordinary = json!({ "TableName": ".scylla.alternator.alternator_music.music" });
    assert_eq!(refusal(&api, "Scan", &ordinary), "ResourceNotFoundException: Requested resource not found");
    let index = json!({ "TableName": TABLES, "IndexName": "abc" });
    assert!(refusal(&api, "Scan", &index).contains("specified index: abc"));
    let made = json!({
        "TableName": TABLES, "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": "p", "AttributeType": "S" }]
    });
    assert_eq!(
        refusal(&api, "CreateTable", &made),
        "ValidationException: Prefix .scylla.alternator. is reserved for accessing internal tables"
    );
    let half = json!({ "TableName": COLUMNS, "ExclusiveStartKey": { "keyspace_name": { "S": "a" }, "x": { "S": "b" } } });
    assert!(refusal(&api, "Scan", &half).contains("The provided starting key is invalid"));
    let without = json!({ "TableName": COLUMNS, "KeyConditionExpression": "table_name = :t",
                          "ExpressionAttributeValues": { ":t": { "S": "music" } } });
    assert!(refusal(&api, "Query", &without).contains("missed key schema element: keyspace_name"));
    for (operation, member) in [("PutItem", "Item"), ("UpdateItem", "Key"), ("DeleteItem", "Key")] {
        let write = json!({ "TableName": TABLES, member: { "keyspace_name": { "S": "a" } } });
        assert_eq!(
            refusal(&api, operation, &write),
            format!(
                "ResourceNotFoundException: Table {TABLES} is an internal table, and writing to it is forbidden by the \
                 alternator_allow_system_table_write configuration"
            )
        );
    }
}

/// An API whose node asks for permissions, with these roles, and the changes of settings that it was asked for.
fn guarded(roles: Vec<Role>) -> (Dynamo<Memory>, Rc<RefCell<Vec<String>>>) {
    let memory = Memory::new();
    let edits = roles.into_iter().map(SchemaEdit::PutRole).collect();
    ready(memory.change_schema(memory.schema().version(), edits)).expect("edits are applied");
    let address = ([127, 0, 0, 1], 9042).into();
    let node = NodeInfo { cluster_name: "c".to_owned(), snitch: "s".to_owned(), address };
    let limits = ExecLimits { authorizes: true, ..ExecLimits::default() };
    let executor = Executor::new(memory, Rc::new(TestClock::default()), node, limits);
    let changed = Rc::new(RefCell::new(Vec::new()));
    let changes = changed.clone();
    executor.change_settings_with(Box::new(move |name, value| {
        changes.borrow_mut().push(format!("{name}={value}"));
        Box::pin(async { Ok(()) })
    }));
    let settings =
        ApiSettings { enforces_authorization: true, writes_system_tables: true, ..ApiSettings::default() };
    (Dynamo::new(Rc::new(executor), Isolation::Always).with_settings(settings), changed)
}

#[test]
fn permissions_are_those_of_a_select() {
    let superuser = Role { is_superuser: true, ..Role::new("root") };
    let (api, _) = guarded(vec![superuser, Role::new("app")]);
    let status = |table: &str, role: &str| {
        let body = json!({ "TableName": format!(".scylla.alternator.{table}") }).to_string();
        ready(api.call("Scan", body.as_bytes(), "localhost:8000", Some(role))).status
    };
    assert_eq!(status("system_auth.roles", "root"), 200);
    assert_eq!(status("system_auth.roles", "app"), 400);
    assert_eq!(status("system_schema.tables", "app"), 200, "drivers depend on it");
    let body = json!({ "TableName": ".scylla.alternator.system_auth.roles" }).to_string();
    let answer = ready(api.call("Scan", body.as_bytes(), "localhost:8000", Some("app")));
    assert!(answer.body.contains(&format!("no {} permission", Permission::Select.name())), "{}", answer.body);
    // Not enforced: the API serves everybody, but no system table that CQL would not show.
    let settings = ApiSettings { enforces_authorization: false, ..ApiSettings::default() };
    let open = api.with_settings(settings);
    let answer = ready(open.call("Scan", body.as_bytes(), "localhost:8000", None));
    assert_eq!(answer.status, 400, "{}", answer.body);
}

#[test]
fn settings_are_written_by_superusers() {
    let superuser = Role { is_superuser: true, ..Role::new("root") };
    let (api, changed) = guarded(vec![superuser, Role::new("app")]);
    let table = ".scylla.alternator.system.config";
    let called = |operation: &str, body: &Json, role: &str| {
        let answer = ready(api.call(operation, body.to_string().as_bytes(), "localhost:8000", Some(role)));
        (answer.status, answer.body)
    };
    let update = json!({
        "TableName": table, "Key": { "name": { "S": "a_setting" } }, "UpdateExpression": "SET #v = :v",
        "ExpressionAttributeNames": { "#v": "value" }, "ExpressionAttributeValues": { ":v": { "S": "1" } }
    });
    assert_eq!(called("UpdateItem", &update, "root"), (200, "{}".to_owned()));
    let put = json!({ "TableName": table, "Item": { "name": { "S": "a_setting" }, "value": { "S": "2" } } });
    assert_eq!(called("PutItem", &put, "root"), (200, "{}".to_owned()));
    assert_eq!(called("PutItem", &put, "app").0, 400, "no superuser");
    let mut conditional = put.clone();
    conditional["ConditionExpression"] = "attribute_exists(name_)".into();
    assert!(called("PutItem", &conditional, "root").1.contains("on conditions"));
    let mut more = put.clone();
    more["Item"]["source"] = json!({ "S": "x" });
    assert!(called("PutItem", &more, "root").1.contains("its name and its value alone"));
    let mut other = put.clone();
    other["TableName"] = ".scylla.alternator.system.local".into();
    assert!(called("PutItem", &other, "root").1.contains("the only writes"));
    let deletion = json!({ "TableName": table, "Key": { "name": { "S": "a_setting" } } });
    assert!(called("DeleteItem", &deletion, "root").1.contains("the only writes"));
    assert_eq!(*changed.borrow(), ["a_setting=1", "a_setting=2"]);
}
