//! Exports and imports over the simulated disk: whole, interrupted, and left behind by an earlier process.

use std::time::Duration;

use dynamo::{Dynamo, Isolation};
use rt::Rt;
use serde_json::{Value as Json, json};

use crate::memory::Memory;
use crate::node::{ask, done, on_a_node};
use crate::{api, create};

const DIRECTORY: &str = "/exports";

fn with_directory(rt: &Rt) -> Dynamo<Memory> {
    api(Isolation::Always).with_export_directory(rt, DIRECTORY.into(), None)
}

/// A table of many items.
async fn fill(api: &Dynamo<Memory>, table: &str, items: usize) {
    create(api, table, Some("N"));
    for at in 0..items {
        let item = json!({ "p": { "S": format!("p{}", at % 3) }, "c": { "N": at.to_string() }, "v": { "S": "x".repeat(500) } });
        done(api, "PutItem", &json!({ "TableName": table, "Item": item })).await;
    }
}

pub fn export_of(table: &str) -> Json {
    json!({ "TableArn": format!("arn:aws:dynamodb:us-east-1:000000000000:table/{table}"), "S3Bucket": "b", "S3Prefix": "x" })
}

pub fn import_into(table: &str, prefix: &str) -> Json {
    json!({
        "S3BucketSource": { "S3Bucket": "b", "S3KeyPrefix": prefix },
        "InputFormat": "DYNAMODB_JSON", "InputCompressionType": "GZIP",
        "TableCreationParameters": {
            "TableName": table, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{ "AttributeName": "p", "AttributeType": "S" }, { "AttributeName": "c", "AttributeType": "N" }],
            "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "c", "KeyType": "RANGE" }],
        },
    })
}

/// The description of a transfer when it is over.
pub async fn ended(rt: &Rt, api: &Dynamo<Memory>, arn: &Json) -> Json {
    let (operation, name, member, status) = match arn.as_str().expect("an ARN").contains("/export/") {
        true => ("DescribeExport", "ExportArn", "ExportDescription", "ExportStatus"),
        false => ("DescribeImport", "ImportArn", "ImportTableDescription", "ImportStatus"),
    };
    for _ in 0..10_000 {
        let answer = done(api, operation, &json!({ (name): arn })).await[member].clone();
        if answer[status] != "IN_PROGRESS" {
            return answer;
        }
        rt.sleep(Duration::from_millis(10)).await;
    }
    panic!("{arn} does not end");
}

pub async fn items(api: &Dynamo<Memory>, table: &str) -> Json {
    done(api, "Scan", &json!({ "TableName": table })).await["Items"].clone()
}

#[test]
fn a_table_is_exported_and_imported_again() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/exports/b").await.unwrap();
        let api = with_directory(&rt);
        fill(&api, "source", 250).await;
        let begun = done(&api, "ExportTableToPointInTime", &export_of("source")).await;
        let export = ended(&rt, &api, &begun["ExportDescription"]["ExportArn"]).await;
        assert_eq!(
            (&export["ExportStatus"], &export["ItemCount"]),
            (&json!("COMPLETED"), &json!(250)),
            "{export}"
        );
        let manifest = export["ExportManifest"].as_str().unwrap();
        let prefix = manifest.replace("manifest-summary.json", "data/");
        let begun = done(&api, "ImportTable", &import_into("target", &prefix)).await;
        let import = ended(&rt, &api, &begun["ImportTableDescription"]["ImportArn"]).await;
        assert_eq!(
            (&import["ImportStatus"], &import["ImportedItemCount"]),
            (&json!("COMPLETED"), &json!(250))
        );
        assert_eq!(items(&api, "target").await, items(&api, "source").await);
        // The manifests are no items: each of their files has one line, one of them without an end.
        let begun = done(&api, "ImportTable", &json!({
            "S3BucketSource": { "S3Bucket": "b", "S3KeyPrefix": manifest }, "InputFormat": "DYNAMODB_JSON",
            "TableCreationParameters": import_into("wrong", "")["TableCreationParameters"],
        })).await;
        let import = ended(&rt, &api, &begun["ImportTableDescription"]["ImportArn"]).await;
        let counts = ["ProcessedItemCount", "ImportedItemCount", "ErrorCount"]
            .map(|name| import[name].as_u64().unwrap());
        assert_eq!(counts, [1, 0, 1]);
    });
}

#[test]
fn transfers_that_are_interrupted_have_failed() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/exports/b").await.unwrap();
        let api = with_directory(&rt);
        fill(&api, "source", 50).await;
        let begun = done(&api, "ExportTableToPointInTime", &export_of("source")).await;
        let arn = &begun["ExportDescription"]["ExportArn"];
        let folder = arn.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        api.stop_transfers().await;
        let export = ended(&rt, &api, arn).await;
        assert_eq!(export["ExportStatus"], "FAILED", "{export}");
        assert!(export["FailureMessage"].as_str().unwrap().contains("stopped"), "{export}");
        let summary = format!("/exports/b/x/AWSDynamoDB/{folder}/manifest-summary.json");
        assert!(!rt.disk().exists(&summary).await.unwrap(), "an export without an end has no summary");
        let (status, refused) = ask(&api, "ExportTableToPointInTime", &export_of("source")).await;
        assert_eq!(status, 400, "a node that stops begins none: {refused}");
    });
}

#[test]
fn a_process_that_was_killed_has_left_failed_transfers() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/exports/b").await.unwrap();
        let api = with_directory(&rt);
        fill(&api, "source", 5).await;
        let mut arns = Vec::new();
        for (token, node) in [("own", None), ("other", Some("another-node"))] {
            let mut request = export_of("source");
            request["ClientToken"] = json!(token);
            let begun = done(&api, "ExportTableToPointInTime", &request).await;
            let arn = begun["ExportDescription"]["ExportArn"].clone();
            assert_eq!(ended(&rt, &api, &arn).await["ExportStatus"], "COMPLETED");
            // As it was written at the beginning.
            let id = arn.as_str().unwrap().rsplit('/').next().unwrap();
            let path = format!("/exports/.torc/exports/{id}.json");
            let bytes = rt.disk().read_to_end(&path, 1 << 20).await.unwrap();
            let mut record: Json = serde_json::from_slice(&bytes).unwrap();
            record["description"]["ExportStatus"] = json!("IN_PROGRESS");
            if let Some(node) = node {
                record["node"] = json!(node);
            }
            rt.disk().write_atomically(&path, record.to_string().as_bytes()).await.unwrap();
            arns.push(arn);
        }
        let next = with_directory(&rt);
        next.fail_abandoned_transfers().await;
        let mut shown = Vec::new();
        for arn in &arns {
            let answer = done(&next, "DescribeExport", &json!({ "ExportArn": arn })).await;
            shown.push(answer["ExportDescription"]["ExportStatus"].clone());
        }
        assert_eq!(shown, ["FAILED", "IN_PROGRESS"], "another node carries its own out");
    });
}

#[test]
fn no_more_transfers_than_a_shard_carries_out() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/exports/b").await.unwrap();
        let api = with_directory(&rt);
        fill(&api, "source", 50).await;
        let mut begun = Vec::new();
        let refused = loop {
            let mut request = export_of("source");
            request["ClientToken"] = json!(format!("token{}", begun.len()));
            match ask(&api, "ExportTableToPointInTime", &request).await {
                (200, answer) => begun.push(answer["ExportDescription"]["ExportArn"].clone()),
                (_, error) => break error,
            }
            assert!(begun.len() < 100, "there is a limit");
        };
        assert!(refused["__type"].as_str().unwrap().ends_with("LimitExceededException"), "{refused}");
        for arn in &begun {
            assert_eq!(ended(&rt, &api, arn).await["ExportStatus"], "COMPLETED");
        }
        done(&api, "ExportTableToPointInTime", &export_of("source")).await;
    });
}

#[test]
fn nothing_is_allowed_without_a_directory() {
    on_a_node(|rt| async move {
        let api = api(Isolation::Always);
        create(&api, "source", None);
        let arn = json!({ "ExportArn": "a/export/1", "ImportArn": "a/import/1" });
        for (operation, request) in [
            ("ExportTableToPointInTime", &export_of("source")),
            ("ImportTable", &import_into("target", "")),
            ("DescribeExport", &arn),
            ("DescribeImport", &arn),
            ("ListExports", &json!({})),
            ("ListImports", &json!({})),
        ] {
            let (status, answer) = ask(&api, operation, request).await;
            assert_eq!(status, 400, "{operation}");
            let text = answer["message"].as_str().unwrap();
            assert!(text.contains("alternator_export_directory") && text.contains(operation), "{text}");
        }
        // A directory that is not there.
        let missing = with_directory(&rt);
        create(&missing, "source", None);
        let (status, answer) = ask(&missing, "ExportTableToPointInTime", &export_of("source")).await;
        assert_eq!(status, 400);
        assert!(answer["message"].as_str().unwrap().contains("does not exist"), "{answer}");
    });
}
