//! Requests of a role are served by its service level.

use std::rc::Rc;
use std::time::Duration;

use cluster::SchemaEdit;
use dynamo::{Dynamo, Isolation};
use exec::backend::Coordinator;
use exec::{ExecLimits, Executor, NodeInfo};
use rt::Instant;
use schema::{Role, ServiceLevel};

use crate::memory::{Memory, TestClock};
use crate::ready;

/// Shorter than the timeouts of a node.
const TIMEOUT: Duration = Duration::from_millis(70);

#[test]
fn the_timeout_of_a_service_level_is_that_of_each_operation() {
    let memory = Memory::new();
    let level = ServiceLevel { timeout: Some(TIMEOUT), ..ServiceLevel::new("fast") };
    let none = ServiceLevel { timeout: Some(Duration::ZERO), ..ServiceLevel::new("none") };
    let edits = vec![
        SchemaEdit::PutServiceLevel(level),
        SchemaEdit::PutServiceLevel(none),
        SchemaEdit::PutRole(Role { service_level: Some("none".to_owned()), ..Role::new("hurried") }),
        SchemaEdit::PutRole(Role { service_level: Some("fast".to_owned()), ..Role::new("app") }),
        SchemaEdit::PutRole(Role::new("other")),
    ];
    ready(memory.change_schema(memory.schema().version(), edits)).expect("edits are applied");
    let address = ([127, 0, 0, 1], 9042).into();
    let node = NodeInfo { cluster_name: "c".to_owned(), snitch: "s".to_owned(), address };
    let limits = ExecLimits::default();
    let (read, write) = (limits.read_timeout, limits.write_timeout);
    let executor = Executor::new(memory.clone(), Rc::new(TestClock::default()), node, limits);
    let api = Dynamo::new(Rc::new(executor), Isolation::ForbidRmw);
    let call = |operation: &str, body: &str, role: Option<&str>| {
        let answer = ready(api.call(operation, body.as_bytes(), "localhost:8000", role));
        assert_eq!(answer.status, 200, "{operation}: {}", answer.body);
        memory.last_deadline().map(|deadline| deadline.duration_since(Instant::START))
    };
    let table = r#"{"TableName": "table", "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST",
                    "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}]}"#;
    call("CreateTable", table, None);
    let item = r#"{"TableName": "table", "Item": {"k": {"S": "a"}}}"#;
    // A Query: an item that lies in the shard's memory is looked up at once.
    let query = r#"{"TableName": "table", "KeyConditionExpression": "k = :k", "ExpressionAttributeValues": {":k": {"S": "a"}}}"#;
    for (role, read, write) in
        [(Some("app"), TIMEOUT, TIMEOUT), (Some("other"), read, write), (None, read, write)]
    {
        assert_eq!(call("PutItem", item, role), Some(write), "a write of {role:?}");
        assert_eq!(call("Query", query, role), Some(read), "a read of {role:?}");
    }
    let key = r#"{"TableName": "table", "Key": {"k": {"S": "a"}}}"#;
    assert_eq!(
        call("GetItem", key, Some("hurried")),
        Some(Duration::ZERO),
        "without time nothing is looked up"
    );
}
