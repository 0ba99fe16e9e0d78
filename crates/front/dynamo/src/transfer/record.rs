//! The state of an export or import, as a file: every shard and every later process finds it.

use serde_json::{Map, Value as Json, json as to_json};

use super::place::{PlaceError, Root};

/// The folder of the records in the directory of the operator; no bucket has such a name.
const FOLDER: &str = ".torc";
/// Bytes of a record.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 20;
/// Records that are retained; beyond them the oldest are removed.
pub(crate) const RECORDS_MAX: usize = 1000;

/// The two kinds of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Export,
    Import,
}

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Self::Export => "exports",
            Self::Import => "imports",
        }
    }

    /// The part of an ARN.
    pub(crate) fn part(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Import => "import",
        }
    }

    /// The member of its description with its status.
    pub(crate) fn status(self) -> &'static str {
        match self {
            Self::Export => "ExportStatus",
            Self::Import => "ImportStatus",
        }
    }
}

/// An export or import.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// The node that carries it out.
    pub(crate) node: String,
    /// The request without its token.
    pub(crate) fingerprint: String,
    /// The description as the API shows it.
    pub(crate) description: Map<String, Json>,
}

impl Record {
    fn read(bytes: &[u8]) -> Option<Self> {
        let json: Json = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| json.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            node: text("node")?,
            fingerprint: text("fingerprint")?,
            description: json.get("description")?.as_object()?.clone(),
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let json = to_json!({
            "node": self.node, "fingerprint": self.fingerprint, "description": self.description
        });
        json.to_string().into_bytes()
    }

    /// Sets a member of the description.
    pub(crate) fn set(&mut self, member: &str, value: impl Into<Json>) {
        self.description.insert(member.to_owned(), value.into());
    }

    /// A text of the description.
    pub(crate) fn text(&self, member: &str) -> Option<&str> {
        self.description.get(member)?.as_str()
    }

    /// Ends it at a time, seconds since 1970; with the code and the message of its failure, if it has failed.
    pub(crate) fn end(&mut self, kind: Kind, at: f64, failure: Option<(&str, &str)>) {
        self.set(kind.status(), if failure.is_some() { "FAILED" } else { "COMPLETED" });
        self.set("EndTime", at);
        if let Some((code, message)) = failure {
            self.set("FailureCode", code);
            self.set("FailureMessage", message);
        }
    }

    /// Whether it is not done.
    pub(crate) fn is_running(&self, kind: Kind) -> bool {
        self.text(kind.status()) == Some("IN_PROGRESS")
    }
}

/// Whether a text may be the name of a record.
fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// The records in the directory of the operator.
pub(crate) struct Records<'a>(pub(crate) &'a Root);

impl Records<'_> {
    fn folder(kind: Kind) -> [String; 2] {
        [FOLDER.to_owned(), kind.folder().to_owned()]
    }

    /// Makes the folder of records.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn prepare(&self, kind: Kind) -> Result<(), PlaceError> {
        self.0.create(&Self::folder(kind)).await.map(|_| ())
    }

    /// Writes a record, durably.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn write(&self, kind: Kind, id: &str, record: &Record) -> Result<(), PlaceError> {
        let folder = self.0.create(&Self::folder(kind)).await?;
        Ok(self.0.disk.write_atomically(folder.join(format!("{id}.json")), &record.bytes()).await?)
    }

    /// A record; none when there is none of this name that can be read.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn read(&self, kind: Kind, id: &str) -> Result<Option<Record>, PlaceError> {
        let Some(folder) = self.0.find(&Self::folder(kind)).await?.filter(|_| is_id(id)) else {
            return Ok(None);
        };
        match self.0.disk.read_to_end(folder.join(format!("{id}.json")), RECORD_BYTES_MAX).await {
            Ok(bytes) => Ok(Record::read(&bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a record.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn remove(&self, kind: Kind, id: &str) -> Result<(), PlaceError> {
        let Some(folder) = self.0.find(&Self::folder(kind)).await? else { return Ok(()) };
        match self.0.disk.remove(folder.join(format!("{id}.json"))).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The names of all records, the oldest first.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn ids(&self, kind: Kind) -> Result<Vec<String>, PlaceError> {
        let Some(folder) = self.0.find(&Self::folder(kind)).await? else { return Ok(Vec::new()) };
        let entries = self.0.disk.list(&folder).await?;
        let names =
            entries.into_iter().filter_map(|entry| Some(entry.name.strip_suffix(".json")?.to_owned()));
        Ok(names.filter(|id| is_id(id)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record =
            Record { node: "n".to_owned(), fingerprint: "f".to_owned(), description: Map::new() };
        record.set("ExportStatus", "IN_PROGRESS");
        assert!(record.is_running(Kind::Export) && !record.is_running(Kind::Import));
        record.end(Kind::Export, 1.5, Some(("Code", "text")));
        assert_eq!(Record::read(&record.bytes()), Some(record.clone()));
        assert_eq!(record.text("FailureCode"), Some("Code"));
        assert_eq!(Record::read(b"{}"), None);
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert!(is_id("01700000000000-00ab12cd"));
        for id in ["", "..", "a/b", "../0", "x", &"0".repeat(65)] {
            assert!(!is_id(id), "{id}");
        }
    }
}
