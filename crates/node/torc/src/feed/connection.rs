//! A connection to a node's CQL port that blocks: one statement after the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use wire::client::{Answer, AnswerBody, Parameters, RequestWriter, ResultBody, Rows};
use wire::{Consistency, CqlError, Decoder, Dialect, Direction, Encoder, Value, Version};

use crate::feed::reader::Failure;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than a node works on a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// An answer of more bytes is refused.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The stream of the protocol: there is one request at a time.
const STREAM: i16 = 0;

/// A name and its password.
#[derive(Clone)]
pub struct Credentials {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// The way to the nodes.
#[derive(Clone)]
pub struct Target {
    /// Names or addresses of nodes, the next one is tried when one fails.
    pub hosts: Vec<String>,
    /// Their CQL port.
    pub port: u16,
    /// Certificates of the authorities that the nodes' certificates are of; none without TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// The settings of TLS with the authorities of a file.
    ///
    /// # Errors
    /// A sentence for the user when the file has no certificates.
    pub fn tls(authorities: &PathBuf) -> Result<Arc<ClientConfig>, String> {
        let refused = |error: String| format!("{}: {error}", authorities.display());
        let mut roots = RootCertStore::empty();
        for certificate in
            CertificateDer::pem_file_iter(authorities).map_err(|error| refused(error.to_string()))?
        {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refused("it has no certificate".to_owned()));
        }
        Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
    }
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

/// A connection that is logged in.
pub struct Connection {
    transport: Transport,
    decoder: Decoder,
    encoder: Encoder,
    input: BytesMut,
    dialect: Dialect,
    place: String,
}

impl Connection {
    /// Connects to a host, which is the first of the target's or a later one, and logs in.
    ///
    /// # Errors
    /// [`Failure::Final`] when the node refuses the login or its certificate is not trusted.
    pub fn open(target: &Target, host: usize, credentials: Option<&Credentials>) -> Result<Self, Failure> {
        let name = &target.hosts[host % target.hosts.len()];
        let name = name.trim_matches(['[', ']']);
        let place = format!("{name}:{}", target.port);
        let unreachable =
            |error: &dyn std::fmt::Display| Failure::Transient(format!("{place} cannot be reached: {error}"));
        let mut stream = None;
        let mut failed = "the name has no address".to_owned();
        for address in (name, target.port).to_socket_addrs().map_err(|error| unreachable(&error))? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(connected) => stream = Some(connected),
                Err(error) => failed = error.to_string(),
            }
            if stream.is_some() {
                break;
            }
        }
        let stream = stream.ok_or_else(|| unreachable(&failed))?;
        let timeout = Some(ANSWER_TIMEOUT);
        let set = stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout));
        set.and_then(|()| stream.set_nodelay(true)).map_err(|error| unreachable(&error))?;
        let transport = match &target.tls {
            None => Transport::Plain(stream),
            Some(tls) => {
                let server = ServerName::try_from(name.to_owned())
                    .map_err(|error| Failure::Final(format!("{name}: {error}")))?;
                let session = ClientConnection::new(tls.clone(), server)
                    .map_err(|error| Failure::Final(format!("{place}: {error}")))?;
                Transport::Tls(Box::new(StreamOwned::new(session, stream)))
            }
        };
        let mut connection = Self {
            transport,
            decoder: Decoder::new(Direction::Response, ANSWER_BYTES_MAX),
            encoder: Encoder::new(),
            input: BytesMut::new(),
            dialect: Dialect::new(Version::V4),
            place,
        };
        connection.log_in(credentials)?;
        Ok(connection)
    }

    fn log_in(&mut self, credentials: Option<&Credentials>) -> Result<(), Failure> {
        let asked = self.ask(|request| request.startup(&[("CQL_VERSION", "3.0.0")]))?;
        let AnswerBody::Authenticate(_) = asked else { return self.expect_ready(asked) };
        let Some(Credentials { user, password }) = credentials else {
            return Err(Failure::NoLogin(format!("{} wants a user and a password", self.place)));
        };
        if user.contains('\0') || password.contains('\0') {
            return Err(Failure::Final("a user or password has no zero byte".to_owned()));
        }
        let token = format!("\0{user}\0{password}");
        let answer = self.ask(|request| request.auth_response(Some(token.as_bytes())))?;
        self.expect_ready(answer)
    }

    fn expect_ready(&self, answer: AnswerBody) -> Result<(), Failure> {
        match answer {
            AnswerBody::Ready | AnswerBody::AuthSuccess(_) => Ok(()),
            AnswerBody::Error(error) => Err(self.refused(&error)),
            _ => Err(self.foreign()),
        }
    }

    fn refused(&self, error: &CqlError) -> Failure {
        let message = error.message.clone();
        // Unavailable, overloaded, bootstrapping, timeouts and failures of replicas.
        match error.code() {
            0x1000..=0x1002 | 0x1200 | 0x1300 => {
                Failure::Transient(format!("{} answered: {message}", self.place))
            }
            // Bad credentials, unauthorized.
            0x0100 => Failure::NoLogin(message),
            0x2100 => Failure::Denied(message),
            _ => Failure::Final(message),
        }
    }

    fn foreign(&self) -> Failure {
        Failure::Final(format!("{} does not answer as a CQL port does", self.place))
    }

    fn ask(&mut self, write: impl FnOnce(&mut RequestWriter)) -> Result<AnswerBody, Failure> {
        let mut request = RequestWriter::new(self.dialect);
        write(&mut request);
        self.encoder.push_request(STREAM, &request);
        let bytes = self.encoder.finish().split();
        let sent = self.transport.write_all(&bytes);
        sent.map_err(|error| self.lost(&error))?;
        let mut bytes = [0; 65_536];
        loop {
            if let Some(envelope) = self.decoder.next(&mut self.input) {
                let envelope = envelope.map_err(|_| self.foreign())?;
                let answer = Answer::decode(&envelope, self.dialect).map_err(|_| self.foreign())?;
                return Ok(answer.body);
            }
            match self.transport.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => return Err(self.lost(&"the node ended the connection")),
                Ok(len) => self.input.extend_from_slice(bytes.get(..len).unwrap_or_default()),
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn lost(&self, error: &dyn std::fmt::Display) -> Failure {
        let text = error.to_string();
        match text.contains("invalid peer certificate") {
            true => Failure::Final(format!("{}: {text}", self.place)),
            false => Failure::Transient(format!("{}: {text}", self.place)),
        }
    }

    /// A statement's rows, page by page, until `take` returns false. A cell that is null is none.
    ///
    /// # Errors
    /// When the node refuses the statement or the connection is lost.
    pub fn rows(
        &mut self,
        text: &str,
        values: &[&[u8]],
        consistency: Consistency,
        page_rows: i32,
        take: &mut dyn FnMut(&[Option<&[u8]>]) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let values: Vec<Value<'_>> = values.iter().map(|value| Value::Set(value)).collect();
        let mut state = None;
        loop {
            let rows = self.page(text, &values, consistency, page_rows, state.as_deref())?;
            let mut row: Vec<Option<&[u8]>> = Vec::with_capacity(rows.columns);
            for cell in rows.cells() {
                row.push(cell.map_err(|_| self.foreign())?);
                if row.len() == rows.columns {
                    if !take(&row)? {
                        return Ok(());
                    }
                    row.clear();
                }
            }
            state = rows.paging_state.clone();
            if state.is_none() {
                return Ok(());
            }
        }
    }

    fn page(
        &mut self,
        text: &str,
        values: &[Value<'_>],
        consistency: Consistency,
        page_rows: i32,
        state: Option<&[u8]>,
    ) -> Result<Rows, Failure> {
        let parameters = Parameters {
            page_size: Some(page_rows),
            paging_state: state,
            ..Parameters::new(consistency, values)
        };
        match self.ask(|request| request.query(text, &parameters))? {
            AnswerBody::Result(ResultBody::Rows(rows)) => Ok(rows),
            AnswerBody::Error(error) => Err(self.refused(&error)),
            _ => Err(self.foreign()),
        }
    }
}
