//! One conversation with a directory: bounded in time by its caller, and in bytes here.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use ldap::{Entry, Filter, LdapError, Outcome, Request, Response, ResultCode};
use rt::{ConnectOptions, Rt, Stream};

use super::{Directory, Source};

/// The most entries of a search for groups: a user is in no more.
const GROUPS_MAX: u32 = 512;
/// The most bytes that a conversation may bring.
const BYTES_MAX: usize = 4 << 20;

/// Why a directory gave no answer; for the log, not for clients.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    #[error("its name has no address")]
    NoAddress,
    #[error("{0} cannot be connected to: {1}")]
    Connect(SocketAddr, rt::NetError),
    #[error("{0} did not answer in time")]
    Silent(SocketAddr),
    #[error("TLS: {0}")]
    Tls(#[from] tls::TlsError),
    #[error("ldap_truststore is needed for TLS")]
    NoTrust,
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("it closed the connection")]
    Closed,
    #[error(transparent)]
    Message(#[from] LdapError),
    #[error("it sent more than {BYTES_MAX} bytes")]
    TooMuch,
    #[error("it sent an answer that does not belong to its request")]
    Unexpected,
    #[error("it sent bytes before TLS was agreed on")]
    Early,
    #[error("{what} was answered with the code {code} {message:?}")]
    Refused { what: &'static str, code: u32, message: String },
    #[error("{found} entries are of the user {user:?}; there must be one")]
    Ambiguous { user: String, found: usize },
}

fn refused(what: &'static str, outcome: Outcome) -> DirectoryError {
    let message = outcome.message.chars().take(200).collect();
    DirectoryError::Refused { what, code: outcome.code.0, message }
}

/// A connection to a directory.
struct Conversation {
    stream: Stream,
    input: BytesMut,
    received: usize,
    number: u32,
}

/// Whether a user has this password.
pub(super) async fn verify(
    rt: &Rt,
    directory: &Directory,
    source: &Source,
    (user, password): (&str, &str),
) -> Result<bool, DirectoryError> {
    assert!(!password.is_empty(), "a bind without a password succeeds as nobody");
    let mut conversation = open(rt, directory, source).await?;
    let name = match source.url.has_user_in_name() {
        true => source.url.name(user),
        false => {
            conversation.bind_searcher(directory).await?;
            let (filter, seconds) = (source.url.filter(user)?, seconds(directory.timeout));
            let search = Request::Search {
                base: &source.url.name(user),
                scope: source.url.scope,
                filter: &filter,
                attribute: None,
                entries_max: 2,
                seconds_max: seconds,
            };
            let mut found = conversation.search(&search).await?;
            match (found.len(), found.pop()) {
                (0, _) | (_, None) => return Ok(false),
                (1, Some(entry)) if !entry.name.is_empty() => entry.name,
                (found, _) => return Err(DirectoryError::Ambiguous { user: user.to_owned(), found }),
            }
        }
    };
    let outcome = conversation.bind(&name, password).await?;
    conversation.end().await;
    match outcome.code {
        ResultCode::SUCCESS => Ok(true),
        ResultCode::INVALID_CREDENTIALS
        | ResultCode::NO_SUCH_OBJECT
        | ResultCode::INAPPROPRIATE_AUTHENTICATION => Ok(false),
        _ => Err(refused("the bind of a user", outcome)),
    }
}

/// The roles of the groups that a user is in.
pub(super) async fn groups(
    rt: &Rt,
    directory: &Directory,
    (source, attribute): &(Source, String),
    user: &str,
) -> Result<Vec<String>, DirectoryError> {
    let mut conversation = open(rt, directory, source).await?;
    conversation.bind_searcher(directory).await?;
    let filter: Filter = source.url.filter(user)?;
    let search = Request::Search {
        base: &source.url.name(user),
        scope: source.url.scope,
        filter: &filter,
        attribute: Some(attribute),
        entries_max: GROUPS_MAX,
        seconds_max: seconds(directory.timeout),
    };
    let found = conversation.search(&search).await?;
    conversation.end().await;
    let values = found.into_iter().flat_map(|entry| entry.values);
    // A directory writes attributes in capitals of its own.
    let wanted = values.filter(|(name, value)| name.eq_ignore_ascii_case(attribute) && !value.is_empty());
    Ok(wanted.map(|(_, value)| value).collect())
}

fn seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Connects to the first address that answers, and agrees on TLS where it is wanted.
async fn open(rt: &Rt, directory: &Directory, source: &Source) -> Result<Conversation, DirectoryError> {
    let addresses = source.addresses.get();
    let mut error = DirectoryError::NoAddress;
    // The whole is bounded by the caller's timeout: no address may use it up for the others.
    let share = directory.timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses.iter() {
        match rt.timeout(share, connect(rt, directory, source, *address)).await {
            Ok(Ok(conversation)) => return Ok(conversation),
            Ok(Err(found)) => error = found,
            Err(_) => error = DirectoryError::Silent(*address),
        }
    }
    Err(error)
}

async fn connect(
    rt: &Rt,
    directory: &Directory,
    source: &Source,
    address: SocketAddr,
) -> Result<Conversation, DirectoryError> {
    let stream = rt.net().connect(address, ConnectOptions::default()).await;
    let stream = stream.map_err(|error| DirectoryError::Connect(address, error))?;
    let mut conversation = Conversation { stream, input: BytesMut::new(), received: 0, number: 0 };
    if !source.url.secure && !directory.start_tls {
        return Ok(conversation);
    }
    let trust = directory.trust.as_ref().ok_or(DirectoryError::NoTrust)?;
    if !source.url.secure {
        conversation.start_tls().await?;
    }
    let (host, limit) = (source.url.host.as_str(), directory.timeout);
    let stream = tls::connect_to(rt, conversation.stream, trust, host, limit).await?;
    Ok(Conversation { stream, ..conversation })
}

impl Conversation {
    async fn send(&mut self, request: &Request<'_>) -> Result<u32, DirectoryError> {
        self.number += 1;
        self.stream.write_all(&ldap::encode(self.number, request)).await?;
        Ok(self.number)
    }

    /// The next answer to a request.
    async fn receive(&mut self, number: u32) -> Result<Response, DirectoryError> {
        loop {
            if let Some((len, found, response)) = ldap::decode(&self.input)? {
                self.input.advance(len);
                return match (found, response) {
                    (found, response) if found == number => Ok(response),
                    (0, Response::Extended(outcome)) => Err(refused("the connection", outcome)),
                    _ => Err(DirectoryError::Unexpected),
                };
            }
            self.input.reserve(4 << 10);
            let read = self.stream.read_buf(&mut self.input).await?;
            self.received += read;
            match read {
                0 => return Err(DirectoryError::Closed),
                _ if self.received > BYTES_MAX => return Err(DirectoryError::TooMuch),
                _ => {}
            }
        }
    }

    async fn start_tls(&mut self) -> Result<(), DirectoryError> {
        let number = self.send(&Request::StartTls).await?;
        match self.receive(number).await? {
            // Bytes that came in the clear would count as said over TLS.
            Response::Extended(outcome) if outcome.code == ResultCode::SUCCESS => match self.input.is_empty()
            {
                true => Ok(()),
                false => Err(DirectoryError::Early),
            },
            Response::Extended(outcome) => Err(refused("StartTLS", outcome)),
            _ => Err(DirectoryError::Unexpected),
        }
    }

    async fn bind(&mut self, name: &str, password: &str) -> Result<Outcome, DirectoryError> {
        let number = self.send(&Request::Bind { name, password }).await?;
        match self.receive(number).await? {
            Response::Bind(outcome) => Ok(outcome),
            _ => Err(DirectoryError::Unexpected),
        }
    }

    /// Becomes the user that searches.
    async fn bind_searcher(&mut self, directory: &Directory) -> Result<(), DirectoryError> {
        let Some((name, password)) = &directory.searcher else { return Ok(()) };
        let outcome = self.bind(name, password).await?;
        match outcome.code {
            ResultCode::SUCCESS => Ok(()),
            _ => Err(refused("the bind of ldap_bind_dn", outcome)),
        }
    }

    /// The entries of a search; a base that is not there has none.
    async fn search(&mut self, search: &Request<'_>) -> Result<Vec<Entry>, DirectoryError> {
        let number = self.send(search).await?;
        let mut found = Vec::new();
        loop {
            match self.receive(number).await? {
                Response::Entry(entry) => found.push(entry),
                // Other directories are not gone to: they were not configured.
                Response::Reference => {}
                Response::SearchDone(outcome) => {
                    return match outcome.code {
                        ResultCode::SUCCESS | ResultCode::NO_SUCH_OBJECT => Ok(found),
                        _ => Err(refused("a search", outcome)),
                    };
                }
                Response::Bind(_) | Response::Extended(_) => return Err(DirectoryError::Unexpected),
            }
        }
    }

    /// Takes leave; a directory that does not listen is left all the same.
    async fn end(mut self) {
        let _ = self.send(&Request::Unbind).await;
        let _ = self.stream.shutdown().await;
    }
}
