//! A server that stores the tables of the load generator in memory and supports just enough of the protocol. It recognises
//! statements by their texts, and knows nothing of CQL.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use wire::{
    ColumnSpec, Compression, Consistency, CqlError, Decoder, Dialect, Direction, Encoder, ErrorKind, Execute,
    Framing, Message, Metadata, PreparedMetadata, Request, ResponseWriter, TypeOption, Version, WriteType,
    statement_id,
};

/// The server's faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Every tenth write is acknowledged and lost.
    LostWrite,
    /// Every tenth write gets another value.
    ChangedValue,
    /// Every tenth increment counts twice.
    DoubleCount,
    /// Slices leave out a row.
    MissingRow,
    /// Every hundredth request stops everything for a time.
    Pause(Duration),
    /// No EXECUTE is answered.
    Silence,
    /// So many of the first writes are answered with a timeout.
    SlowStart(u64),
    /// Connections after so many are closed at once.
    RefuseAfter(usize),
    /// Later connections are accepted, and nothing is ever read from them: as of a stopped process.
    DeafAfter(usize),
}

/// A running server; stops when dropped.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(fault: Option<Fault>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, store) = (stop.clone(), Arc::new(Mutex::new(Store::new(fault))));
        let thread = std::thread::spawn(move || {
            let mut unread = Vec::new();
            for (nth, stream) in listener.incoming().enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, store) = (stream.expect("a connection"), store.clone());
                if matches!(fault, Some(Fault::RefuseAfter(let_in)) if nth >= let_in) {
                    continue;
                }
                if matches!(fault, Some(Fault::DeafAfter(let_in)) if nth >= let_in) {
                    unread.push(stream);
                    continue;
                }
                std::thread::spawn(move || serve(stream, &store));
            }
        });
        Server { address, stop, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server has not failed");
        }
    }
}

fn serve(mut stream: TcpStream, store: &Mutex<Store>) {
    stream.set_nodelay(true).expect("a socket");
    let mut decoder = Decoder::new(Direction::Request, 1 << 20);
    let mut encoder = Encoder::new();
    let (mut input, mut buffer) = (BytesMut::new(), [0; 65_536]);
    let mut agreed = None;
    loop {
        while let Some(envelope) = decoder.next(&mut input) {
            let envelope = envelope.expect("a good request");
            let dialect = Dialect::new(envelope.version);
            let request = Request::decode(&envelope, dialect).expect("a good request");
            let mut response = ResponseWriter::new(dialect);
            if !store.lock().expect("no panic").answer(&request.message, &mut response) {
                continue;
            }
            encoder.push(envelope.stream, &response);
            if let Message::Startup(startup) = &request.message {
                agreed =
                    Some((envelope.version, startup.get("COMPRESSION").and_then(Compression::from_name)));
                break;
            }
        }
        if stream.write_all(&encoder.finish().split()).is_err() {
            return;
        }
        if let Some((version, compression)) = agreed.take() {
            let framing = match (version, compression) {
                (Version::V5, None) => Framing::Checksummed,
                (Version::V5, Some(_)) => Framing::Lz4,
                _ => Framing::Bare,
            };
            decoder.agree(version, framing, compression);
            encoder.agree(framing, compression);
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => input.extend_from_slice(&buffer[..read]),
        }
    }
}

type Rows = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

struct Store {
    fault: Option<Fault>,
    requests: u64,
    statements: BTreeMap<Bytes, String>,
    /// The loaded rows.
    loaded: BTreeMap<String, i64>,
    /// Rows by table and partition key, then by clustering key.
    tables: BTreeMap<(String, Vec<u8>), Rows>,
}

/// An order of keys that is not that of the keys themselves.
fn token(key: &[u8]) -> i64 {
    let key = key.try_into().map_or(0, i64::from_be_bytes);
    key.wrapping_mul(-7_046_029_254_386_353_131)
}

fn columns(count: usize) -> Metadata {
    let spec = |name: usize| ColumnSpec {
        keyspace: "k".into(),
        table: "t".into(),
        name: format!("c{name}").into(),
        ty: TypeOption::Blob,
    };
    Metadata::new((0..count).map(spec).collect())
}

fn put_rows(rows: &[Vec<&[u8]>], width: usize, more: Option<Bytes>, out: &mut ResponseWriter) {
    let mut writer = out.rows(&columns(width), true, None);
    for row in rows {
        row.iter().for_each(|cell| writer.cell(cell));
        writer.end_row();
    }
    if let Some(state) = more {
        writer.set_paging_state(state);
    }
}

impl Store {
    fn new(fault: Option<Fault>) -> Store {
        Store {
            fault,
            requests: 0,
            statements: BTreeMap::new(),
            loaded: BTreeMap::new(),
            tables: BTreeMap::new(),
        }
    }

    /// Writes the answer; false when there is none.
    fn answer(&mut self, message: &Message, out: &mut ResponseWriter) -> bool {
        match message {
            Message::Startup(_) => out.ready(),
            Message::Prepare(prepare) => {
                let id = statement_id("", &prepare.text);
                self.statements.insert(id.clone(), prepare.text.to_string());
                out.prepared(&PreparedMetadata {
                    id,
                    bind_markers: columns(prepare.text.matches('?').count()),
                    partition_key_markers: vec![0],
                    result: Metadata::none(),
                    is_conditional: false,
                });
            }
            Message::Query(query) if query.text.starts_with("SELECT count") => {
                let counters = self.tables.iter().filter(|((table, _), _)| table.ends_with(".counters"));
                let rows: Vec<Vec<&[u8]>> =
                    counters.map(|(_, rows)| vec![rows[&vec![]][0].as_slice()]).collect();
                put_rows(&rows, 1, None, out);
            }
            Message::Query(query) if query.text.starts_with("SELECT row_count") => {
                let name = query.text.split('\'').nth(1).expect("a name");
                let rows = self.loaded.get(name).map(|rows| rows.to_be_bytes());
                put_rows(&rows.iter().map(|rows| vec![rows.as_slice()]).collect::<Vec<_>>(), 1, None, out);
            }
            Message::Query(query) if query.text.starts_with("INSERT") => {
                let (name, rows) = (query.text.split('\'').nth(1), query.text.rsplit(' ').next());
                let rows = rows.expect("a number").trim_end_matches(')').parse().expect("a number");
                self.loaded.insert(name.expect("a name").to_owned(), rows);
                out.void();
            }
            Message::Execute(execute) => return self.execute(execute, out),
            _ => out.void(),
        }
        true
    }

    fn execute(&mut self, execute: &Execute, out: &mut ResponseWriter) -> bool {
        self.requests += 1;
        let text = self.statements[&execute.id].clone();
        let values: Vec<Vec<u8>> = execute
            .parameters
            .values
            .iter()
            .map(|value| value.as_slice().expect("a value").to_vec())
            .collect();
        let nth = |n| self.requests % n == 0;
        match self.fault {
            Some(Fault::Silence) => return false,
            Some(Fault::SlowStart(slow)) if self.requests <= slow => {
                let kind = ErrorKind::WriteTimeout {
                    consistency: Consistency::One,
                    received: 0,
                    block_for: 1,
                    write_type: WriteType::Simple,
                    contentions: 0,
                };
                out.error(&CqlError::new(kind, "too slow"));
                return true;
            }
            Some(Fault::Pause(time)) if nth(100) => std::thread::sleep(time),
            _ => {}
        }
        let word = |after: &str| {
            let at = text.find(after).expect("the statement names a table") + after.len();
            text[at..].split(' ').next().expect("a name").to_owned()
        };
        if text.starts_with("INSERT") {
            let lost = self.fault == Some(Fault::LostWrite) && nth(10);
            let changed = self.fault == Some(Fault::ChangedValue) && nth(10);
            if !lost {
                self.insert(word("INTO "), values, changed);
            }
            out.void();
        } else if text.starts_with("UPDATE") {
            let by = if self.fault == Some(Fault::DoubleCount) && nth(10) { 2 } else { 1 };
            let rows = self.tables.entry((word("UPDATE "), values[0].clone())).or_default();
            let count = rows.entry(Vec::new()).or_insert_with(|| vec![vec![0; 8]]);
            let old = i64::from_be_bytes(count[0].as_slice().try_into().expect("eight bytes"));
            count[0] = (old + by).to_be_bytes().to_vec();
            out.void();
        } else if text.contains("token(") {
            self.scan(&word("FROM "), &values, execute, out);
        } else {
            self.select(&text, &word("FROM "), &values, out);
        }
        true
    }

    fn insert(&mut self, table: String, mut values: Vec<Vec<u8>>, changed: bool) {
        let key = values.remove(0);
        let clustering = if table.contains(".rows") { Vec::new() } else { values.remove(0) };
        if changed {
            values[0][0] ^= 1;
        }
        self.tables.entry((table, key)).or_default().insert(clustering, values);
    }

    fn select(&self, text: &str, table: &str, values: &[Vec<u8>], out: &mut ResponseWriter) {
        let nothing = Rows::new();
        let rows = self.tables.get(&(table.to_owned(), values[0].clone())).unwrap_or(&nothing);
        let limit = text.split("LIMIT ").nth(1).map_or(usize::MAX, |limit| limit.parse().expect("a number"));
        let skip = usize::from(self.fault == Some(Fault::MissingRow) && limit < usize::MAX);
        let whole = |(clustering, cells): (_, _)| -> Vec<&[u8]> {
            let (clustering, cells): (&Vec<u8>, &Vec<Vec<u8>>) = (clustering, cells);
            let key: &[u8] = if table.contains(".rows") { &[] } else { clustering };
            std::iter::once(key).chain(cells.iter().map(Vec::as_slice)).collect()
        };
        let mut found: Vec<Vec<&[u8]>> = if table.ends_with(".series") {
            rows.iter().rev().map(whole).take(limit - skip).collect()
        } else if table.ends_with(".wide") {
            rows.range(values[1].clone()..).map(whole).take(limit - skip).collect()
        } else {
            rows.iter().map(whole).collect()
        };
        if table.ends_with(".counters") {
            found.iter_mut().for_each(|row| {
                row.remove(0);
            });
            put_rows(&found, 1, None, out);
            return;
        }
        let width = text.split(" FROM").next().expect("columns").split(',').count();
        if table.contains(".rows") {
            found.iter_mut().for_each(|row| row[0] = values[0].as_slice());
        }
        put_rows(&found, width, None, out);
    }

    fn scan(&self, table: &str, values: &[Vec<u8>], execute: &Execute, out: &mut ResponseWriter) {
        let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("a token"));
        let after = execute.parameters.paging_state.as_deref().map_or(number(&values[0]), number);
        let upto = number(&values[1]);
        let mut found: Vec<(i64, Vec<&[u8]>)> = self
            .tables
            .iter()
            .filter(|((name, key), _)| name == table && token(key) > after && token(key) <= upto)
            .map(|((_, key), rows)| (token(key), vec![key.as_slice(), rows[&vec![]][0].as_slice()]))
            .collect();
        found.sort();
        let page = execute.parameters.page_size.expect("a page size") as usize;
        let more = (found.len() > page).then(|| Bytes::copy_from_slice(&found[page - 1].0.to_be_bytes()));
        found.truncate(page);
        let rows: Vec<Vec<&[u8]>> = found.into_iter().map(|(_, row)| row).collect();
        put_rows(&rows, 2, more, out);
    }
}
