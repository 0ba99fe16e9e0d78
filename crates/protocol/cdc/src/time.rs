//! Times of a log: the version 1 UUID of a change, and when its rows expire.

use mutation::{Cell, LivenessInfo, NO_DELETION, PartitionUpdate, Seconds, Timestamp};
use types::uuid;

use crate::canonical;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// How a write gets the name by which its changes differ from those of another write with the same timestamp. All replicas have to use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By its encoding, which differs between replicas whose ids of columns are in different orders: for clusters with a node that knows nothing else.
    Encoded,
    /// By its content alone.
    Canonical,
}

/// Names a write: the same wherever and whenever the write is looked at, and another one for another write.
pub(crate) fn fingerprint(update: &PartitionUpdate, naming: Naming) -> u64 {
    let bytes = match naming {
        Naming::Canonical => canonical::bytes_of(update),
        Naming::Encoded => {
            let mut bytes = Vec::new();
            mutation::codec::encode_update(update, &mut bytes);
            bytes
        }
    };
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

    /// The time to live of cells, with their expiry.
    pub(crate) fn of_cells(self) -> Option<(Seconds, Seconds)> {
        (self.ttl != 0).then_some((self.ttl, self.expires))
    }

    pub(crate) fn liveness(self, timestamp: Timestamp) -> LivenessInfo {
        match self.ttl {
            0 => LivenessInfo::forever(timestamp),
            ttl => LivenessInfo::expiring(timestamp, ttl, self.expires),
        }
    }
}
