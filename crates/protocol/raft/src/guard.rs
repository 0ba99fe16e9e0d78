//! Messages that a node must refuse from any peer: the `raft` crate ends the process for them.
//!
//! A healthy group never sends such a message. A node whose disk was wiped or copied makes others send it, and it should say so
//! and live.

use tikv_raft::eraftpb as pb;
use tikv_raft::eraftpb::MessageType as Kind;
use tikv_raft::{RawNode, StateRole};

use crate::data::Unacceptable;
use crate::store::Store;

/// Whether a node may step a message.
pub(crate) fn check(raw: &RawNode<Store>, message: &pb::Message) -> Result<(), Unacceptable> {
    let raft = &raw.raft;
    if message.to != raft.id {
        return Err(Unacceptable::NotForUs { to: message.to });
    }
    if message.term < raft.term {
        return Ok(());
    }
    let last = raft.raft_log.last_index();
    match message.get_msg_type() {
        Kind::MsgHeartbeat if message.commit > last => {
            Err(Unacceptable::LostEntries { expected: message.commit, last })
        }
        Kind::MsgAppend => committed_stay(raw, message),
        Kind::MsgAppendResponse
            if raft.state == StateRole::Leader && !message.reject && message.index > last =>
        {
            Err(Unacceptable::FromTheFuture { from: message.from, index: message.index, last })
        }
        _ => Ok(()),
    }
}

/// Entries that are committed here are the same in the message.
fn committed_stay(raw: &RawNode<Store>, message: &pb::Message) -> Result<(), Unacceptable> {
    let log = &raw.raft.raft_log;
    if message.index < log.committed || log.term(message.index) != Ok(message.log_term) {
        // Answered with how far this node is, or refused, without looking at the entries.
        return Ok(());
    }
    let committed = message.entries.iter().take_while(|entry| entry.index <= log.committed);
    for entry in committed {
        if log.term(entry.index) != Ok(entry.term) {
            return Err(Unacceptable::Diverged { index: entry.index });
        }
    }
    Ok(())
}
