//! How to listen and how to connect.

use std::net::SocketAddr;

/// How to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Several sockets, one a shard, share the address; the kernel spreads connections over them.
    pub reuse_port: bool,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { reuse_port: false, backlog: 1024 }
    }
}

/// How to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The address or port to come from (port 0 for any).
    pub local: Option<SocketAddr>,
}
