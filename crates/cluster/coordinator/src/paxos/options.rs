//! The options of a conditional request, and its outcome.

use replica::ReadPage;
use rt::Instant;

use crate::Consistency;

/// The times of two conditional writes that replicas agree on are at least so many microseconds apart, for one partition and one serial level.
pub const CAS_APART_MICROS: i64 = ::paxos::BETWEEN_MICROS;

/// How a conditional request is to be done.
#[derive(Clone, Copy, Debug)]
pub struct CasOptions {
    /// The scope of agreement: SERIAL or LOCAL_SERIAL.
    pub serial: Consistency,
    /// How many replicas must acknowledge the write before the client is answered.
    pub commit: Consistency,
    /// The deadline of the commit.
    pub deadline: Instant,
    /// The deadline under contention.
    pub contention_deadline: Instant,
}

/// The outcome of a conditional request.
#[derive(Debug)]
pub enum CasOutcome {
    /// The conditions held, and the write is done.
    Applied,
    /// They did not hold for this.
    Refused(ReadPage),
}

/// The quorum of a serial level.
pub(super) fn serial_quorum(serial: Consistency) -> Consistency {
    if serial == Consistency::LocalSerial { Consistency::LocalQuorum } else { Consistency::Quorum }
}
