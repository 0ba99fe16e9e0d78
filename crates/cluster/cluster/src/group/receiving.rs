//! A snapshot's message that comes in pieces (`pieces`): which piece is next, and the message when all are there. Pure.

use raft::codec::SNAPSHOT_BYTES_MAX;
use topology::HostId;

use super::wire::Piece;

/// A message's size apart from the state in it: its members, above all.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// A message's size with the largest state.
pub(crate) const MESSAGE_BYTES_MAX: usize = SNAPSHOT_BYTES_MAX + HEAD_BYTES_MAX;

/// A snapshot's message that is coming in.
pub(crate) struct Receiving {
    from: HostId,
    transfer: u64,
    bytes: Vec<u8>,
}

/// Adds a piece of `from` to the message that is coming in, which it may begin; the message when this was its last piece.
///
/// # Errors
/// When the piece is invalid, or is not the next one of that message.
pub(crate) fn add(
    receiving: &mut Option<Receiving>,
    from: HostId,
    piece: &Piece,
) -> Result<Option<Vec<u8>>, &'static str> {
    let end = piece.at.saturating_add(piece.bytes.len() as u64);
    if piece.total > MESSAGE_BYTES_MAX as u64 || end > piece.total || piece.bytes.is_empty() {
        return Err("a piece of a snapshot that cannot be");
    }
    let same = |known: &Receiving| (known.from, known.transfer) == (from, piece.transfer);
    if piece.at == 0 && !receiving.as_ref().is_some_and(same) {
        // An earlier sender has been replaced, or begins again.
        *receiving = Some(Receiving { from, transfer: piece.transfer, bytes: Vec::new() });
    }
    let known = receiving.as_mut().filter(|known| same(known));
    let Some(known) = known else { return Err("a chunk of an expired transfer") };
    let have = known.bytes.len() as u64;
    if end <= have {
        // Its acknowledgement was lost.
        return Ok(None);
    }
    if piece.at != have {
        return Err("a piece is missing");
    }
    known.bytes.extend_from_slice(&piece.bytes);
    assert_eq!(known.bytes.len() as u64, end, "parts are joined without a gap");
    assert!(known.bytes.len() <= MESSAGE_BYTES_MAX, "a snapshot's bytes are bounded");
    if end < piece.total {
        return Ok(None);
    }
    Ok(receiving.take().map(|known| known.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> HostId {
        HostId([last; 16])
    }

    fn piece(transfer: u64, at: u64, bytes: &'static [u8]) -> Piece {
        Piece { transfer, total: 6, at, bytes: bytes.into() }
    }

    #[test]
    fn pieces_are_joined_in_order() {
        let mut receiving = None;
        let mut take = |from, piece| add(&mut receiving, host(from), &piece);
        assert_eq!(
            take(1, piece(7, 3, b"def")),
            Err("a chunk of an expired transfer"),
            "without a beginning"
        );
        assert_eq!(take(1, piece(7, 0, b"abc")), Ok(None));
        assert_eq!(take(1, piece(7, 0, b"abc")), Ok(None), "sent twice");
        assert_eq!(take(1, piece(7, 4, b"ef")), Err("a piece is missing"));
        assert_eq!(take(2, piece(7, 3, b"xyz")), Err("a chunk of an expired transfer"), "of another host");
        assert_eq!(take(1, piece(7, 3, b"defg")), Err("a piece of a snapshot that cannot be"), "too long");
        assert_eq!(take(1, piece(7, 3, b"def")), Ok(Some(b"abcdef".to_vec())));
        assert_eq!(take(1, piece(7, 3, b"def")), Err("a chunk of an expired transfer"), "it was taken");
    }

    #[test]
    fn another_transfer_takes_the_place_of_an_unfinished_one() {
        let mut receiving = None;
        let mut take = |from, piece| add(&mut receiving, host(from), &piece);
        assert_eq!(take(1, piece(7, 0, b"abc")), Ok(None));
        assert_eq!(take(2, piece(8, 0, b"uvw")), Ok(None));
        assert_eq!(take(1, piece(7, 3, b"def")), Err("a chunk of an expired transfer"));
        assert_eq!(take(2, piece(8, 3, b"xyz")), Ok(Some(b"uvwxyz".to_vec())));
    }
}
