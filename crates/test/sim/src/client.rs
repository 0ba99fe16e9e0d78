//! A CQL connection of a simulated client: one request at a time, with time limits, and nothing assumed about the answer.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use rt::{ConnectOptions, Rt, Stream};
use wire::client::{Answer, AnswerBody, Parameters, RequestWriter, ResultBody, Rows};
use wire::{Compression, CqlError, Decoder, Dialect, Direction, Encoder, Framing, Value, Version};

use crate::statement::Query;

/// Longer than any time limit of the server.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(12);
const ANSWER_LEN_MAX: usize = 16 << 20;

/// Why there is no result.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Error(CqlError),
    /// The connection broke or never came up: the request may have been executed.
    Connection(String),
    /// No answer came in time.
    Timeout,
    /// The answer breaks the protocol: a bug.
    Protocol(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error}"),
            Self::Connection(text) => write!(f, "connection: {text}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Protocol(text) => write!(f, "protocol: {text}"),
        }
    }
}

/// A client's protocol options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speech {
    pub(crate) version: Version,
    pub(crate) compression: Option<Compression>,
    /// Statements are prepared and their values bound, instead of written as literals.
    pub(crate) prepared: bool,
}

/// A statement that the server has prepared on this connection.
struct PreparedId {
    text: String,
    id: bytes::Bytes,
    metadata_id: bytes::Bytes,
}

/// An open connection.
pub(crate) struct Connection {
    rt: Rt,
    stream: Stream,
    dialect: Dialect,
    speech: Speech,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    next_stream: i16,
    prepared: Vec<PreparedId>,
    /// Of the statements from now on.
    pub(crate) consistency: wire::Consistency,
    /// Of their conditions; none for the default, SERIAL.
    pub(crate) serial_consistency: Option<wire::Consistency>,
    /// The protocol's default timestamp of writes; none for the coordinator's.
    pub(crate) timestamp: Option<i64>,
}

/// How often a statement is prepared that the server has forgotten when it is to be carried out: others' may take its place.
const PREPARE_TRIES: u32 = 20;
/// Statements that a connection remembers.
const PREPARED_MAX: usize = 24;

impl Connection {
    /// Connects and starts the protocol.
    pub(crate) async fn open(rt: &Rt, server: SocketAddr, speech: Speech) -> Result<Self, Failure> {
        let connecting = rt.net().connect(server, ConnectOptions::default());
        let stream = match rt.timeout(ANSWER_TIME_MAX, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Failure::Connection(error.to_string())),
            Err(_) => return Err(Failure::Timeout),
        };
        let mut connection = Self {
            rt: rt.clone(),
            stream,
            dialect: Dialect::new(speech.version),
            speech,
            encoder: Encoder::new(),
            decoder: Decoder::new(Direction::Response, ANSWER_LEN_MAX),
            input: BytesMut::new(),
            next_stream: 0,
            prepared: Vec::new(),
            consistency: wire::Consistency::One,
            serial_consistency: None,
            timestamp: None,
        };
        connection.start().await?;
        Ok(connection)
    }

    /// Its protocol options.
    pub(crate) fn speech(&self) -> Speech {
        self.speech
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        // Half of the clients take OVERLOADED for an answer, the others wait when the server has no room for a request.
        if self.speech.prepared == (self.speech.version == Version::V5) {
            options.push(("THROW_ON_OVERLOAD", "1"));
        }
        if let Some(compression) = self.speech.compression {
            options.push(("COMPRESSION", compression.name()));
        }
        let mut request = RequestWriter::new(self.dialect);
        request.startup(&options);
        let answer = self.call(&request).await?;
        let framing = match (self.dialect.version, self.speech.compression) {
            (Version::V5, None) => Framing::Checksummed,
            (Version::V5, Some(_)) => Framing::Lz4,
            _ => Framing::Bare,
        };
        self.encoder.agree(framing, self.speech.compression);
        self.decoder.agree(self.dialect.version, framing, self.speech.compression);
        match answer {
            AnswerBody::Ready => Ok(()),
            other => Err(Failure::Protocol(format!("STARTUP was answered with {other:?}"))),
        }
    }

    async fn call(&mut self, request: &RequestWriter) -> Result<AnswerBody, Failure> {
        let (rt, limit) = (self.rt.clone(), ANSWER_TIME_MAX);
        rt.timeout(limit, self.exchange(request)).await.unwrap_or(Err(Failure::Timeout))
    }

    async fn exchange(&mut self, request: &RequestWriter) -> Result<AnswerBody, Failure> {
        let broken = |error: std::io::Error| Failure::Connection(error.to_string());
        self.next_stream = (self.next_stream + 1) % 1000;
        self.encoder.push_request(self.next_stream, request);
        let bytes = self.encoder.finish().split();
        self.stream.write_all(&bytes).await.map_err(broken)?;
        loop {
            if let Some(envelope) = self.decoder.next(&mut self.input) {
                let envelope =
                    envelope.map_err(|rejection| Failure::Protocol(rejection.error.to_string()))?;
                if envelope.stream != self.next_stream {
                    return Err(Failure::Protocol(format!(
                        "an answer on stream {} to a request on stream {}",
                        envelope.stream, self.next_stream
                    )));
                }
                let dialect = Dialect { version: envelope.version, ..self.dialect };
                let answer = Answer::decode(&envelope, dialect);
                return Ok(answer.map_err(|error| Failure::Protocol(error.to_string()))?.body);
            }
            self.input.reserve(4096);
            if self.stream.read_buf(&mut self.input).await.map_err(broken)? == 0 {
                return Err(Failure::Connection("closed by the server".to_owned()));
            }
        }
    }

    fn result(answer: AnswerBody) -> Result<ResultBody, Failure> {
        match answer {
            AnswerBody::Result(result) => Ok(result),
            AnswerBody::Error(error) => Err(Failure::Error(error)),
            other => Err(Failure::Protocol(format!("not a result: {other:?}"))),
        }
    }

    /// Carries a statement out. A page size asks for the rows in pages.
    pub(crate) async fn query(
        &mut self,
        query: &Query,
        page: Option<(i32, Option<&[u8]>)>,
    ) -> Result<ResultBody, Failure> {
        let values: Vec<Value<'_>> = query.values.iter().map(|value| Value::Set(value)).collect();
        let mut parameters = Parameters::new(self.consistency, &values);
        parameters.serial_consistency = self.serial_consistency;
        parameters.timestamp = self.timestamp;
        if let Some((size, state)) = page {
            parameters.page_size = Some(size);
            parameters.paging_state = state;
        }
        let mut request = RequestWriter::new(self.dialect);
        if query.values.is_empty() || !self.speech.prepared {
            request.query(&query.text, &parameters);
            return Self::result(self.call(&request).await?);
        }
        for attempt in 1..=PREPARE_TRIES {
            let (id, metadata_id) = self.prepare(&query.text).await?;
            request.execute(&id, &metadata_id, &parameters);
            let answer = self.call(&request).await?;
            match &answer {
                AnswerBody::Error(error) if error.code() == 0x2500 && attempt < PREPARE_TRIES => {
                    self.prepared.retain(|prepared| prepared.text != query.text);
                }
                _ => return Self::result(answer),
            }
        }
        Err(Failure::Protocol("a statement that was just prepared is not prepared".to_owned()))
    }

    async fn prepare(&mut self, text: &str) -> Result<(bytes::Bytes, bytes::Bytes), Failure> {
        if let Some(known) = self.prepared.iter().find(|prepared| prepared.text == text) {
            return Ok((known.id.clone(), known.metadata_id.clone()));
        }
        let mut request = RequestWriter::new(self.dialect);
        request.prepare(text, None);
        match Self::result(self.call(&request).await?)? {
            ResultBody::Prepared(prepared) => {
                let metadata_id = prepared.result_metadata_id.unwrap_or_default();
                let id = prepared.metadata.id;
                if self.prepared.len() == PREPARED_MAX {
                    self.prepared.remove(0);
                }
                let known =
                    PreparedId { text: text.to_owned(), id: id.clone(), metadata_id: metadata_id.clone() };
                self.prepared.push(known);
                Ok((id, metadata_id))
            }
            other => Err(Failure::Protocol(format!("PREPARE was answered with {other:?}"))),
        }
    }

    /// All rows of a query, in pages of this size.
    pub(crate) async fn rows(
        &mut self,
        query: &Query,
        page_size: i32,
    ) -> Result<Vec<Vec<Option<Vec<u8>>>>, Failure> {
        let mut all = Vec::new();
        let mut state: Option<bytes::Bytes> = None;
        loop {
            let rows: Rows = match self.query(query, Some((page_size, state.as_deref()))).await? {
                ResultBody::Rows(rows) => rows,
                other => return Err(Failure::Protocol(format!("not rows: {other:?}"))),
            };
            if rows.rows > page_size as usize {
                return Err(Failure::Protocol(format!("a page of {page_size} has {} rows", rows.rows)));
            }
            all.extend(rows.to_vec().map_err(|error| Failure::Protocol(error.to_string()))?);
            match rows.paging_state {
                None => return Ok(all),
                Some(next) if state.as_ref() == Some(&next) => {
                    return Err(Failure::Protocol("a page leads to itself".to_owned()));
                }
                Some(next) => state = Some(next),
            }
        }
    }
}
