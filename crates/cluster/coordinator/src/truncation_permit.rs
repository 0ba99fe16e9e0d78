//! Until when a node carries out a truncation that another node coordinates.
//!
//! A request may be delayed on the network or in a paused process for any time: carried out then, it would remove rows written after its
//! client received an error. Clocks of different nodes cannot be compared. So a node gives a permit, which ends by its own monotonic
//! clock, and truncates with a permit that has not ended only. The coordinator uses it before its own time limit, so that all is over one
//! duration of the permit behind that at the latest.

use std::time::Duration;

use rt::Instant;
use stdx::{Reader, ShortRead};

/// A node's permit to truncate a table on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TruncationPermit {
    /// The lifetime of the node's process that gave it: its clock begins anew with each.
    lifetime: u64,
    /// By the node's monotonic clock.
    expires: Instant,
}

impl TruncationPermit {
    /// A permit of this lifetime that ends so long after `now`.
    pub(crate) fn give(lifetime: u64, now: Instant, duration: Duration) -> Self {
        let expires = now.saturating_add(duration);
        assert!(expires >= now, "a permit lasts from now on");
        Self { lifetime, expires }
    }

    /// When it ends; none when an earlier lifetime of the process gave it.
    pub(crate) fn expires(self, lifetime: u64) -> Option<Instant> {
        (self.lifetime == lifetime).then_some(self.expires)
    }

    /// Appends its 16 bytes.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lifetime.to_be_bytes());
        out.extend_from_slice(&self.expires.as_nanos().to_be_bytes());
    }

    /// Decodes the output of [`TruncationPermit::encode`].
    ///
    /// # Errors
    /// When there are fewer bytes.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, ShortRead> {
        Ok(Self { lifetime: reader.u64()?, expires: Instant::from_nanos(reader.u64()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_of_one_lifetime_and_travels() {
        let permit = TruncationPermit::give(7, Instant::from_nanos(5), Duration::from_nanos(10));
        assert_eq!(permit.expires(7), Some(Instant::from_nanos(15)));
        assert_eq!(permit.expires(8), None);
        let mut bytes = Vec::new();
        permit.encode(&mut bytes);
        assert_eq!(bytes.len(), 16);
        assert_eq!(TruncationPermit::decode(&mut Reader::new(&bytes)), Ok(permit));
        assert!(TruncationPermit::decode(&mut Reader::new(&bytes[1..])).is_err());
        let endless = TruncationPermit::give(7, Instant::from_nanos(5), Duration::MAX);
        assert_eq!(endless.expires(7), Some(Instant::MAX));
    }
}
