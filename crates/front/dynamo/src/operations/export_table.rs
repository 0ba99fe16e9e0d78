//! ExportTableToPointInTime: all items of a table into files of a local directory, as AWS lays them out in S3.

use std::path::PathBuf;

use exec::backend::Coordinator;
use items::json;
use rt::preempt::Pace;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::page::PageRequest;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Capacity, Request, table_name};
use crate::table::{self, ApiTable};
use crate::transfer::data_file::{DataFile, write_manifest};
use crate::transfer::place::{bucket, parts};
use crate::transfer::record::Kind;
use crate::transfer::{Failure, Progress, Transfers, seconds, time_text};

/// The folder of an export that AWS names so.
const FOLDER: &str = "AWSDynamoDB";
/// How far `ExportTime` may lie from the present: AWS's clocks and the client's.
const NOW_SECONDS: f64 = 60.0;

/// The place of an export.
struct Target {
    bucket: String,
    /// The parts of the prefix, all of them folders.
    prefix: Vec<String>,
    /// That of the export; empty until there is one.
    id: String,
}

impl Target {
    fn read(request: &Request) -> Result<Self> {
        let name = json::read_string(request.required("S3Bucket")?)?;
        let mut prefix = parts("S3Prefix", request.string("S3Prefix")?.unwrap_or_default())?;
        prefix.retain(|part| !part.is_empty());
        Ok(Self { bucket: bucket(name)?, prefix, id: String::new() })
    }

    /// The folders of the export inside its bucket.
    fn folders(&self) -> Vec<String> {
        let own = [FOLDER.to_owned(), self.id.clone()];
        self.prefix.iter().cloned().chain(own).collect()
    }

    /// The key of one of its files.
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.folders().join("/"))
    }
}

/// Refuses options that the export does not have.
fn check(request: &Request, now_micros: i64) -> Result<()> {
    let format = request.one_of("ExportFormat", &["DYNAMODB_JSON", "ION"])?;
    if format == Some("ION") {
        return invalid!("ExportFormat: Torc exports DYNAMODB_JSON, and not ION");
    }
    let kind = request.one_of("ExportType", &["FULL_EXPORT", "INCREMENTAL_EXPORT"])?;
    if kind == Some("INCREMENTAL_EXPORT") || request.has("IncrementalExportSpecification") {
        return invalid!("ExportType: Torc has full exports only, as it keeps no earlier states of a table");
    }
    for name in ["S3SseAlgorithm", "S3SseKmsKeyId"] {
        if request.has(name) {
            return invalid!("{name}: Torc does not encrypt the files of exports");
        }
    }
    if request.has("FilterSpecification") {
        return invalid!("FilterSpecification: Torc exports all items of a table");
    }
    let Some(time) = request.get("ExportTime") else { return Ok(()) };
    let Some(time) = time.as_f64() else {
        return Err(ApiError::new(ErrorKind::Serialization, "ExportTime is no number"));
    };
    if (time - seconds(now_micros)).abs() > NOW_SECONDS {
        let text = "ExportTime must be absent or now: Torc keeps no earlier states of a table (point-in-time recovery)";
        return Err(ApiError::new(ErrorKind::InvalidExportTime, text));
    }
    Ok(())
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn export_table(&self, request: &Request) -> Result<Json> {
        let transfers = self.transfers("ExportTableToPointInTime")?;
        let arn = json::read_string(request.required("TableArn")?)?;
        let table = table::find(&self.schema(), &table_name(arn)?)
            .map_err(|_| ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {arn}")))?;
        let now = self.executor.clock().wall_micros();
        check(request, now)?;
        let mut target = Target::read(request)?;
        let new = match self.new_transfer(&transfers, Kind::Export, request).await? {
            Ok(new) => new,
            Err(known) => return Ok(to_json!({ "ExportDescription": known.description })),
        };
        target.id.clone_from(&new.id);
        // A link out of the directory is refused at once; a bucket that is not there is found by the export.
        let folders: Vec<String> = [&target.bucket].into_iter().chain(&target.prefix).cloned().collect();
        transfers.root.find(&folders).await?;
        let mut description = self.begun(&new, &table, now);
        for (name, value) in [
            ("ExportFormat", to_json!("DYNAMODB_JSON")),
            ("ExportType", to_json!("FULL_EXPORT")),
            ("ExportTime", to_json!(seconds(now))),
            ("S3Bucket", to_json!(target.bucket)),
        ] {
            description.insert(name.to_owned(), value);
        }
        for name in ["S3Prefix", "S3BucketOwner"] {
            if let Some(value) = request.string(name)? {
                description.insert(name.to_owned(), value.into());
            }
        }
        let record = new.record(&transfers, description)?;
        transfers.add(new.kind, &new.id, &record).await?;
        let answer = to_json!({ "ExportDescription": record.description });
        let (api, own) = (self.clone(), transfers.clone());
        let id = new.id.clone();
        transfers.begin(new.kind, &new.id, async move {
            let mut progress = Progress::new(&own, Kind::Export, &id, record);
            let result = api.export(&own, &table, &target, &mut progress).await;
            progress.end(result).await;
        });
        Ok(answer)
    }

    /// Writes the files of an export.
    async fn export(
        &self,
        transfers: &Transfers,
        table: &ApiTable,
        target: &Target,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let root = &transfers.root;
        if root.find(std::slice::from_ref(&target.bucket)).await?.is_none() {
            return Err(Failure::new("S3NoSuchBucket", "The specified bucket does not exist"));
        }
        let mut folders = vec![target.bucket.clone()];
        folders.extend(target.folders());
        let folder = root.create(&folders).await?;
        root.disk.write_atomically(folder.join("_started"), b"").await?;
        folders.push("data".to_owned());
        let data = root.create(&folders).await?;
        let files = self.export_items((transfers, &data, &target.key("data")), table, progress).await?;
        root.disk.sync_dir(&data).await?;
        write_manifest(&root.disk, &folder, "manifest-files", &files).await?;
        let summary = self.summary(target, table, progress);
        // Its presence means that all is there.
        write_manifest(&root.disk, &folder, "manifest-summary", &summary.to_string()).await?;
        progress.record.set("ExportManifest", target.key("manifest-summary.json"));
        Ok(())
    }

    /// Writes all items into data files; their lines of the manifest.
    async fn export_items(
        &self,
        (transfers, folder, key): (&Transfers, &PathBuf, &str),
        table: &ApiTable,
        progress: &mut Progress<'_>,
    ) -> Result<String, Failure> {
        let disk = &transfers.root.disk;
        let create = || DataFile::create(disk, folder, self.executor.clock().random());
        let request = PageRequest::of_statement((None, None), None, true, Capacity::None);
        let (mut files, mut items, mut bytes) = (String::new(), 0, 0);
        let (mut start, mut pace) = (None, Pace::new());
        let mut file = create().await?;
        loop {
            let read = || Box::pin(self.scan_page(table, (0, 1), start.clone(), &request));
            let page = transfers.retrying(read).await?;
            items += page.items.iter().len() as u64;
            for item in page.items.iter() {
                let before = file.bytes();
                file.add(item).map_err(|error| Failure::new("InternalServerError", error.to_string()))?;
                pace.steps(1 + ((file.bytes() - before) / 1024) as usize).await;
                bytes += file.bytes() - before;
                file.drain().await?;
            }
            progress.record.set("ItemCount", items);
            progress.record.set("BilledSizeBytes", bytes);
            progress.save_sometimes().await;
            start = page.last;
            if start.is_none() {
                break;
            }
            if file.is_full() {
                files += &file.finish(key).await?;
                file = create().await?;
            }
        }
        files += &file.finish(key).await?;
        Ok(files)
    }

    /// The summary of an export, as AWS writes it.
    fn summary(&self, target: &Target, table: &ApiTable, progress: &Progress<'_>) -> Json {
        let of = |name: &str| progress.record.description.get(name).cloned().unwrap_or_default();
        let time = |name: &str| time_text((of(name).as_f64().unwrap_or(0.0) * 1e6).round() as i64);
        let members = [
            ("version", to_json!("2020-06-30")),
            ("exportArn", of("ExportArn")),
            ("startTime", time("StartTime").into()),
            ("endTime", time_text(self.executor.clock().wall_micros()).into()),
            ("tableArn", to_json!(table.arn())),
            ("tableId", of("TableId")),
            ("exportTime", time("ExportTime").into()),
            ("s3Bucket", of("S3Bucket")),
            ("s3Prefix", of("S3Prefix")),
            ("s3SseAlgorithm", Json::Null),
            ("s3SseKmsKeyId", Json::Null),
            ("manifestFilesS3Key", target.key("manifest-files.json").into()),
            ("billedSizeBytes", of("BilledSizeBytes")),
            ("itemCount", of("ItemCount")),
            ("outputFormat", to_json!("DYNAMODB_JSON")),
            ("outputView", Json::Null),
            ("exportType", to_json!("FULL_EXPORT")),
        ];
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
    }
}
