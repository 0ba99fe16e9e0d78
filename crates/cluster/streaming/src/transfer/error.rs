//! The errors of a transfer.

use rpc::{Refusal, RpcError};

use super::plan::PlanError;

/// The codes with which the receiving side refuses.
pub mod refusal {
    use rpc::Refusal;

    /// The message makes no sense.
    pub const MALFORMED: u16 = Refusal::FIRST_FREE;
    /// No such transfer is under way here: open it again.
    pub const UNKNOWN_TRANSFER: u16 = Refusal::FIRST_FREE + 1;
    /// A transfer of this id has another plan.
    pub const OTHER_PLAN: u16 = Refusal::FIRST_FREE + 2;
    /// A chunk is damaged: send it again.
    pub const DAMAGED: u16 = Refusal::FIRST_FREE + 3;
    /// A chunk lies too far ahead of the position, or a close comes too early: open the transfer again.
    pub const OUT_OF_PLACE: u16 = Refusal::FIRST_FREE + 4;
    /// There are too many transfers.
    pub const TOO_MANY: u16 = Refusal::FIRST_FREE + 5;
    /// The sink has failed, or does not want the transfer.
    pub const SINK: u16 = Refusal::FIRST_FREE + 6;

    /// Whether opening the transfer again may help.
    pub fn may_be_repeated(code: u16) -> bool {
        matches!(
            code,
            UNKNOWN_TRANSFER
                | DAMAGED
                | OUT_OF_PLACE
                | TOO_MANY
                | Refusal::UNKNOWN_VERB
                | Refusal::ANSWER_DROPPED
        )
    }
}

/// Why a transfer has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The receiver does not want it, or cannot keep it.
    #[error("the receiver refuses: {0}")]
    Refused(Refusal),
    /// The content cannot be read.
    #[error("the source has failed: {0}")]
    Source(String),
    /// For too long nothing arrived; opened again later, the transfer resumes where it is.
    #[error("no progress for too long; the last attempt ended with: {0}")]
    GaveUp(RpcError),
    /// The peer's answer makes no sense.
    #[error("the receiver's answer makes no sense: {0}")]
    Protocol(String),
    /// The list of items is no plan.
    #[error("no plan: {0}")]
    Plan(#[from] PlanError),
}
