//! The two directions of envelopes, and the length of the header that all have (§2).

/// Length of an envelope's header in bytes, in every supported version.
pub const HEADER_LEN: usize = 9;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Request => "REQUEST",
            Direction::Response => "RESPONSE",
        })
    }
}
