//! The errors of a call.

use std::net::SocketAddr;

/// Why a peer did not serve a request. Codes below [`Refusal::FIRST_FREE`] belong to the protocol, the others to the
/// verbs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct Refusal {
    /// The kind of failure, for programs.
    pub code: u16,
    /// The error, for operators.
    pub message: String,
}

impl Refusal {
    /// The peer does not serve the verb: it is of another version, or is starting.
    pub const UNKNOWN_VERB: u16 = 1;
    /// The peer has too much to do already.
    pub const OVERLOADED: u16 = 2;
    /// The deadline was past before the request was served.
    pub const EXPIRED: u16 = 3;
    /// The answer is longer than a frame may be.
    pub const ANSWER_TOO_LARGE: u16 = 4;
    /// The request was served, but the peer has too many answers to write to send this one.
    pub const ANSWER_DROPPED: u16 = 5;
    /// The shard that had the request has stopped: whether it was carried out is not known.
    pub const STOPPED: u16 = 6;
    /// The first code that a verb may use as it likes.
    pub const FIRST_FREE: u16 = 64;

    /// A refusal.
    pub fn new(code: u16, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// No address is known for the host.
    #[error("no address is known for this host")]
    UnknownHost,
    /// There is no connection, and none can be made now. The request has not left.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection was lost: whether the request was carried out is not known.
    #[error("the connection was lost")]
    Lost,
    /// The deadline came before the answer: whether the request was carried out is not known.
    #[error("no answer came in time")]
    TimedOut,
    /// A queue here or at the peer is full. The request was not carried out.
    #[error("too many requests are under way")]
    Overloaded,
    /// The peer refused.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The body is longer than a frame may be.
    #[error("a body of {len} bytes; at most {max} can be sent")]
    TooLarge {
        /// Length of the body.
        len: usize,
        /// The limit of a frame.
        max: usize,
    },
    /// The peer is not the one that was meant, or does not understand this node. The request has not left.
    #[error("{0}")]
    Mismatch(String),
    /// The peer has this node's host id: it is this node, or runs on a copy of its data. The request has not left.
    #[error("{0} has this node's own host id")]
    SameHost(SocketAddr),
    /// The peer knows that this node was removed from the cluster. The request has not left.
    #[error("{0}")]
    Removed(String),
    /// This node is stopping.
    #[error("this node is stopping")]
    Stopped,
}
