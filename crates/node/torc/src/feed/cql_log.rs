//! A table's log of changes, read over CQL: with the permissions of the role that is logged in, and of any node that has logs of ScyllaDB's form.

use types::elements::Elements;
use types::{quote_identifier, uuid};
use wire::Consistency;

use crate::feed::change::{Base, LogRow};
use crate::feed::connection::{Connection, Credentials, Target};
use crate::feed::position::Time;
use crate::feed::reader::{ChangeLog, Failure};

/// Rows of one answer.
const PAGE_ROWS: i32 = 500;
/// The suffix of a log's name.
const LOG_SUFFIX: &str = "_scylla_cdc_log";

/// The log of one table.
pub struct CqlLog {
    target: Target,
    credentials: Option<Credentials>,
    consistency: Consistency,
    keyspace: String,
    table: String,
    /// Which of the target's hosts is used.
    host: usize,
    connection: Option<Connection>,
}

impl CqlLog {
    /// The log of `keyspace.table`; connects at the first request.
    ///
    /// # Errors
    /// A sentence for the user when the name is none of a table.
    pub fn new(
        target: Target,
        credentials: Option<Credentials>,
        consistency: Consistency,
        name: &str,
    ) -> Result<Self, String> {
        let (keyspace, table) = split_name(name).ok_or_else(|| {
            format!("{name} is no table; name one like keyspace.table, \"Keyspace\".\"Table\"")
        })?;
        Ok(Self { target, credentials, consistency, keyspace, table, host: 0, connection: None })
    }

    fn query(
        &mut self,
        text: &str,
        values: &[&[u8]],
        take: &mut dyn FnMut(&[Option<&[u8]>]) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target, self.host, self.credentials.as_ref())
                .inspect_err(|_| self.host = self.host.wrapping_add(1))?,
        };
        let done = connection.rows(text, values, self.consistency, PAGE_ROWS, take);
        match &done {
            // The next request goes to another node.
            Err(Failure::Transient(_)) => self.host = self.host.wrapping_add(1),
            _ => self.connection = Some(connection),
        }
        done
    }

    /// The rows of a statement over the schema, all columns of which are text or bytes.
    fn all(&mut self, text: &str, values: &[&[u8]]) -> Result<Vec<Vec<Vec<u8>>>, Failure> {
        let mut rows = Vec::new();
        self.query(text, values, &mut |row| {
            rows.push(row.iter().map(|cell| cell.unwrap_or_default().to_vec()).collect());
            Ok(true)
        })?;
        Ok(rows)
    }
}

/// Keyspace and table of a name, each perhaps in double quotes.
fn split_name(name: &str) -> Option<(String, String)> {
    fn part(text: &str) -> Option<(String, &str)> {
        if let Some(quoted) = text.strip_prefix('"') {
            let (inner, rest) = quoted.split_once('"')?;
            return (!inner.is_empty()).then(|| (inner.to_owned(), rest));
        }
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (inner, rest) = text.split_at_checked(end)?;
        (!inner.is_empty()).then(|| (inner.to_ascii_lowercase(), rest))
    }
    let (keyspace, rest) = part(name)?;
    let (table, rest) = part(rest.strip_prefix('.')?)?;
    rest.is_empty().then_some((keyspace, table))
}

fn malformed() -> Failure {
    Failure::Final("the node answered a question about its schema with other columns".to_owned())
}

fn text(cell: &[u8]) -> Result<String, Failure> {
    String::from_utf8(cell.to_vec()).map_err(|_| malformed())
}

/// The value of an entry of a `map<text, text>`.
fn entry(map: &[u8], name: &str) -> Option<String> {
    let mut elements = Elements::of_map(map).ok()?;
    while let (Some(Ok(Some(key))), Some(Ok(Some(value)))) = (elements.next(), elements.next()) {
        if key == name.as_bytes() {
            return String::from_utf8(value.to_vec()).ok();
        }
    }
    None
}

impl ChangeLog for CqlLog {
    fn now_micros(&mut self) -> Result<i64, Failure> {
        let rows = self.all("SELECT now() FROM system.local", &[])?;
        let now = rows.first().and_then(|row| row.first());
        now.and_then(|now| uuid::unix_micros(now)).ok_or_else(malformed)
    }

    fn base(&mut self) -> Result<Base, Failure> {
        let (keyspace, table) = (self.keyspace.clone(), self.table.clone());
        let name = format!("{}.{}", quote_identifier(&keyspace), quote_identifier(&table));
        let log = format!("{table}{LOG_SUFFIX}");
        const ID: &str = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
        let id = self.all(ID, &[keyspace.as_bytes(), log.as_bytes()])?;
        let id = id.first().and_then(|row| row.first()).and_then(|id| <[u8; 16]>::try_from(&**id).ok());
        let Some(log) = id else {
            return Err(Failure::Final(format!(
                "there is no log of changes of {name}: is the table there, with cdc = {{'enabled': true}}?"
            )));
        };
        let mut base = Base { name, log, ..Base::default() };
        const COLUMNS: &str = "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
        let (mut partition_key, mut clustering) = (Vec::new(), Vec::new());
        for row in self.all(COLUMNS, &[keyspace.as_bytes(), table.as_bytes()])? {
            let [column, kind, position, ty] = row.as_slice() else { return Err(malformed()) };
            let column = text(column)?;
            let position = i32::from_be_bytes(position.as_slice().try_into().map_err(|_| malformed())?);
            match kind.as_slice() {
                b"partition_key" => partition_key.push((position, column)),
                b"clustering" => clustering.push((position, column)),
                _ if ty.starts_with(b"list<") => base.lists.push(column),
                _ => {}
            }
        }
        let ordered = |mut columns: Vec<(i32, String)>| {
            columns.sort_unstable();
            columns.into_iter().map(|(_, name)| name).collect()
        };
        (base.partition_key, base.clustering) = (ordered(partition_key), ordered(clustering));
        const OPTIONS: &str =
            "SELECT cdc FROM system_schema.scylla_tables WHERE keyspace_name = ? AND table_name = ?";
        let options = self.all(OPTIONS, &[keyspace.as_bytes(), table.as_bytes()])?;
        let ttl = options.first().and_then(|row| entry(row.first()?, "ttl")?.parse::<i64>().ok());
        base.ttl_micros = ttl.filter(|ttl| *ttl > 0).map(|ttl| ttl.saturating_mul(1_000_000));
        Ok(base)
    }

    fn generations(&mut self) -> Result<Vec<i64>, Failure> {
        const TEXT: &str =
            "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'";
        let rows = self.all(TEXT, &[])?;
        let millis = |row: &Vec<Vec<u8>>| Some(i64::from_be_bytes(row.first()?.as_slice().try_into().ok()?));
        rows.iter().map(|row| millis(row).ok_or_else(malformed)).collect()
    }

    fn streams(&mut self, start_millis: i64) -> Result<Vec<[u8; 16]>, Failure> {
        const TEXT: &str =
            "SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?";
        let mut streams = Vec::new();
        for row in self.all(TEXT, &[&start_millis.to_be_bytes()])? {
            let set = row.first().ok_or_else(malformed)?;
            for stream in Elements::of_set(set).map_err(|_| malformed())? {
                let stream = stream.ok().flatten().and_then(|stream| stream.try_into().ok());
                streams.push(stream.ok_or_else(malformed)?);
            }
        }
        streams.sort_unstable();
        streams.dedup();
        Ok(streams)
    }

    fn rows(
        &mut self,
        streams: &[[u8; 16]],
        from: Time,
        to: Time,
        take: &mut dyn FnMut(LogRow) -> bool,
    ) -> Result<(), Failure> {
        let log = quote_identifier(&format!("{}{LOG_SUFFIX}", self.table));
        let text = format!(
            "SELECT JSON * FROM {}.{log} WHERE \"cdc$stream_id\" IN ? AND \"cdc$time\" >= ? AND \"cdc$time\" < ? BYPASS CACHE",
            quote_identifier(&self.keyspace)
        );
        let count = u32::try_from(streams.len()).unwrap_or(u32::MAX);
        let mut ids = count.to_be_bytes().to_vec();
        for stream in streams {
            ids.extend(16u32.to_be_bytes());
            ids.extend(stream);
        }
        let (from, to) = (from.uuid(), to.uuid());
        self.query(&text, &[&ids, &from, &to], &mut |row| {
            let json = row.first().copied().flatten().and_then(|json| std::str::from_utf8(json).ok());
            let row = LogRow::parse(json.ok_or_else(malformed)?).map_err(Failure::Final)?;
            Ok(take(row))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables() {
        let pair = |keyspace: &str, table: &str| Some((keyspace.to_owned(), table.to_owned()));
        assert_eq!(split_name("ks.t"), pair("ks", "t"));
        assert_eq!(split_name("Ks.T1_x"), pair("ks", "t1_x"));
        assert_eq!(split_name("\"Ks\".\"a.b\""), pair("Ks", "a.b"));
        for name in ["", "t", "ks.", ".t", "ks.t.u", "ks.\"t", "\"\".t", "ks t", "ks.t;", "ä.t"] {
            assert_eq!(split_name(name), None, "{name}");
        }
    }
}
