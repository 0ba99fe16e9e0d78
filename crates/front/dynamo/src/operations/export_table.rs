//! ExportTableToPointInTime: all items of a table into files of a local directory or of an S3-compatible service, as AWS lays them out.

use std::ops::RangeInclusive;
use std::time::Duration;

use cluster::SchemaEdit;
use coordinator::ClusterView;
use exec::backend::Coordinator;
use items::{ion, json};
use rt::preempt::Pace;
use schema::Schema;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::continuous_backups::micros;
use super::page::PageRequest;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::recovery::net::{NetChange, NetChanges};
use crate::recovery::{MICROS_MAX as RESTORED_MICROS_MAX, unseen};
use crate::reply::push_member;
use crate::request::{Request, table_name};
use crate::streams::position::Position;
use crate::streams::reader::ShardRead;
use crate::streams::shard::shard_bits;
use crate::table::{self, ApiTable, keyspace_name};
use crate::transfer::data_file::{DataFile, write_manifest};
use crate::transfer::place::{Bucket, bucket, owner, parts};
use crate::transfer::record::{Kind, Records};
use crate::transfer::storage::{Files, Folder};
use crate::transfer::{Failure, Progress, Transfers, seconds, time_text};

/// The folder of an export that AWS names so.
const FOLDER: &str = "AWSDynamoDB";
/// How far an `ExportTime` that means the present may lie from it, microseconds: AWS's clocks and the client's.
const NOW_MICROS: i64 = 60_000_000;
/// The length of an incremental export, microseconds.
const PERIOD_MICROS: RangeInclusive<i64> = 900_000_000..=24 * 3_600_000_000;
/// Bytes of net changes that are held at once, and of changes that are read at once.
const NET_BYTES: usize = 16 << 20;
const CHANGES_BYTES: usize = 4 << 20;
/// The names of tables that are restored for an export begin so.
const PAST_PREFIX: &str = "torc.export.";
/// How often it is looked whether such a table is complete.
const RESTORED_INTERVAL: Duration = Duration::from_millis(200);

/// The place of an export.
struct Target {
    bucket: Bucket,
    /// The parts of the prefix, all of them folders.
    prefix: Vec<String>,
    /// That of the export; empty until there is one.
    id: String,
}

impl Target {
    fn read(request: &Request, has_service: bool) -> Result<Self> {
        let name = json::read_string(request.required("S3Bucket")?)?;
        let mut prefix = parts("S3Prefix", request.string("S3Prefix")?.unwrap_or_default())?;
        prefix.retain(|part| !part.is_empty());
        let owner = owner(request.string("S3BucketOwner")?, "s3BucketOwner", has_service)?;
        let bucket = Bucket { name: bucket(name)?, owner };
        Ok(Self { bucket, prefix, id: String::new() })
    }

    /// The folder of the export.
    fn folder(&self) -> Folder {
        let own = [FOLDER.to_owned(), self.id.clone()];
        Folder { bucket: self.bucket.clone(), names: self.prefix.iter().cloned().chain(own).collect() }
    }
}

/// The form of the lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Ion,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "DYNAMODB_JSON",
            Self::Ion => "ION",
        }
    }

    /// The end of the names of files.
    fn end(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Ion => "ion",
        }
    }

    /// The line of an item, by its text in this format.
    fn line(self, item: &str) -> String {
        match self {
            Self::Json => format!("{{\"Item\":{item}}}"),
            Self::Ion => format!("{} {{Item:{item}}}", ion::VERSION_MARK),
        }
    }

    /// The line of a net change.
    fn record(self, net: &NetChange, shows_old: bool) -> String {
        let images =
            [("Keys", Some(&net.key)), ("NewImage", net.after.as_ref()), ("OldImage", net.before.as_ref())];
        let images = images.into_iter().filter(|(name, _)| shows_old || *name != "OldImage");
        let images = images.filter_map(|(name, image)| Some((name, image?)));
        match self {
            Self::Json => {
                let micros = to_json!({ "WriteTimestampMicros": { "N": net.micros.to_string() } });
                let mut line = to_json!({ "Metadata": micros }).to_string();
                images.for_each(|(name, image)| {
                    push_member(&mut line, name, |out| json::write_item(image, out));
                });
                line
            }
            Self::Ion => {
                let (mark, micros) = (ion::VERSION_MARK, net.micros);
                let mut line = format!("{mark} {{Record:{{Metadata:{{WriteTimestampMicros:{micros}.}}");
                for (name, image) in images {
                    line.push_str(&format!(",{name}:"));
                    ion::write_item(image, &mut line);
                }
                line.push_str("}}");
                line
            }
        }
    }
}

/// The items that an export has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// All as they are.
    Present,
    /// All as they were at a time, microseconds since 1970.
    Past(i64),
    /// Those that have changed from a time until before another, with their state before.
    Changes { from: i64, to: i64, shows_old: bool },
}

/// Refuses options that no export has.
fn check(request: &Request) -> Result<()> {
    for name in ["S3SseAlgorithm", "S3SseKmsKeyId"] {
        if request.has(name) {
            return invalid!("{name}: Torc does not encrypt the files of exports");
        }
    }
    if request.has("FilterSpecification") {
        return invalid!("FilterSpecification: Torc exports all items of a table");
    }
    Ok(())
}

fn wrong_time<T>(text: impl Into<String>) -> Result<T> {
    Err(ApiError::new(ErrorKind::InvalidExportTime, text))
}

/// `IncrementalExportSpecification`: its times, and whether old images are shown. It ends at `latest` where nothing else is given.
fn changes(request: &Request, latest: i64) -> Result<(i64, i64, bool)> {
    if request.has("ExportTime") {
        return invalid!("ExportTime cannot be specified for an incremental export");
    }
    let part = request.get("IncrementalExportSpecification").map(Request::part).transpose()?;
    let Some(part) = part else {
        return invalid!("IncrementalExportSpecification must be specified for an incremental export");
    };
    let view = part.one_of("ExportViewType", &["NEW_IMAGE", "NEW_AND_OLD_IMAGES"])?;
    let Some(from) = micros(&part, "ExportFromTime")? else {
        return invalid!("IncrementalExportSpecification: ExportFromTime must be specified");
    };
    let to = micros(&part, "ExportToTime")?.unwrap_or(latest);
    if !PERIOD_MICROS.contains(&(to - from)) {
        return wrong_time("The time from ExportFromTime to ExportToTime must be 15 minutes to 24 hours");
    }
    Ok((from, to, view != Some("NEW_IMAGE")))
}

/// The data files of an export.
struct Output<'a> {
    files: &'a Files,
    folder: Folder,
    format: Format,
    clock: &'a dyn Fn() -> [u8; 16],
    file: DataFile,
    /// The lines of the manifest of the files that are complete.
    lines: String,
    items: u64,
    bytes: u64,
    pace: Pace,
}

impl<'a> Output<'a> {
    async fn new(
        files: &'a Files,
        folder: Folder,
        format: Format,
        clock: &'a dyn Fn() -> [u8; 16],
    ) -> Result<Self, Failure> {
        let file = DataFile::create(files, &folder, clock(), format.end()).await?;
        let (lines, pace) = (String::new(), Pace::new());
        Ok(Self { files, folder, format, clock, file, lines, items: 0, bytes: 0, pace })
    }

    /// Adds the line of an item.
    async fn add(&mut self, line: &str) -> Result<(), Failure> {
        let before = self.file.bytes();
        self.file.add(line).map_err(|error| Failure::new("InternalServerError", error.to_string()))?;
        let bytes = self.file.bytes() - before;
        self.pace.steps(1 + (bytes / 1024) as usize).await;
        (self.items, self.bytes) = (self.items + 1, self.bytes + bytes);
        Ok(self.file.drain().await?)
    }

    /// Shows the progress of the export, and begins another file when this one is full.
    async fn end_page(&mut self, progress: &mut Progress<'_>) -> Result<(), Failure> {
        progress.record.set("ItemCount", self.items);
        progress.record.set("BilledSizeBytes", self.bytes);
        progress.save_sometimes().await;
        if self.file.is_full() {
            self.lines += &self.file.finish().await?;
            self.file = DataFile::create(self.files, &self.folder, (self.clock)(), self.format.end()).await?;
        }
        Ok(())
    }

    /// The lines of the manifest.
    async fn finish(&mut self) -> Result<String, Failure> {
        self.lines += &self.file.finish().await?;
        Ok(std::mem::take(&mut self.lines))
    }
}

/// An export under way.
struct Job {
    table: ApiTable,
    target: Target,
    format: Format,
    content: Content,
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn export_table(&self, request: &Request) -> Result<Json> {
        let transfers = self.transfers("ExportTableToPointInTime")?;
        let arn = json::read_string(request.required("TableArn")?)?;
        let table = table::find(&self.schema(), &table_name(arn)?)
            .map_err(|_| ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {arn}")))?;
        let now = self.executor.clock().wall_micros();
        check(request)?;
        let format = match request.one_of("ExportFormat", &["DYNAMODB_JSON", "ION"])? {
            Some("ION") => Format::Ion,
            _ => Format::Json,
        };
        let content = self.export_content(request, &table, now)?;
        let mut target = Target::read(request, transfers.files.objects.is_some())?;
        let new = match self.new_transfer(&transfers, Kind::Export, request).await? {
            Ok(new) => new,
            Err(known) => return Ok(to_json!({ "ExportDescription": known.description })),
        };
        target.id.clone_from(&new.id);
        // A link out of the directory is refused at once; a bucket that is not there is found by the export.
        let folders: Vec<String> = [&target.bucket.name].into_iter().chain(&target.prefix).cloned().collect();
        transfers.files.check_way(&folders).await?;
        let mut description = self.begun(&new, &table, now);
        for (name, value) in [
            ("ExportFormat", to_json!(format.name())),
            ("ExportType", to_json!(content.export_type())),
            ("S3Bucket", to_json!(target.bucket.name)),
        ] {
            description.insert(name.to_owned(), value);
        }
        content.describe(now, &mut description);
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
            let job = Job { table, target, format, content };
            let result = api.export(&own, &job, &mut progress).await;
            progress.end(result).await;
        });
        Ok(answer)
    }

    /// The items that are to be exported.
    fn export_content(&self, request: &Request, table: &ApiTable, now: i64) -> Result<Content> {
        let schema = self.schema();
        let (kind, window) = (
            request.one_of("ExportType", &["FULL_EXPORT", "INCREMENTAL_EXPORT"])?,
            now - self.streams.window_micros,
        );
        let is_restorable = |micros: i64| match self.restorable_micros(&schema, table, Some(micros)) {
            Err(error) if error.kind == ErrorKind::InvalidRestoreTime => wrong_time(error.message),
            checked => checked.map(|_| ()),
        };
        if kind == Some("INCREMENTAL_EXPORT") {
            let (from, to, shows_old) = changes(request, window.div_euclid(1_000_000) * 1_000_000)?;
            is_restorable(from)?;
            is_restorable(to)?;
            return Ok(Content::Changes { from, to, shows_old });
        }
        if request.has("IncrementalExportSpecification") {
            return invalid!("IncrementalExportSpecification is of the ExportType INCREMENTAL_EXPORT alone");
        }
        match micros(request, "ExportTime")? {
            Some(time) if (time - now).abs() > NOW_MICROS => {
                is_restorable(time)?;
                Ok(Content::Past(time))
            }
            _ => Ok(Content::Present),
        }
    }

    /// Writes the files of an export.
    async fn export(
        &self,
        transfers: &Transfers,
        job: &Job,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let folder = job.target.folder();
        transfers.files.put(&folder, "_started", b"").await?;
        // The data of incremental exports lie beside each other, as at AWS.
        let mut of_data = folder.clone();
        if matches!(job.content, Content::Changes { .. }) {
            of_data.names.pop();
        }
        of_data.names.push("data".to_owned());
        let random = || self.executor.clock().random();
        let mut output = Output::new(&transfers.files, of_data, job.format, &random).await?;
        let files = match self.export_content_of(transfers, job, &mut output, progress).await {
            Ok(()) => output.finish().await,
            Err(failure) => Err(failure),
        };
        if files.is_err() {
            output.file.abort().await;
        }
        write_manifest(&transfers.files, &folder, "manifest-files", &files?).await?;
        let summary = self.summary(job, progress);
        // Its presence means that all is there.
        write_manifest(&transfers.files, &folder, "manifest-summary", &summary.to_string()).await?;
        progress.record.set("ExportManifest", folder.key("manifest-summary.json"));
        Ok(())
    }

    /// Writes the data files of an export.
    async fn export_content_of(
        &self,
        transfers: &Transfers,
        job: &Job,
        output: &mut Output<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        match job.content {
            Content::Present => self.export_items(transfers, &job.table, output, progress).await,
            Content::Past(micros) => {
                let past = past_name(&job.target.id);
                let exported = self.export_past(transfers, (job, micros, &past), output, progress).await;
                // Also one of which not all is there.
                self.drop_past(&past).await?;
                exported
            }
            Content::Changes { from, to, shows_old } => {
                let times = (from, to, shows_old);
                self.export_changes(transfers, (&job.table, times), output, progress).await
            }
        }
    }

    /// Writes all items as they are.
    async fn export_items(
        &self,
        transfers: &Transfers,
        table: &ApiTable,
        output: &mut Output<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let request = PageRequest::of_export(output.format == Format::Ion);
        let mut start = None;
        loop {
            let read = || Box::pin(self.scan_page(table, (0, 1), start.clone(), &request));
            let page = transfers.retrying(read).await?;
            for item in page.items.iter() {
                output.add(&output.format.line(item)).await?;
            }
            output.end_page(progress).await?;
            start = page.last;
            if start.is_none() {
                return Ok(());
            }
        }
    }

    /// Writes all items as they were at a time, by a table that is restored for it.
    async fn export_past(
        &self,
        transfers: &Transfers,
        (job, micros, past): (&Job, i64, &str),
        output: &mut Output<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let plain = Request::part(&to_json!({}))?;
        self.create_recovered(&plain, (&job.table, past), micros, None).await?;
        let restored = loop {
            progress.save_sometimes().await;
            transfers.rt.sleep(RESTORED_INTERVAL).await;
            match table::find_named(&self.schema(), past) {
                Ok(table) if !table.is_restoring() => break table,
                Ok(_) => {}
                Err(_) => {
                    let text = "The items of that time cannot be restored: the reason is in the node's log";
                    return Err(Failure::new("InternalServerError", text));
                }
            }
        };
        self.export_items(transfers, &restored, output, progress).await
    }

    /// Removes the table that was restored for an export, if it is there.
    async fn drop_past(&self, name: &str) -> Result<()> {
        let plan = |schema: &Schema, _: &ClusterView, _: [u8; 16]| {
            let found = table::find_named(schema, name).is_ok();
            Ok::<_, ApiError>(
                found.then(|| SchemaEdit::DropKeyspace(keyspace_name(name))).into_iter().collect(),
            )
        };
        self.executor.change_schema_by(None, plan).await
    }

    /// Removes the tables that exports of this node have left which were interrupted; how many.
    pub(super) async fn drop_left_pasts(&self) -> Result<u64> {
        let Some(transfers) = &self.transfers else { return Ok(0) };
        let mut count = 0;
        for table in table::all(&self.schema()) {
            let Some(id) = table.name().strip_prefix(PAST_PREFIX) else { continue };
            let record = Records(&transfers.files.root).read(Kind::Export, id).await?;
            if record.is_some_and(|record| record.node == transfers.node && !record.is_running(Kind::Export))
            {
                self.drop_past(table.name()).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Writes the net changes of items within a time.
    async fn export_changes(
        &self,
        transfers: &Transfers,
        (table, (from, to, shows_old)): (&ApiTable, (i64, i64, bool)),
        output: &mut Output<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let (schema, store, begun) = (self.schema(), self.store(), self.executor.clock().wall_micros());
        let Some(log) = schema.cdc_log_of(&table.table) else {
            return Err(Failure::new("InternalServerError", "The log of the table's changes is gone"));
        };
        let bits = shard_bits(&self.executor.coordinator().view());
        for shard in 0..1 << bits {
            let read = ShardRead::of_job((table, log), (bits, shard), to, (&self.streams.known, &store));
            let mut first = Some(0);
            while let Some(hash) = first {
                let (mut net, mut next) = (NetChanges::new(hash, NET_BYTES), Position::before(from));
                while next.micros < to {
                    let (changes, walked) = transfers
                        .retrying(async || {
                            let _turn = self.streams.readers.acquire(1).await;
                            read.changes(&store, next, CHANGES_BYTES).await
                        })
                        .await?;
                    if let Some(micros) = walked.unseen_micros {
                        return Err(Failure::new("ValidationException", unseen(micros)));
                    }
                    if store.age(begun) >= RESTORED_MICROS_MAX {
                        let text = "It has taken longer than the log of changes is kept for it";
                        return Err(Failure::new("InternalServerError", text));
                    }
                    for change in changes {
                        output.pace.steps(1).await;
                        // A key that only CQL can write is none of an item.
                        if let Ok(key) = table.key(&change.key) {
                            net.add(key.hash(), change);
                        }
                    }
                    next = walked.next;
                    progress.save_sometimes().await;
                }
                let (found, behind) = net.finish();
                for change in found {
                    output.add(&output.format.record(&change, shows_old)).await?;
                }
                output.end_page(progress).await?;
                first = behind;
            }
        }
        Ok(())
    }

    /// The summary of an export, as AWS writes it.
    fn summary(&self, job: &Job, progress: &Progress<'_>) -> Json {
        let of = |name: &str| progress.record.description.get(name).cloned().unwrap_or_default();
        let time = |name: &str| time_text((of(name).as_f64().unwrap_or(0.0) * 1e6).round() as i64);
        let mut members: Map<String, Json> = [
            ("version", to_json!("2020-06-30")),
            ("exportArn", of("ExportArn")),
            ("startTime", time("StartTime").into()),
            ("endTime", time_text(self.executor.clock().wall_micros()).into()),
            ("tableArn", to_json!(job.table.arn())),
            ("tableId", of("TableId")),
            ("exportTime", time("ExportTime").into()),
            ("s3Bucket", of("S3Bucket")),
            ("s3Prefix", of("S3Prefix")),
            ("s3SseAlgorithm", Json::Null),
            ("s3SseKmsKeyId", Json::Null),
            ("manifestFilesS3Key", job.target.folder().key("manifest-files.json").into()),
            ("billedSizeBytes", of("BilledSizeBytes")),
            ("itemCount", of("ItemCount")),
            ("outputFormat", to_json!(job.format.name())),
            ("outputView", Json::Null),
            ("exportType", to_json!(job.content.export_type())),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if let Content::Changes { from, to, shows_old } = job.content {
            members.shift_remove("exportTime");
            members.insert("exportFromTime".to_owned(), time_text(from).into());
            members.insert("exportToTime".to_owned(), time_text(to).into());
            members.insert("outputView".to_owned(), view_name(shows_old).into());
            members.insert("version".to_owned(), "2023-08-01".into());
        }
        Json::Object(members)
    }
}

/// `ExportViewType`.
fn view_name(shows_old: bool) -> &'static str {
    if shows_old { "NEW_AND_OLD_IMAGES" } else { "NEW_IMAGE" }
}

/// The table that is restored for an export.
fn past_name(id: &str) -> String {
    format!("{PAST_PREFIX}{id}")
}

impl Content {
    fn export_type(self) -> &'static str {
        if matches!(self, Self::Changes { .. }) { "INCREMENTAL_EXPORT" } else { "FULL_EXPORT" }
    }

    /// Adds its times to the description of an export that begins at a time.
    fn describe(self, now: i64, description: &mut Map<String, Json>) {
        let (name, value) = match self {
            Self::Present => ("ExportTime", to_json!(seconds(now))),
            Self::Past(micros) => ("ExportTime", to_json!(seconds(micros))),
            Self::Changes { from, to, shows_old } => (
                "IncrementalExportSpecification",
                to_json!({
                    "ExportFromTime": seconds(from), "ExportToTime": seconds(to), "ExportViewType": view_name(shows_old)
                }),
            ),
        };
        description.insert(name.to_owned(), value);
    }
}
