//! One connection to a server: handshake, single queries, and the bytes of pipelined ones.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rt::{ConnectOptions, Rt, Sleep, Stream};
use wire::client::{Answer, AnswerBody, Parameters, RequestWriter, ResultBody};
use wire::{Compression, Decoder, Dialect, Direction, Encoder, Framing, Version};

use crate::load::options::Options;

/// The longest answer that is accepted, in bytes.
const ANSWER_LEN_MAX: usize = 256 << 20;
/// Room for each read.
const READ_ROOM: usize = 128 << 10;

/// A statement that the server has prepared.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) id: Bytes,
    pub(crate) result_metadata_id: Bytes,
}

/// An open connection.
pub(crate) struct Connection {
    rt: Rt,
    stream: Stream,
    server: SocketAddr,
    /// How long a server may take for an answer to a request that is alone.
    patience: Duration,
    pub(crate) dialect: Dialect,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
    pub(crate) input: BytesMut,
    pub(crate) request: RequestWriter,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Bytes have come.
    Input,
    /// The time has come.
    Time,
}

/// The error for a server that accepts connections and does not answer.
fn silent(server: SocketAddr, patience: Duration) -> String {
    format!(
        "{server} has not answered for {} s (--stall) while a connection was set up: it is paused, hangs or is overloaded",
        patience.as_secs_f64()
    )
}

impl Connection {
    /// Connects to the server whose turn it is, and starts the protocol.
    pub(crate) async fn open(rt: &Rt, options: &Options, index: usize) -> Result<Self, String> {
        let server = options.servers[index % options.servers.len()];
        let patience = options.stall_max;
        let connecting = rt.net().connect(server, ConnectOptions::default());
        let stream = rt.timeout(patience, connecting).await.map_err(|_| silent(server, patience))?;
        let stream = stream.map_err(|error| format!("{error}; is a server running there?"))?;
        stream.set_nodelay(true).map_err(|error| format!("{server}: {error}"))?;
        let dialect = Dialect::new(options.version);
        let mut connection = Connection {
            rt: rt.clone(),
            stream,
            server,
            patience,
            dialect,
            encoder: Encoder::new(),
            decoder: Decoder::new(Direction::Response, ANSWER_LEN_MAX),
            input: BytesMut::with_capacity(READ_ROOM),
            request: RequestWriter::new(dialect),
        };
        connection.start(options).await?;
        Ok(connection)
    }

    async fn start(&mut self, options: &Options) -> Result<(), String> {
        let mut startup = vec![("CQL_VERSION", "3.0.0")];
        if let Some(compression) = options.compression {
            startup.push(("COMPRESSION", compression.name()));
        }
        self.request.startup(&startup);
        self.encoder.push_request(0, &self.request);
        let answer = self.next_answer().await?;
        self.agree(options.compression);
        match answer {
            AnswerBody::Ready => Ok(()),
            AnswerBody::Authenticate(authenticator) => {
                let Some((user, password)) = &options.credentials else {
                    return Err(format!(
                        "{} asks for a password ({}): give --user and --password",
                        self.server,
                        authenticator.as_str()
                    ));
                };
                self.request.auth_response(Some(format!("\0{user}\0{password}").as_bytes()));
                match self.call().await? {
                    AnswerBody::AuthSuccess(_) => Ok(()),
                    other => Err(self.unexpected(&other)),
                }
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn agree(&mut self, compression: Option<Compression>) {
        let framing = match (self.dialect.version, compression) {
            (Version::V5, None) => Framing::Checksummed,
            (Version::V5, Some(_)) => Framing::Lz4,
            _ => Framing::Bare,
        };
        self.encoder.agree(framing, compression);
        self.decoder.agree(self.dialect.version, framing, compression);
    }

    fn unexpected(&self, answer: &AnswerBody) -> String {
        match answer {
            AnswerBody::Error(error) => format!("{}: {error}", self.server),
            other => format!("{}: an unexpected answer: {other:?}", self.server),
        }
    }

    /// Sends the request that was written, alone, and waits for its answer.
    async fn call(&mut self) -> Result<AnswerBody, String> {
        self.encoder.push_request(0, &self.request);
        self.next_answer().await
    }

    async fn next_answer(&mut self) -> Result<AnswerBody, String> {
        let mut limit = self.rt.sleep(self.patience);
        loop {
            if let Some(envelope) = self.decoder.next(&mut self.input) {
                let envelope =
                    envelope.map_err(|rejection| format!("{}: {}", self.server, rejection.error))?;
                let answer = Answer::decode(&envelope, self.dialect);
                return Ok(answer.map_err(|error| format!("{}: {error}", self.server))?.body);
            }
            if self.exchange(&mut limit).await? == Woken::Time {
                return Err(silent(self.server, self.patience));
            }
        }
    }

    /// A statement as text, alone.
    pub(crate) async fn query(
        &mut self,
        text: &str,
        page_size: Option<i32>,
        paging_state: Option<&[u8]>,
    ) -> Result<ResultBody, String> {
        let parameters = Parameters {
            skip_metadata: page_size.is_some(),
            page_size,
            paging_state,
            ..Parameters::new(wire::Consistency::One, &[])
        };
        self.request.query(text, &parameters);
        match self.call().await? {
            AnswerBody::Result(result) => Ok(result),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Prepares a statement.
    pub(crate) async fn prepare(&mut self, text: &str) -> Result<Prepared, String> {
        self.request.prepare(text, None);
        match self.call().await? {
            AnswerBody::Result(ResultBody::Prepared(prepared)) => Ok(Prepared {
                id: prepared.metadata.id,
                result_metadata_id: prepared.result_metadata_id.unwrap_or_default(),
            }),
            other => Err(format!("{text}: {}", self.unexpected(&other))),
        }
    }

    /// Writes the queued bytes while it reads: returns when bytes have come, or at a time. Doing both at once
    /// prevents that two full pipes wait for each other.
    pub(crate) async fn exchange(&mut self, until: &mut Sleep) -> Result<Woken, String> {
        if self.input.capacity() - self.input.len() < READ_ROOM / 2 {
            let room =
                READ_ROOM.max(self.decoder.wanted().saturating_sub(self.input.len()).min(ANSWER_LEN_MAX));
            self.input.reserve(room);
        }
        poll_fn(|cx| self.poll_exchange(cx, until)).await
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>, until: &mut Sleep) -> Poll<Result<Woken, String>> {
        let output = self.encoder.finish();
        while !output.is_empty() {
            match self.stream.poll_write(cx, output) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(format!("{}: nothing can be written", self.server)));
                }
                Poll::Ready(Ok(written)) => output.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(format!("{}: {error}", self.server))),
                Poll::Pending => break,
            }
        }
        match self.stream.poll_read_buf(cx, &mut self.input) {
            Poll::Ready(Ok(0)) => {
                return Poll::Ready(Err(format!("{}: the server closed the connection", self.server)));
            }
            Poll::Ready(Ok(_)) => return Poll::Ready(Ok(Woken::Input)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(format!("{}: {error}", self.server))),
            Poll::Pending => {}
        }
        Pin::new(until).poll(cx).map(|()| Ok(Woken::Time))
    }
}
