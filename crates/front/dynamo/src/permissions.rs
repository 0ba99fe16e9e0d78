//! The permissions that operations need, by the grants that CQL has: SELECT to read, MODIFY to write (a condition included), CREATE on all
//! keyspaces, ALTER and DROP.

use std::collections::BTreeSet;

use auth::{Permission, Resource};
use items::json;
use serde_json::Value as Json;

use crate::names::{system_table, table_of_backup};
use crate::operations::statement;
use crate::request::{Request, table_name};
use crate::streams::definition::parts_of_arn;
use crate::streams::position::ShardIterator;
use crate::table::keyspace_name;

use Permission::{Alter, Create, Drop, Modify, Select};

/// The permissions that an operation needs. A request that is not valid may need none: it fails with its own error.
/// None for an operation that is not known here.
pub(crate) fn needed(operation: &str, request: &Request) -> Option<Vec<(Permission, Resource)>> {
    let one = |permission: Permission, member: &str| one(request, permission, member);
    let text = |member: &str| request.get(member).and_then(Json::as_str);
    // Reads and writes of items reach system tables, too.
    let item = |permission: Permission| {
        let name = text("TableName").and_then(|name| table_name(name).ok());
        match name.as_deref().and_then(system_table) {
            Some((keyspace, name)) => {
                vec![(permission, Resource::Table { keyspace: keyspace.to_owned(), name: name.to_owned() })]
            }
            None => one(permission, "TableName"),
        }
    };
    let batch = |permission: Permission| {
        let tables = request.get("RequestItems").and_then(|tables| json::read_map(tables).ok());
        tables.into_iter().flat_map(|tables| tables.keys()).filter_map(|name| of(permission, name)).collect()
    };
    let parts = |permission: fn(&str) -> Permission| {
        let list = request.get("TransactItems").and_then(Json::as_array);
        let members = list.into_iter().flatten().filter_map(Json::as_object).flatten();
        members.filter_map(|(kind, part)| of(permission(kind), part.get("TableName")?.as_str()?)).collect()
    };
    let statement = |request: &Request| {
        let statement = statement::parse(request).ok()?;
        of(if statement.writes() { Modify } else { Select }, statement.table())
    };
    let statements = |member: &str| {
        let list = request.get(member).and_then(Json::as_array);
        let parts = list.into_iter().flatten().filter_map(|part| Request::part(part).ok());
        parts.filter_map(|part| statement(&part)).collect()
    };
    Some(match operation {
        "ExecuteStatement" => statement(request).into_iter().collect(),
        "BatchExecuteStatement" => statements("Statements"),
        "ExecuteTransaction" => statements("TransactStatements"),
        "Query" | "Scan" => item(Select),
        "GetItem" | "SearchVectors" => one(Select, "TableName"),
        "PutItem" | "UpdateItem" | "DeleteItem" => item(Modify),
        "UpdateTable" | "UpdateTimeToLive" => one(Alter, "TableName"),
        "DeleteTable" => one(Drop, "TableName"),
        "TagResource" | "UntagResource" => one(Alter, "ResourceArn"),
        "GetShardIterator" => {
            let table = text("StreamArn").and_then(parts_of_arn).map(|(table, _)| table);
            table.and_then(|table| of(Select, table)).into_iter().collect()
        }
        "GetRecords" => {
            let iterator = text("ShardIterator").and_then(|text| ShardIterator::decode(text).ok());
            iterator.and_then(|iterator| of(Select, &iterator.table)).into_iter().collect()
        }
        "BatchGetItem" => batch(Select),
        "BatchWriteItem" => batch(Modify),
        "TransactGetItems" => parts(|_| Select),
        "TransactWriteItems" => parts(|kind| if kind == "ConditionCheck" { Select } else { Modify }),
        "ExportTableToPointInTime" => one(Select, "TableArn"),
        "CreateTable" | "ImportTable" => vec![(Create, Resource::Data)],
        "DescribeEndpoints" | "DescribeExport" | "DescribeImport" | "DescribeLimits" | "DescribeStream"
        | "DescribeTable" | "DescribeTimeToLive" | "ListExports" | "ListImports" | "ListStreams"
        | "ListTables" | "ListTagsOfResource" => Vec::new(),
        _ => return of_backups(operation, request),
    })
}

/// Those of the operations on backups.
fn of_backups(operation: &str, request: &Request) -> Option<Vec<(Permission, Resource)>> {
    let of_backup = |permission: Permission| -> Vec<_> {
        let table = request.get("BackupArn").and_then(Json::as_str).and_then(table_of_backup);
        table.and_then(|table| of(permission, table)).into_iter().collect()
    };
    let created = [(Create, Resource::Data)];
    Some(match operation {
        "CreateBackup" => one(request, Select, "TableName"),
        "UpdateContinuousBackups" => one(request, Alter, "TableName"),
        "DeleteBackup" => of_backup(Drop),
        "RestoreTableFromBackup" => of_backup(Select).into_iter().chain(created).collect(),
        "RestoreTableToPointInTime" => {
            let sources = ["SourceTableName", "SourceTableArn"];
            sources.iter().flat_map(|member| one(request, Select, member)).chain(created).collect()
        }
        "DescribeBackup" | "DescribeContinuousBackups" | "ListBackups" => Vec::new(),
        _ => return None,
    })
}

/// A permission on the table of a name or ARN.
fn of(permission: Permission, name: &str) -> Option<(Permission, Resource)> {
    let name = table_name(name).ok()?;
    Some((permission, Resource::Table { keyspace: keyspace_name(name), name: name.to_owned() }))
}

/// A permission on the table that a member names.
fn one(request: &Request, permission: Permission, member: &str) -> Vec<(Permission, Resource)> {
    let name = request.get(member).and_then(Json::as_str);
    name.and_then(|name| of(permission, name)).into_iter().collect()
}

/// The tables that a request names, each with its keyspace.
pub(crate) fn tables_of(operation: &str, request: Option<&Request>) -> BTreeSet<(String, String)> {
    let resources = request.and_then(|request| needed(operation, request));
    let of_resource = |(_, resource)| match resource {
        Resource::Table { keyspace, name } => Some((keyspace, name)),
        _ => None,
    };
    let named = request.and_then(|request| request.table_name().ok());
    let named = named.map(|name| (keyspace_name(name), name.to_owned()));
    resources.into_iter().flatten().filter_map(of_resource).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(operation: &str, body: &str) -> String {
        let request = Request::parse(body.as_bytes()).expect("a request");
        let needed = needed(operation, &request).expect("an operation");
        let shown = needed.iter().map(|(permission, on)| format!("{} {}", permission.name(), on.name()));
        shown.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn every_operation_has_its_permissions() {
        for operation in crate::operations::names::OPERATIONS {
            let request = Request::parse(b"{}").expect("a request");
            assert!(needed(operation, &request).is_some(), "{operation}");
        }
    }

    #[test]
    fn every_table_of_a_request_is_wanted() {
        let table = r#"{"TableName":"abc"}"#;
        assert_eq!(shown("GetItem", table), "SELECT data/alternator_abc/abc");
        assert_eq!(
            shown("PutItem", r#"{"TableName":"arn:aws:x:table/abc"}"#),
            "MODIFY data/alternator_abc/abc"
        );
        assert_eq!(
            shown("TagResource", r#"{"ResourceArn":"arn:aws:x:table/abc"}"#),
            "ALTER data/alternator_abc/abc"
        );
        assert_eq!(
            shown("ExportTableToPointInTime", r#"{"TableArn":"arn:aws:x:table/abc"}"#),
            "SELECT data/alternator_abc/abc"
        );
        assert_eq!(shown("ImportTable", table), "CREATE data");
        assert_eq!(shown("CreateBackup", table), "SELECT data/alternator_abc/abc");
        let backup = r#"{"BackupArn":"arn:aws:x:table/abc/backup/01-ab"}"#;
        assert_eq!(shown("DeleteBackup", backup), "DROP data/alternator_abc/abc");
        assert_eq!(shown("RestoreTableFromBackup", backup), "SELECT data/alternator_abc/abc, CREATE data");
        assert_eq!(
            shown("BatchWriteItem", r#"{"RequestItems":{"abc":[],"def":[]}}"#),
            "MODIFY data/alternator_abc/abc, MODIFY data/alternator_def/def"
        );
        assert_eq!(
            shown(
                "TransactWriteItems",
                r#"{"TransactItems":[{"Put":{"TableName":"abc"}},{"ConditionCheck":{"TableName":"def"}}]}"#
            ),
            "MODIFY data/alternator_abc/abc, SELECT data/alternator_def/def"
        );
        assert_eq!(
            shown("TransactGetItems", r#"{"TransactItems":[{"Get":{"TableName":"abc"}},3]}"#),
            "SELECT data/alternator_abc/abc"
        );
        assert_eq!(
            shown("ExecuteStatement", r#"{"Statement":"SELECT * FROM \"abc\""}"#),
            "SELECT data/alternator_abc/abc"
        );
        assert_eq!(
            shown(
                "ExecuteTransaction",
                r#"{"TransactStatements":[{"Statement":"DELETE FROM abc WHERE p = 1"},{"Statement":"EXISTS(SELECT * FROM def)"}]}"#
            ),
            "MODIFY data/alternator_abc/abc, SELECT data/alternator_def/def"
        );
        assert_eq!(
            shown(
                "BatchExecuteStatement",
                r#"{"Statements":[{"Statement":"INSERT INTO abc VALUE {'p':?}","Parameters":[{"S":"x"}]}]}"#
            ),
            "MODIFY data/alternator_abc/abc"
        );
        let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/abc/stream/2026-11-24T00:00:00.000";
        let read = |operation, member, text: &str| shown(operation, &format!(r#"{{"{member}":"{text}"}}"#));
        assert_eq!(read("GetShardIterator", "StreamArn", arn), "SELECT data/alternator_abc/abc");
        let iterator = format!("{arn}|1|5.0.6.7.8");
        assert_eq!(read("GetRecords", "ShardIterator", &iterator), "SELECT data/alternator_abc/abc");
        let system = r#"{"TableName":".scylla.alternator.system.clients"}"#;
        assert_eq!(shown("Scan", system), "SELECT data/system/clients");
        assert_eq!(shown("UpdateItem", system), "MODIFY data/system/clients");
        let clients = ".scylla.alternator.system.clients";
        assert_eq!(shown("GetItem", system), format!("SELECT data/alternator_{clients}/{clients}"));
        assert_eq!(shown("CreateTable", table), "CREATE data");
        assert_eq!(shown("ListTables", "{}"), "");
        assert_eq!(shown("Query", r#"{"TableName":7}"#), "");
    }
}
