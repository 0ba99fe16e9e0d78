//! Authentication of clients: the SASL exchange of the protocol, with the mechanism behind a trait.

use std::net::SocketAddr;

use bytes::Bytes;
use rt::LocalBoxFuture;
use tls::PeerCertificate;
use wire::CqlError;

/// The user of connections that need no password.
const ANONYMOUS: &str = "anonymous";

/// Decides which clients have to authenticate, and how.
pub trait Authenticator {
    /// The class name that AUTHENTICATE names, from which drivers know the mechanism; `None` when authentication is off.
    fn class(&self) -> Option<&str>;

    /// The login of a client by the certificate that it has shown, or has not: the role, or the error that ends the connection. Such a
    /// client is not sent AUTHENTICATE. None for a client that has to answer that.
    fn certified(
        &self,
        _address: SocketAddr,
        _certificate: Option<&PeerCertificate>,
    ) -> Option<LocalBoxFuture<Result<String, CqlError>>> {
        None
    }

    /// Begins the exchange with a client.
    fn begin(&self, address: SocketAddr) -> Box<dyn SaslExchange>;
}

/// The exchange with one client.
pub trait SaslExchange {
    /// Answers the client's next token.
    ///
    /// # Errors
    /// A [`CqlError`], after which the connection is closed; it should be of the kind `AuthenticationFailed`.
    fn step(&mut self, token: Option<Bytes>) -> LocalBoxFuture<Result<SaslStep, CqlError>>;
}

/// The next step of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslStep {
    /// The client has to answer this.
    Challenge(Bytes),
    /// The client is authenticated.
    Success {
        /// The user's name.
        user: String,
        /// The final token of the mechanism.
        token: Option<Bytes>,
    },
}

/// Everybody is let in, without a name.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authenticator for AllowAll {
    fn class(&self) -> Option<&str> {
        None
    }

    fn begin(&self, _address: SocketAddr) -> Box<dyn SaslExchange> {
        Box::new(AllowAll)
    }
}

impl SaslExchange for AllowAll {
    fn step(&mut self, _token: Option<Bytes>) -> LocalBoxFuture<Result<SaslStep, CqlError>> {
        Box::pin(async { Ok(SaslStep::Success { user: ANONYMOUS.to_owned(), token: None }) })
    }
}
