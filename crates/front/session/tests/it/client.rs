//! A CQL client for tests: it sends valid and invalid frames.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use rt::{ConnectOptions, Rt, Stream};
use wire::client::{Answer, AnswerBody, Parameters, RequestWriter, ResultBody};
use wire::{
    Compression, Consistency, CqlError, Decoder, Dialect, Direction, Encoder, Envelope, Event, EventType,
    Framing, Value, Version,
};

pub struct Client {
    pub stream: Stream,
    pub dialect: Dialect,
    decoder: Decoder,
    encoder: Encoder,
    input: BytesMut,
}

impl Client {
    pub async fn connect(rt: &Rt, address: SocketAddr, local: Option<SocketAddr>, version: Version) -> Self {
        Self::try_connect(rt, address, local, version).await.expect("the server listens")
    }

    pub async fn try_connect(
        rt: &Rt,
        address: SocketAddr,
        local: Option<SocketAddr>,
        version: Version,
    ) -> Result<Self, rt::NetError> {
        let stream = rt.net().connect(address, ConnectOptions { local }).await?;
        Ok(Self {
            stream,
            dialect: Dialect::new(version),
            decoder: Decoder::new(Direction::Response, 64 << 20),
            encoder: Encoder::new(),
            input: BytesMut::new(),
        })
    }

    /// Switches to the options agreed on by STARTUP.
    pub fn agree(&mut self, compression: Option<Compression>) {
        let framing = match (self.dialect.version, compression) {
            (Version::V5, None) => Framing::Checksummed,
            (Version::V5, Some(_)) => Framing::Lz4,
            _ => Framing::Bare,
        };
        self.encoder.agree(framing, compression);
        self.decoder.agree(self.dialect.version, framing, compression);
    }

    /// STARTUP with options beside `CQL_VERSION`; the answer has to be READY.
    pub async fn start_up(&mut self, options: &[(&str, &str)]) {
        assert_eq!(self.send_startup(options).await, AnswerBody::Ready);
    }

    /// STARTUP with options beside `CQL_VERSION`, and its answer.
    pub async fn send_startup(&mut self, options: &[(&str, &str)]) -> AnswerBody {
        let mut all = vec![("CQL_VERSION", "3.4.7")];
        all.extend_from_slice(options);
        self.push(0, |request| request.startup(&all));
        self.flush().await;
        let answer = self.answer(0).await;
        let compression = all.iter().find(|(name, _)| *name == "COMPRESSION");
        self.agree(compression.and_then(|(_, name)| Compression::from_name(name)));
        answer
    }

    pub fn push(&mut self, stream: i16, write: impl FnOnce(&mut RequestWriter)) {
        let mut request = RequestWriter::new(self.dialect);
        write(&mut request);
        self.encoder.push_request(stream, &request);
    }

    pub fn push_query(&mut self, stream: i16, text: &str) {
        self.push(stream, |request| request.query(text, &Parameters::new(Consistency::One, &[])));
    }

    pub fn push_value(&mut self, stream: i16, text: &str, value: &[u8]) {
        let values = [Value::Set(value)];
        self.push(stream, |request| request.query(text, &Parameters::new(Consistency::One, &values)));
    }

    /// The bytes that would be written.
    pub fn take_bytes(&mut self) -> BytesMut {
        self.encoder.finish().split()
    }

    /// Writes the queued bytes, in one piece as far as they fit.
    pub async fn flush(&mut self) {
        let bytes = self.take_bytes();
        self.write(&bytes).await;
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the connection is open");
    }

    /// The next message; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Envelope> {
        loop {
            if let Some(envelope) = self.decoder.next(&mut self.input) {
                return Some(envelope.expect("a good answer"));
            }
            self.input.reserve(4096);
            if self.stream.read_buf(&mut self.input).await.ok()? == 0 {
                assert!(!self.input.has_remaining(), "the connection ended inside a message");
                return None;
            }
        }
    }

    pub async fn next_answer(&mut self) -> (i16, Answer) {
        let envelope = self.next().await.expect("the connection is open");
        let dialect = Dialect { version: envelope.version, ..self.dialect };
        (envelope.stream, Answer::decode(&envelope, dialect).expect("a good answer"))
    }

    /// The next message, which has to be an answer on this stream.
    pub async fn answer(&mut self, stream: i16) -> AnswerBody {
        let (came, answer) = self.next_answer().await;
        assert_eq!(came, stream, "{answer:?}");
        answer.body
    }

    pub async fn error(&mut self, stream: i16) -> CqlError {
        match self.answer(stream).await {
            AnswerBody::Error(error) => error,
            other => panic!("not an error: {other:?}"),
        }
    }

    pub async fn event(&mut self) -> Event {
        match self.answer(-1).await {
            AnswerBody::Event(event) => event,
            other => panic!("not an event: {other:?}"),
        }
    }

    pub async fn void(&mut self, stream: i16) {
        assert_eq!(self.answer(stream).await, AnswerBody::Result(ResultBody::Void));
    }

    /// The only cell of a result.
    pub async fn cell(&mut self, stream: i16) -> Vec<u8> {
        let AnswerBody::Result(ResultBody::Rows(rows)) = self.answer(stream).await else {
            panic!("not rows")
        };
        rows.to_vec().expect("whole rows").remove(0).remove(0).expect("a value")
    }

    /// One query and its answer.
    pub async fn query(&mut self, text: &str) -> AnswerBody {
        self.push_query(1, text);
        self.flush().await;
        self.answer(1).await
    }

    pub async fn register(&mut self, events: &[EventType]) {
        self.push(2, |request| request.register(events));
        self.flush().await;
        assert_eq!(self.answer(2).await, AnswerBody::Ready);
    }

    /// The server has closed the connection, and nothing more came.
    pub async fn is_closed(&mut self) {
        assert!(self.next().await.is_none(), "something came");
    }
}
