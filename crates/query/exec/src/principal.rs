//! The principal that a request is carried out for.

use std::net::SocketAddr;

/// The principal that a request is carried out for, as far as its front end knows: the input of authorisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal<'a> {
    /// The role that the client has authenticated as; none on a node that asks nobody.
    pub role: Option<&'a str>,
    /// Where the client is.
    pub address: SocketAddr,
}
