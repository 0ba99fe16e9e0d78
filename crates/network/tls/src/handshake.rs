//! The beginning of a secured connection, bounded in time and bytes, on both sides.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rt::driver::StreamDriver;
use rt::{Rt, Stream};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};

use crate::core::Core;
use crate::error::explain;
use crate::prefixed::Prefixed;
use crate::stream::{READ_LEN, TlsStream, poll_flush};
use crate::{Credentials, PeerCertificate, TlsError, Trust};

/// A handshake with a long chain of certificates has some 10 KiB.
const HANDSHAKE_LEN_MAX: usize = 128 << 10;
/// The first byte of every TLS connection: the type of a record that holds a handshake.
const HANDSHAKE_RECORD: u8 = 22;
/// Bytes of a connection without TLS that are logged.
const LOGGED_LEN: usize = 8;
/// How long a refused peer may take to read the alert.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that was let in.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// The names in the verified certificate of the peer, if it has shown one.
    pub certificate: Option<Box<PeerCertificate>>,
}

/// Does the handshake of a connection that was accepted. With `optional` a connection without TLS is returned as it was.
///
/// # Errors
/// [`TlsError::Plaintext`] when the other side uses no TLS and has to, [`TlsError::Closed`], [`TlsError::TimedOut`]
/// after `limit`, [`TlsError::TooLong`], [`TlsError::Refused`] when the certificates or versions do not fit,
/// [`TlsError::Io`] when the connection breaks.
pub async fn accept(
    rt: &Rt,
    stream: Stream,
    credentials: &Credentials,
    optional: bool,
    limit: Duration,
) -> Result<Accepted, TlsError> {
    let driver = stream.into_driver();
    let handshake = async {
        let first = read(&*driver).await?;
        if first.first() != Some(&HANDSHAKE_RECORD) {
            return if optional {
                Ok((None, first))
            } else if first.is_empty() {
                Err(TlsError::Closed)
            } else {
                Err(TlsError::Plaintext(first.slice(..first.len().min(LOGGED_LEN)).to_vec()))
            };
        }
        let connection = ServerConnection::new(credentials.server(rt.wall_micros()));
        let connection = connection.map_err(|error| TlsError::Refused(explain(&error)))?;
        let mut core = Core::new(Connection::Server(connection));
        let done = run(&mut core, &*driver, first).await;
        finish(rt, &mut core, &*driver, done).await?;
        Ok((Some(core), Bytes::new()))
    };
    let outcome = rt.timeout(limit, handshake).await;
    match outcome.unwrap_or(Err(TlsError::TimedOut(limit)))? {
        (Some(core), _) => {
            // A certificate whose names cannot be read has none.
            let names = |der| Box::new(PeerCertificate::read(der).unwrap_or_default());
            let certificate = core.peer_certificate().map(names);
            let stream = Stream::from_driver(Box::new(TlsStream::new(driver, core)));
            Ok(Accepted { stream, encrypted: true, certificate })
        }
        (None, first) => {
            let stream = Stream::from_driver(Box::new(Prefixed::new(driver, first)));
            Ok(Accepted { stream, encrypted: false, certificate: None })
        }
    }
}

/// Does the handshake of a connection to `address` that was made.
///
/// # Errors
/// As [`accept`]; [`TlsError::Pem`] when these credentials cannot be used for clients.
pub async fn connect(
    rt: &Rt,
    stream: Stream,
    credentials: &Credentials,
    address: IpAddr,
    limit: Duration,
) -> Result<Stream, TlsError> {
    let config = credentials.client(rt.wall_micros())?;
    shake(rt, stream, (config, ServerName::IpAddress(address.into())), limit).await
}

/// Does the handshake of a connection that was made to a service of this name or address, whose certificate must be for it.
///
/// # Errors
/// As [`accept`]; [`TlsError::Refused`] when the name is none.
pub async fn connect_to(
    rt: &Rt,
    stream: Stream,
    trust: &Trust,
    name: &str,
    limit: Duration,
) -> Result<Stream, TlsError> {
    let parsed = ServerName::try_from(name.to_owned());
    let parsed = parsed.map_err(|_| TlsError::Refused(format!("{name:?} is no name of a host")))?;
    shake(rt, stream, (trust.client(rt.wall_micros()), parsed), limit).await
}

/// The handshake of a client.
async fn shake(
    rt: &Rt,
    stream: Stream,
    (config, name): (Arc<ClientConfig>, ServerName<'static>),
    limit: Duration,
) -> Result<Stream, TlsError> {
    let driver = stream.into_driver();
    let connection = ClientConnection::new(config, name);
    let connection = connection.map_err(|error| TlsError::Refused(explain(&error)))?;
    let mut core = Core::new(Connection::Client(connection));
    let handshake = async {
        let done = run(&mut core, &*driver, Bytes::new()).await;
        finish(rt, &mut core, &*driver, done).await
    };
    rt.timeout(limit, handshake).await.unwrap_or(Err(TlsError::TimedOut(limit)))?;
    Ok(Stream::from_driver(Box::new(TlsStream::new(driver, core))))
}

/// Reads the available bytes; none at the end.
async fn read(driver: &dyn StreamDriver) -> Result<Bytes, TlsError> {
    let mut buffer = vec![0; READ_LEN];
    let read = poll_fn(|cx| driver.poll_read(cx, &mut buffer)).await;
    buffer.truncate(read.map_err(broken)?);
    Ok(buffer.into())
}

/// Exchanges messages until the handshake is complete.
async fn run(core: &mut Core, driver: &dyn StreamDriver, first: Bytes) -> Result<(), TlsError> {
    let refused = |error| TlsError::Refused(explain(&error));
    let mut total = first.len();
    core.receive(&first).map_err(refused)?;
    loop {
        flush(core, driver).await.map_err(broken)?;
        if !core.is_handshaking() {
            return Ok(());
        }
        let bytes = read(driver).await?;
        total += bytes.len();
        core.receive(&bytes).map_err(refused)?;
        if bytes.is_empty() {
            return Err(TlsError::Closed);
        }
        if total > HANDSHAKE_LEN_MAX && core.is_handshaking() {
            return Err(TlsError::TooLong(HANDSHAKE_LEN_MAX));
        }
    }
}

async fn flush(core: &mut Core, driver: &dyn StreamDriver) -> io::Result<()> {
    poll_fn(|cx| poll_flush(core, driver, cx)).await
}

/// Sends the alert of rustls to a refused peer. Closing with unread bytes would take it away from them.
async fn finish(
    rt: &Rt,
    core: &mut Core,
    driver: &dyn StreamDriver,
    done: Result<(), TlsError>,
) -> Result<(), TlsError> {
    if matches!(done, Err(TlsError::Refused(_))) {
        let farewell = async {
            flush(core, driver).await?;
            poll_fn(|cx| driver.poll_shutdown(cx)).await?;
            let mut discarded = [0; 512];
            for _ in 0..HANDSHAKE_LEN_MAX / discarded.len() {
                if poll_fn(|cx| driver.poll_read(cx, &mut discarded)).await? == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        };
        // A peer that does not read it is closed all the same.
        let _ = rt.timeout(FAREWELL, farewell).await;
    }
    done
}

/// A peer that closes without having read all resets the connection.
fn broken(error: io::Error) -> TlsError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => TlsError::Closed,
        _ => TlsError::Io(error.to_string()),
    }
}
