//! ImportTable: a new table of the items in files of a local directory or of an S3-compatible service, as exports of AWS and of Torc have them, or CSV.

use std::rc::Rc;

use exec::backend::Coordinator;
use items::{Item, ion, item_size, json};
use mutation::PartitionUpdate;
use rt::preempt::Pace;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::size::check_item;
use crate::encoding::{Encoding, Unpacker};
use crate::error::{ApiError, Result, invalid};
use crate::request::{Request, constraint};
use crate::table::{self, ApiTable, RowWrite};
use crate::transfer::lines::{Line, Lines, PACKED_AT_ONCE};
use crate::transfer::place::{bucket, owner, parts};
use crate::transfer::record::{Kind, Records};
use crate::transfer::storage::Stored;
use crate::transfer::{Failure, Progress, Transfers, csv};
use crate::vectors;

/// Bytes of a file that are taken at once where it is not packed.
const PLAIN_AT_ONCE: usize = 256 << 10;
/// Steps that the unpacking of a part counts for.
const UNPACK_STEPS: usize = 64;
/// Items, and about bytes of them, that are written at once.
const BATCH_ITEMS: usize = 100;
const BATCH_BYTES: usize = 1 << 20;
/// Errors of an import that the log names.
const LOGGED_MAX: u64 = 10;
/// Characters that may stand between values, as AWS allows.
const DELIMITERS: [&str; 6] = [",", ";", ":", "|", "\t", " "];

/// The members of `TableCreationParameters` that a description shows.
const CREATION: [&str; 9] = [
    "TableName",
    "AttributeDefinitions",
    "KeySchema",
    "BillingMode",
    "ProvisionedThroughput",
    "OnDemandThroughput",
    "SSESpecification",
    "GlobalSecondaryIndexes",
    "VectorIndexes",
];

/// The form of the lines.
enum Format {
    Json,
    Ion,
    /// The delimiter, and the names of the columns where the first line of a file does not give them.
    Csv(char, Option<Vec<String>>),
}

/// The files of an import and their form.
struct Source {
    /// The bucket, the folders of the prefix, and the beginning of names.
    place: Vec<String>,
    /// The account that must own the bucket.
    owner: Option<String>,
    format: Format,
    encoding: Encoding,
}

fn format(request: &Request) -> Result<Format> {
    let Some(format) = request.one_of("InputFormat", &["CSV", "DYNAMODB_JSON", "ION"])? else {
        return constraint("null", "inputFormat", "Member must not be null");
    };
    let options = request.get("InputFormatOptions").map(Request::part).transpose()?;
    let options = options.as_ref().and_then(|options| options.get("Csv")).map(Request::part).transpose()?;
    match format {
        "CSV" => {
            let Some(options) = options else { return Ok(Format::Csv(',', None)) };
            let delimiter = options.string("Delimiter")?.unwrap_or(",");
            if !DELIMITERS.contains(&delimiter) {
                let place = "inputFormatOptions.csv.delimiter";
                return constraint(
                    delimiter,
                    place,
                    "Member must satisfy regular expression pattern: [,;:|\\t ]",
                );
            }
            let delimiter = delimiter.chars().next().unwrap_or(',');
            let header = options.get("HeaderList").map(json::read_list).transpose()?;
            let header =
                header.map(|names| names.iter().map(json::read_string).collect::<Result<Vec<_>, _>>());
            let header: Option<Vec<String>> =
                header.transpose()?.map(|names| names.into_iter().map(str::to_owned).collect());
            if let Some(names) = &header {
                if names.is_empty() {
                    let place = "inputFormatOptions.csv.headerList";
                    return constraint("[]", place, "Member must have length greater than or equal to 1");
                }
                csv::check_header(names).map_err(|why| ApiError::validation(format!("HeaderList: {why}")))?;
            }
            Ok(Format::Csv(delimiter, header))
        }
        "ION" if options.is_none() => Ok(Format::Ion),
        _ if options.is_some() => invalid!("InputFormatOptions: Csv is of the InputFormat CSV alone"),
        _ => Ok(Format::Json),
    }
}

impl Source {
    fn read(request: &Request, has_service: bool) -> Result<Self> {
        let source = Request::part(request.required("S3BucketSource")?)?;
        let Some(name) = source.string("S3Bucket")? else {
            return constraint("null", "s3BucketSource.s3Bucket", "Member must not be null");
        };
        let mut place = vec![bucket(name)?];
        place.extend(parts("S3KeyPrefix", source.string("S3KeyPrefix")?.unwrap_or_default())?);
        let place_of_owner = "s3BucketSource.s3BucketOwner";
        let owner = owner(source.string("S3BucketOwner")?, place_of_owner, has_service)?;
        let encoding = match request.one_of("InputCompressionType", &["GZIP", "ZSTD", "NONE"])? {
            Some("GZIP") => Encoding::Gzip,
            Some("ZSTD") => Encoding::Zstd,
            _ => Encoding::Identity,
        };
        Ok(Self { place, owner, format: format(request)?, encoding })
    }
}

/// The types of the columns of a CSV file: those of keys are known, others are texts.
fn types(table: &ApiTable, header: &[String]) -> Vec<&'static str> {
    let kind = |name: &String| {
        let own = table.keys().find(|key| key.name == name).map(|key| key.kind);
        let of_indexes = || {
            let of_vectors = table.vectors().iter().flat_map(|index| index.keys());
            let mut keys = table.indexes().iter().flat_map(|index| index.keys()).chain(of_vectors);
            keys.find(|key| key.name == *name).map(|key| key.kind)
        };
        own.or_else(of_indexes).unwrap_or("S")
    };
    header.iter().map(kind).collect()
}

/// The items of one file, line by line.
enum Reader<'a> {
    Json,
    Ion,
    /// The header is that of the request until the first line has given it.
    Csv {
        delimiter: char,
        header: Option<&'a [String]>,
        own: Option<(Vec<String>, Vec<&'static str>)>,
    },
}

impl<'a> Reader<'a> {
    fn new(format: &'a Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Ion => Self::Ion,
            Format::Csv(delimiter, header) => {
                Self::Csv { delimiter: *delimiter, header: header.as_deref(), own: None }
            }
        }
    }

    /// The item of a line; none for a line that has none.
    ///
    /// # Errors
    /// When it cannot be an item; outside, when the rest of the file cannot be read either.
    fn item(&mut self, table: &ApiTable, line: &[u8]) -> Result<Result<Option<Item>>, String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(Ok(None));
        }
        if matches!(self, Self::Json) {
            return Ok(Request::parse(line)
                .and_then(|request| request.item("Item"))
                .map(|item| Some(Rc::unwrap_or_clone(item))));
        }
        let Ok(text) = std::str::from_utf8(line) else {
            return Ok(invalid!("it is not UTF-8"));
        };
        let Self::Csv { delimiter, header, own } = self else {
            // The mark of the version may stand alone.
            let is_item = text.trim() != ion::VERSION_MARK;
            return Ok(is_item.then(|| Ok(ion::read_record(text)?)).transpose());
        };
        if own.is_none()
            && let Some(header) = header
        {
            *own = Some((header.to_vec(), types(table, header)));
        }
        let Some((header, types)) = own else {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            let names = csv::values(text, *delimiter)?;
            csv::check_header(&names)?;
            let kinds = types(table, &names);
            *own = Some((names, kinds));
            return Ok(Ok(None));
        };
        Ok(row(text, *delimiter, header, types).map(Some))
    }
}

/// The item of a line of CSV.
fn row(text: &str, delimiter: char, header: &[String], types: &[&str]) -> Result<Item> {
    let values = csv::values(text, delimiter).map_err(ApiError::validation)?;
    if values.len() != header.len() {
        return invalid!("it has {} columns, and the header {}", values.len(), header.len());
    }
    let members = header.iter().zip(types).zip(values);
    let members = members.map(|((name, kind), value)| (name.clone(), to_json!({ (*kind): value })));
    Ok(json::read_item(&Json::Object(members.collect()))?)
}

/// The items of an import that are not written yet.
#[derive(Default)]
struct Batch {
    updates: Vec<PartitionUpdate>,
    bytes: usize,
}

/// An import under way.
struct Import<'a, 'b> {
    table: ApiTable,
    source: &'a Source,
    progress: &'a mut Progress<'b>,
    batch: Batch,
    pace: Pace,
    /// Lines that were read, items that were written, and lines that were neither.
    processed: u64,
    imported: u64,
    errors: u64,
    /// Bytes of the files.
    bytes: u64,
}

impl Import<'_, '_> {
    /// Counts something that is no item.
    fn refuse(&mut self, file: &Stored, why: &str) {
        self.errors += 1;
        if self.errors <= LOGGED_MAX {
            let id = self.progress.id;
            tracing::warn!("import {id}: {file}, item {}: {why}", self.processed);
        }
    }

    fn count(&mut self) {
        for (name, count) in [
            ("ProcessedItemCount", self.processed),
            ("ImportedItemCount", self.imported),
            ("ErrorCount", self.errors),
            ("ProcessedSizeBytes", self.bytes),
        ] {
            self.progress.record.set(name, count);
        }
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn import_table(&self, request: &Request, role: Option<&str>) -> Result<Json> {
        let transfers = self.transfers("ImportTable")?;
        let source = Source::read(request, transfers.files.objects.is_some())?;
        let creation = Request::part(request.required("TableCreationParameters")?)?;
        let name = creation.table_name()?;
        let new = match self.new_transfer(&transfers, Kind::Import, request).await? {
            Ok(new) => new,
            Err(known) => return Ok(to_json!({ "ImportTableDescription": known.description })),
        };
        if let Some((_, folders)) = source.place.split_last() {
            transfers.files.check_way(folders).await?;
        }
        // No table is made that an import cannot fill.
        Records(&transfers.files.root).prepare(Kind::Import).await?;
        self.create_table(&creation, role).await?;
        let table = table::find_named(&self.schema(), &name)?;
        let now = self.executor.clock().wall_micros();
        let mut description = self.begun(&new, &table, now);
        let shown =
            CREATION.iter().filter_map(|name| Some(((*name).to_owned(), creation.get(name)?.clone())));
        description.insert("TableCreationParameters".to_owned(), Json::Object(shown.collect::<Map<_, _>>()));
        for name in ["S3BucketSource", "InputFormat", "InputFormatOptions", "InputCompressionType"] {
            if let Some(value) = request.get(name) {
                description.insert(name.to_owned(), value.clone());
            }
        }
        for name in ["ProcessedItemCount", "ImportedItemCount", "ErrorCount", "ProcessedSizeBytes"] {
            description.insert(name.to_owned(), 0.into());
        }
        let record = new.record(&transfers, description)?;
        transfers.add(new.kind, &new.id, &record).await?;
        let answer = to_json!({ "ImportTableDescription": record.description });
        let (api, own, id) = (self.clone(), transfers.clone(), new.id.clone());
        transfers.begin(new.kind, &new.id, async move {
            let mut progress = Progress::new(&own, Kind::Import, &id, record);
            let result = api.import(&own, table, &source, &mut progress).await;
            progress.end(result).await;
        });
        Ok(answer)
    }

    /// Reads the files of an import and writes their items.
    async fn import(
        &self,
        transfers: &Transfers,
        table: ApiTable,
        source: &Source,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let files = transfers.files.list(&source.place, source.owner.as_deref()).await?;
        let mut import = Import {
            table,
            source,
            progress,
            batch: Batch::default(),
            pace: Pace::new(),
            processed: 0,
            imported: 0,
            errors: 0,
            bytes: 0,
        };
        let mut done = Ok(());
        for stored in &files {
            done = self.import_file(transfers, &mut import, stored).await;
            if done.is_err() {
                break;
            }
        }
        if done.is_ok() {
            done = self.write_batch(transfers, &mut import).await;
        }
        import.count();
        done
    }

    async fn import_file(
        &self,
        transfers: &Transfers,
        import: &mut Import<'_, '_>,
        stored: &Stored,
    ) -> Result<(), Failure> {
        let source = import.source;
        let mut file = transfers.files.open(stored).await?;
        let mut lines = Lines::default();
        let mut unpacker = Unpacker::new(source.encoding)
            .map_err(|error| Failure::new("InternalServerError", error.to_string()))?;
        let mut reader = Reader::new(&source.format);
        let mut has_bytes = false;
        loop {
            let read = file.next().await?;
            has_bytes |= !read.is_empty();
            import.bytes += read.len() as u64;
            let is_end = read.is_empty();
            let at_once = if source.encoding == Encoding::Identity { PLAIN_AT_ONCE } else { PACKED_AT_ONCE };
            let mut rest = &read[..];
            loop {
                let part = rest.get(..at_once.min(rest.len())).filter(|part| !part.is_empty());
                // It may unpack to megabytes without a line.
                import.pace.steps(UNPACK_STEPS).await;
                let unpacked = match part {
                    Some(part) => unpacker.unpack(part, |bytes| lines.push(bytes)),
                    // An empty file is no damaged one.
                    None if is_end && has_bytes => unpacker.finish(|bytes| lines.push(bytes)).map(|()| 0),
                    None => Ok(0),
                };
                while let Some(line) = lines.next() {
                    if !self.import_line(transfers, import, (stored, &mut reader), line).await? {
                        return Ok(());
                    }
                }
                match unpacked {
                    Ok(used) => rest = rest.get(used..).unwrap_or_default(),
                    Err(error) => {
                        import.refuse(stored, &format!("the file is not of its format: {error}"));
                        return Ok(());
                    }
                }
                if part.is_none() {
                    break;
                }
            }
            if is_end {
                break;
            }
        }
        if let Some(line) = lines.last() {
            self.import_line(transfers, import, (stored, &mut reader), line).await?;
        }
        Ok(())
    }

    /// Takes the item of a line; whether the rest of the file is to be read.
    async fn import_line(
        &self,
        transfers: &Transfers,
        import: &mut Import<'_, '_>,
        (stored, reader): (&Stored, &mut Reader<'_>),
        line: Line,
    ) -> Result<bool, Failure> {
        let item = match line {
            Line::TooLong => Err(ApiError::validation("the line is too long for an item")),
            Line::Text(text) => {
                import.pace.steps(1 + text.len() / 1024).await;
                match reader.item(&import.table, &text) {
                    Ok(Ok(None)) => return Ok(true),
                    Ok(Ok(Some(item))) => self.update_of(&import.table, item),
                    Ok(Err(error)) => Err(error),
                    Err(why) => {
                        import.processed += 1;
                        import.refuse(stored, &why);
                        return Ok(false);
                    }
                }
            }
        };
        import.processed += 1;
        match item {
            Ok((update, bytes)) => {
                import.batch.updates.push(update);
                import.batch.bytes += bytes;
                if import.batch.updates.len() >= BATCH_ITEMS || import.batch.bytes >= BATCH_BYTES {
                    self.write_batch(transfers, import).await?;
                }
            }
            Err(error) => import.refuse(stored, &error.message),
        }
        Ok(true)
    }

    /// The write of an item, and the item's bytes.
    ///
    /// # Errors
    /// As PutItem refuses it.
    fn update_of(&self, table: &ApiTable, item: Item) -> Result<(PartitionUpdate, usize)> {
        check_item(&item, "Item size has exceeded the maximum allowed size")?;
        let bytes = item_size(&item);
        let key = table.key_of_item(&item)?;
        vectors::check(table, None, &item)?;
        let (timestamp, now) = (self.executor.timestamp(), self.store().now());
        Ok((table.update(&key, &RowWrite::Put(Rc::new(item)), timestamp, now), bytes))
    }

    /// Writes the items that wait for it.
    async fn write_batch(&self, transfers: &Transfers, import: &mut Import<'_, '_>) -> Result<(), Failure> {
        let updates = std::mem::take(&mut import.batch).updates;
        let count = updates.len() as u64;
        if count > 0 {
            transfers.retrying(async || self.store().write(updates.clone()).await).await?;
            import.imported += count;
            import.count();
            import.progress.save_sometimes().await;
        }
        Ok(())
    }
}
