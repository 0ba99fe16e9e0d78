//! Times of a log: the version 1 UUID of a change, and when its rows expire.

use mutation::{Cell, LivenessInfo, NO_DELETION, PartitionUpdate, Seconds, Timestamp};
use types::uuid;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Names a write: the same wherever and whenever the write is looked at, and another one for another write.
pub(crate) fn fingerprint(update: &PartitionUpdate) -> u64 {
    let mut bytes = Vec::new();
    mutation::codec::encode_update(update, &mut bytes);
    stdx::murmur3::hash128(&bytes, 0)[0]
}

/// `cdc$time` of the changes of a write with a timestamp.
pub(crate) fn time_uuid(timestamp: Timestamp, fingerprint: u64) -> [u8; 16] {
    let clock_sequence = (fingerprint >> 48) as u16;
    // A node that was drawn has the bit of multicast addresses.
    let node = (fingerprint & 0xffff_ffff_ffff) | 1 << 40;
    uuid::time_uuid(timestamp.wrapping_mul(10), uuid::clock_and_node(clock_sequence, node))
}

/// The second of a timestamp, as far as there is one.
pub(crate) fn seconds(timestamp: Timestamp) -> Seconds {
    let seconds = timestamp.div_euclid(MICROS_PER_SECOND).clamp(0, i64::from(NO_DELETION) - 1);
    seconds as Seconds
}

/// How long rows of a log live. It counts from the timestamp of the change, so that all replicas say the same.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    ttl: Seconds,
    expires: Seconds,
}

impl Life {
    pub(crate) fn of(ttl: u32, timestamp: Timestamp) -> Self {
        Self { ttl, expires: seconds(timestamp).saturating_add(ttl).min(NO_DELETION - 1) }
    }

    pub(crate) fn cell(self, timestamp: Timestamp, value: impl Into<bytes::Bytes>) -> Cell {
        match self.ttl {
            0 => Cell::live(timestamp, value.into()),
            ttl => Cell::expiring(timestamp, ttl, self.expires, value.into()),
        }
    }

    pub(crate) fn liveness(self, timestamp: Timestamp) -> LivenessInfo {
        match self.ttl {
            0 => LivenessInfo::forever(timestamp),
            ttl => LivenessInfo::expiring(timestamp, ttl, self.expires),
        }
    }
}
