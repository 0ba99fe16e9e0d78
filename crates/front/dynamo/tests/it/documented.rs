//! The table of parameters in docs/dynamodb.md against the code: the operations that there are, and the parameters that requests are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::node::{ask, on_a_node};
use crate::{api, create};
use dynamo::Isolation;

/// Members of parts of requests, which the table does not go into.
const NESTED: [&str; 7] = [
    "Csv",
    "Delimiter",
    "ExportViewType",
    "Get",
    "HeaderList",
    "PointInTimeRecoveryEnabled",
    "RecoveryPeriodInDays",
];
/// The functions that read a parameter of a request by its name.
const READERS: [&str; 8] = ["get", "has", "required", "string", "boolean", "integer", "one_of", "item"];

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text of all source files of the crate.
fn sources() -> String {
    let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut all = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                all += &std::fs::read_to_string(path).expect("a source file");
            }
        }
    }
    all
}

/// The names in the list of operations `list` in `names.rs`.
fn operations(list: &str) -> BTreeSet<String> {
    let names = text("src/operations/names.rs");
    let (_, list) = names.split_once(&format!(" {list}: ")).expect("the list");
    let (list, _) = list.split_once("];").expect("its end");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A row of the table: the cells behind the name of the operation.
type Row = [String; 3];

/// The rows of the table by operation.
fn table() -> BTreeMap<String, Row> {
    let document = text("../../../docs/dynamodb.md");
    let (_, table) = document.split_once("\n### Parameters\n").expect("the table of parameters");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let mut out = BTreeMap::new();
    for line in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, yes, differs, no] = cells[..] else { panic!("a row of {} cells: {line}", cells.len()) };
        for name in names.split(", ") {
            let row = [yes, differs, no].map(str::to_owned);
            assert!(out.insert(name.to_owned(), row).is_none(), "{name} has two rows");
        }
    }
    out
}

/// The parameters of a cell.
fn parameters(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn is_refused(row: &Row) -> bool {
    let [yes, differs, no] = row;
    yes.is_empty() && differs.is_empty() && no == "all"
}

#[test]
fn the_document_has_every_operation_and_no_others() {
    let table = table();
    let (known, refused) = (operations("OPERATIONS"), operations("UNSUPPORTED"));
    let documented: BTreeSet<String> = table.keys().cloned().collect();
    assert_eq!(documented, known.union(&refused).cloned().collect());
    for name in &refused {
        assert!(is_refused(&table[name]), "{name} is refused");
    }
    for name in &known {
        assert!(!is_refused(&table[name]), "{name} is not refused");
    }
}

#[test]
fn the_document_has_every_parameter_that_requests_are_asked_for() {
    let (table, sources) = (table(), sources());
    let documented: BTreeSet<&str> =
        table.values().flatten().flat_map(|cell| parameters(cell)).chain(NESTED).collect();
    let mut asked = BTreeSet::new();
    for reader in READERS {
        for of in ["request", "part", "self", "options"] {
            let call = format!("{of}.{reader}(\"");
            let names = sources.split(call.as_str()).skip(1).filter_map(|rest| rest.split('"').next());
            asked.extend(names.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase())));
        }
    }
    assert!(asked.len() > 70, "{} parameters were found", asked.len());
    let missing: Vec<_> = asked.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/dynamodb.md: {missing:?}");
}

#[test]
fn the_code_knows_every_parameter_of_the_document() {
    let (table, sources) = (table(), sources());
    for (operation, row) in &table {
        let mut seen = BTreeSet::new();
        for parameter in row.iter().flat_map(|cell| parameters(cell)) {
            assert!(seen.insert(parameter), "{operation} has {parameter} twice");
            // The names of overrides of indexes are made of those of the indexes.
            let literal = parameter.replace("IndexOverride", "Indexes");
            assert!(sources.contains(&format!("\"{literal}\"")), "{operation}: the code has no {parameter}");
        }
    }
}

/// A value by which a parameter asks for something.
fn asking(parameter: &str) -> Json {
    match parameter {
        "SSESpecification" | "SSESpecificationOverride" => json!({ "Enabled": true }),
        "ReplicaUpdates" | "GlobalTableWitnessUpdates" => json!([{}]),
        "DisassociationProtectionEnabled" => json!(true),
        "Timestamp" => json!(1),
        "FilterSpecification" => json!({}),
        _ => json!("x"),
    }
}

/// A request of an operation without the parameters that are refused.
fn request_of(operation: &str) -> Json {
    let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/known";
    match operation {
        "CreateTable" => json!({
            "TableName": "new", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{ "AttributeName": "p", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }],
        }),
        "ExportTableToPointInTime" => json!({ "TableArn": arn, "S3Bucket": "b" }),
        "GetShardIterator" => json!({
            "StreamArn": format!("{arn}/stream/2026-11-29T00:00:00.000"), "ShardId": "shardId-00000000000000000000-00000000",
            "ShardIteratorType": "LATEST",
        }),
        "RestoreTableFromBackup" => {
            json!({ "TargetTableName": "new", "BackupArn": format!("{arn}/backup/01700000000000-00000000") })
        }
        "RestoreTableToPointInTime" => {
            json!({ "TargetTableName": "new", "SourceTableName": "known", "UseLatestRestorableTime": true })
        }
        "UpdateTable" => json!({ "TableName": "known", "DeletionProtectionEnabled": true }),
        _ => panic!("{operation} refuses parameters: give the test a request without them"),
    }
}

#[test]
fn the_parameters_of_the_last_column_are_refused_by_name() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/exports/b").await.expect("a directory");
        let api = api(Isolation::Always).with_export_directory(&rt, "/exports".into(), None);
        create(&api, "known", None);
        for (operation, row) in table() {
            for parameter in parameters(&row[2]) {
                let mut request = request_of(&operation);
                request[parameter] = asking(parameter);
                let (status, answer) = ask(&api, &operation, &request).await;
                let text = answer["message"].as_str().unwrap_or_default();
                let is_named = text.starts_with(&format!("{parameter}: Torc "));
                assert!(status == 400 && is_named, "{operation}, {parameter}: {status} {answer}");
            }
            if is_refused(&row) {
                let (status, answer) = ask(&api, &operation, &json!({})).await;
                let kind = answer["__type"].as_str().unwrap_or_default();
                assert!(
                    status == 400 && kind.ends_with("#UnknownOperationException"),
                    "{operation}: {answer}"
                );
            }
        }
    });
}
