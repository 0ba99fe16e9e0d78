//! The begin of a connection to the port with TLS. The handshake runs on the shard that serves the connection.

use std::time::Duration;

use rt::{Rt, Stream};
use tls::{Credentials, TlsError};

/// How the bytes of a connection travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// As they are, over the port without TLS.
    Plain,
    /// Encrypted.
    Tls,
    /// As they are, over the port with TLS: requests are answered with an error, so that a client learns of its wrong URL.
    Misdirected,
}

/// Does the handshake of a connection to the port with TLS. A connection that begins with anything but TLS is misdirected.
///
/// # Errors
/// When the handshake fails or is not done in `handshake_timeout`; the connection is closed.
pub(crate) async fn secure(
    rt: &Rt,
    handshake_timeout: Duration,
    stream: Stream,
    credentials: &Credentials,
) -> Result<(Stream, Transport), TlsError> {
    let accepted = tls::accept(rt, stream, credentials, true, handshake_timeout).await?;
    let transport = if accepted.encrypted { Transport::Tls } else { Transport::Misdirected };
    Ok((accepted.stream, transport))
}
