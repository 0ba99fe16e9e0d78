//! Snapshots on their way: the message that carries one is sent in pieces, one after the other, each acknowledged. A state of tens of
//! thousands of tables has more bytes than a frame between nodes may have.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use raft::ENTRY_BYTES_MAX;
use raft::Message;
use raft::codec::SNAPSHOT_BYTES_MAX;
use rpc::{Incoming, Refusal, Target, Verb};
use rt::Group as Tasks;
use topology::HostId;

use super::inner::{Inner, Input};
use super::wire::{Piece, WireError, code};

/// Bytes of one piece.
const PIECE_BYTES: usize = 1 << 20;
/// How long a piece may take.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a piece is sent before the transfer is given up; the group begins another one.
const TRIES: u32 = 3;
/// A message's size apart from the state in it: its members, above all.
const HEAD_BYTES_MAX: usize = 1 << 20;

const _: () =
    assert!(PIECE_BYTES <= ENTRY_BYTES_MAX, "a part of a snapshot fits into a frame, as an entry does");

/// A snapshot's message that is coming in.
pub(crate) struct Receiving {
    from: HostId,
    transfer: u64,
    bytes: Vec<u8>,
}

/// Sends a snapshot's message, unless one is on its way to that host.
pub(crate) fn send(inner: &Rc<Inner>, host: HostId, message: &Message) {
    if !inner.sending.borrow_mut().insert(host) {
        return;
    }
    let body: Bytes = message.encode().into();
    if body.len() > SNAPSHOT_BYTES_MAX + HEAD_BYTES_MAX {
        let len = body.len();
        tracing::error!(
            "the cluster's state has {len} bytes, too many to send: drop tables that are not needed"
        );
        inner.sending.borrow_mut().remove(&host);
        return;
    }
    let sender = Rc::clone(inner);
    let task = async move {
        if let Err(error) = send_pieces(&sender, host, &body).await {
            tracing::info!("a snapshot for {host} was not sent, and is tried again: {error}");
        }
        assert!(sender.sending.borrow_mut().remove(&host), "a host is sent one snapshot at a time");
    };
    inner.rt.spawn(Tasks::Maintenance, task).detach();
}

async fn send_pieces(inner: &Inner, host: HostId, body: &Bytes) -> Result<(), rpc::RpcError> {
    assert!(!body.is_empty(), "a message of a snapshot has bytes");
    let (transfer, total) = (inner.rt.random_u64(), body.len());
    let mut sent = 0;
    for at in (0..total).step_by(PIECE_BYTES) {
        let bytes = body.slice(at..total.min(at + PIECE_BYTES));
        assert_eq!(at, sent, "a part follows the one before");
        sent += bytes.len();
        let piece = Piece { transfer, total: total as u64, at: at as u64, bytes };
        let piece = inner.sign(&piece.encode());
        for left in (0..TRIES).rev() {
            if inner.stop.get() {
                return Err(rpc::RpcError::Stopped);
            }
            let deadline = inner.rt.now() + PIECE_TIMEOUT;
            let target = Target::Host { host, shard: 0 };
            match inner.messenger.call(target, Verb::RaftSnapshot, piece.clone(), deadline).await {
                Ok(_) => break,
                Err(error) if left == 0 || matches!(error, rpc::RpcError::Refused(_)) => return Err(error),
                Err(_) => inner.rt.sleep(inner.config.tick).await,
            }
        }
    }
    assert_eq!(sent, total, "the parts are the whole message");
    Ok(())
}

/// Takes a piece; with the last one the message goes to the driver.
pub(crate) fn take(inner: &Inner, incoming: &Incoming) -> Result<Bytes, Refusal> {
    let body = inner.verify(incoming)?;
    let piece = Piece::decode(&body)?;
    let bad = |why: &str| Refusal::new(code::BAD_REQUEST, why);
    let end = piece.at.saturating_add(piece.bytes.len() as u64);
    if piece.total > (SNAPSHOT_BYTES_MAX + HEAD_BYTES_MAX) as u64
        || end > piece.total
        || piece.bytes.is_empty()
    {
        return Err(bad("a piece of a snapshot that cannot be"));
    }
    let mut receiving = inner.receiving.borrow_mut();
    let same = |known: &Receiving| (known.from, known.transfer) == (incoming.from, piece.transfer);
    if piece.at == 0 && !receiving.as_ref().is_some_and(same) {
        // An earlier sender has been replaced, or begins again.
        *receiving = Some(Receiving { from: incoming.from, transfer: piece.transfer, bytes: Vec::new() });
    }
    let known = receiving.as_mut().filter(|known| same(known));
    let Some(known) = known else { return Err(bad("a chunk of an expired transfer")) };
    let have = known.bytes.len() as u64;
    if end <= have {
        // Its acknowledgement was lost.
        return Ok(Bytes::new());
    }
    if piece.at != have {
        return Err(bad("a piece is missing"));
    }
    known.bytes.extend_from_slice(&piece.bytes);
    assert_eq!(known.bytes.len() as u64, end, "parts are joined without a gap");
    assert!(known.bytes.len() <= SNAPSHOT_BYTES_MAX + HEAD_BYTES_MAX, "a snapshot's bytes are bounded");
    if end < piece.total {
        return Ok(Bytes::new());
    }
    let bytes = receiving.take().map(|known| known.bytes).unwrap_or_default();
    let message = Message::decode(&bytes).map_err(WireError::from)?;
    inner.push(Input::Message { from: incoming.from, message });
    Ok(Bytes::new())
}
