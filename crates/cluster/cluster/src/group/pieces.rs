//! Snapshots on their way: the message that carries one is sent in pieces, one after the other, each acknowledged. A state of tens of
//! thousands of tables has more bytes than a frame between nodes may have.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use raft::ENTRY_BYTES_MAX;
use raft::Message;
use rpc::{Incoming, Refusal, Target, Verb};
use rt::Group as Tasks;
use topology::HostId;

use super::inner::{Inner, Input};
use super::receiving::{self, MESSAGE_BYTES_MAX};
use super::wire::{Piece, WireError, code};

/// Bytes of one piece.
const PIECE_BYTES: usize = 1 << 20;
/// How long a piece may take.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a piece is sent before the transfer is given up; the group begins another one.
const TRIES: u32 = 3;
const _: () =
    assert!(PIECE_BYTES <= ENTRY_BYTES_MAX, "a part of a snapshot fits into a frame, as an entry does");

/// Sends a snapshot's message, unless one is on its way to that host.
pub(crate) fn send(inner: &Rc<Inner>, host: HostId, message: &Message) {
    if !inner.sending.borrow_mut().insert(host) {
        return;
    }
    let body: Bytes = message.encode().into();
    if body.len() > MESSAGE_BYTES_MAX {
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
    let whole = receiving::add(&mut inner.receiving.borrow_mut(), incoming.from, &piece);
    if let Some(bytes) = whole.map_err(|why| Refusal::new(code::BAD_REQUEST, why))? {
        let message = Message::decode(&bytes).map_err(WireError::from)?;
        inner.push(Input::Message { from: incoming.from, message });
    }
    Ok(Bytes::new())
}
