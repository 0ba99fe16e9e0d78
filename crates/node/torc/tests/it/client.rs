//! A client that blocks, with the protocol of `wire`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use wire::client::{Answer, AnswerBody, Parameters, Prepared, RequestWriter, ResultBody, Rows};
use wire::{Consistency, CqlError, Decoder, Dialect, Direction, Encoder, Framing, Value, Version};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Client {
    pub stream: TcpStream,
    pub dialect: Dialect,
    decoder: Decoder,
    encoder: Encoder,
    input: BytesMut,
}

impl Client {
    /// Connects and says STARTUP.
    pub fn connect(address: SocketAddr, version: Version) -> Self {
        Self::with_stream(TcpStream::connect(address).expect("the node listens"), version)
    }

    /// Connects and logs in; the error of a refused login.
    pub fn log_in(address: SocketAddr, user: &str, password: &str) -> Result<Self, CqlError> {
        let mut client = Self::plain(TcpStream::connect(address).expect("the node listens"), Version::V4);
        client.push(0, |request| request.startup(&[("CQL_VERSION", "3.4.7")]));
        let asked = client.answer().body;
        assert!(matches!(asked, AnswerBody::Authenticate(_)), "{asked:?}");
        let token = format!("\0{user}\0{password}");
        client.push(0, |request| request.auth_response(Some(token.as_bytes())));
        match client.answer().body {
            AnswerBody::AuthSuccess(_) => Ok(client),
            AnswerBody::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Connects until a connection is owned by this shard: the node spreads them evenly.
    pub fn connect_to_shard(address: SocketAddr, shard: u16, version: Version) -> Self {
        let mut others = Vec::new();
        loop {
            let mut client = Self::connect(address, version);
            client.push(1, RequestWriter::options);
            let AnswerBody::Supported(options) = client.answer().body else { panic!("not SUPPORTED") };
            let option = options.iter().find(|(name, _)| name.as_str() == "SCYLLA_SHARD");
            if option.expect("it says its shard").1[0].as_str() == shard.to_string() {
                return client;
            }
            others.push(client);
        }
    }

    fn plain(stream: TcpStream, version: Version) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream,
            dialect: Dialect::new(version),
            decoder: Decoder::new(Direction::Response, 64 << 20),
            encoder: Encoder::new(),
            input: BytesMut::new(),
        }
    }

    fn with_stream(stream: TcpStream, version: Version) -> Self {
        let mut client = Self::plain(stream, version);
        client.push(0, |request| request.startup(&[("CQL_VERSION", "3.4.7")]));
        assert_eq!(client.answer().body, AnswerBody::Ready);
        let framing = if version == Version::V5 { Framing::Checksummed } else { Framing::Bare };
        client.encoder.agree(framing, None);
        client.decoder.agree(version, framing, None);
        client
    }

    /// Sends a request.
    pub fn push(&mut self, stream: i16, write: impl FnOnce(&mut RequestWriter)) {
        assert!(self.try_push(stream, write), "the node reads");
    }

    /// Sends a request; false when the connection has ended.
    pub fn try_push(&mut self, stream: i16, write: impl FnOnce(&mut RequestWriter)) -> bool {
        let mut request = RequestWriter::new(self.dialect);
        write(&mut request);
        self.encoder.push_request(stream, &request);
        let bytes = self.encoder.finish().split();
        self.stream.write_all(&bytes).is_ok()
    }

    /// The next answer.
    pub fn answer(&mut self) -> Answer {
        self.try_answer().expect("the connection is open")
    }

    /// The next answer; none when the connection ended.
    pub fn try_answer(&mut self) -> Option<Answer> {
        let mut bytes = [0; 65_536];
        loop {
            if let Some(envelope) = self.decoder.next(&mut self.input) {
                let envelope = envelope.expect("a good answer");
                let dialect = Dialect { version: envelope.version, ..self.dialect };
                return Some(Answer::decode(&envelope, dialect).expect("a good answer"));
            }
            match self.stream.read(&mut bytes) {
                // A read with a timeout ends so when the process was stopped and resumes (SIGCONT, a frozen machine).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return None,
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
            }
        }
    }

    /// One statement, and the whole answer.
    pub fn ask(&mut self, text: &str) -> Answer {
        self.push(1, |request| request.query(text, &Parameters::new(Consistency::One, &[])));
        self.answer()
    }

    /// One statement that must succeed.
    pub fn query(&mut self, text: &str) -> ResultBody {
        match self.ask(text).body {
            AnswerBody::Result(result) => result,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The rows of a statement that must succeed.
    pub fn rows(&mut self, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        match self.query(text) {
            ResultBody::Rows(rows) => rows.to_vec().expect("whole rows"),
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The rows of a statement that may have to wait until enough nodes are up.
    pub fn rows_when_available(&mut self, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        let until = Instant::now() + PATIENCE;
        while let AnswerBody::Error(error) = self.ask(text).body {
            let waits = matches!(error.kind, wire::ErrorKind::Unavailable { .. }) && Instant::now() < until;
            assert!(waits, "{text}: {error:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        self.rows(text)
    }

    /// The rows of a statement whose columns are all text.
    pub fn texts(&mut self, text: &str) -> Vec<Vec<String>> {
        let text_of = |cell: Option<Vec<u8>>| String::from_utf8(cell.unwrap_or_default()).expect("text");
        self.rows(text).into_iter().map(|row| row.into_iter().map(text_of).collect()).collect()
    }

    /// The error of a statement that must fail.
    pub fn error(&mut self, text: &str) -> CqlError {
        match self.ask(text).body {
            AnswerBody::Error(error) => error,
            other => panic!("{text} succeeded: {other:?}"),
        }
    }

    /// Makes the keyspace `ks`, whose tables have one replica.
    pub fn create_keyspace(&mut self) {
        self.query(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        );
    }

    pub fn prepare(&mut self, text: &str) -> Prepared {
        self.push(1, |request| request.prepare(text, None));
        match self.answer().body {
            AnswerBody::Result(ResultBody::Prepared(prepared)) => prepared,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// EXECUTE, asking for rows without metadata.
    pub fn execute(&mut self, prepared: &Prepared, values: &[&[u8]]) -> AnswerBody {
        let values: Vec<Value<'_>> = values.iter().map(|value| Value::Set(value)).collect();
        let known = prepared.result_metadata_id.clone().unwrap_or_else(Bytes::new);
        let parameters = Parameters { skip_metadata: true, ..Parameters::new(Consistency::One, &values) };
        self.push(1, |request| request.execute(&prepared.metadata.id, &known, &parameters));
        self.answer().body
    }

    /// EXECUTE that must give rows.
    pub fn executed_rows(&mut self, prepared: &Prepared, values: &[&[u8]]) -> Rows {
        match self.execute(prepared, values) {
            AnswerBody::Result(ResultBody::Rows(rows)) => rows,
            other => panic!("not rows: {other:?}"),
        }
    }
}
