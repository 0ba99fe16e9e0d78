//! Deletion times as files hold them, absolute (partition headers, row indexes) and relative (rows and markers).

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::{DeletionTime, NO_DELETION, NO_TIMESTAMP, Seconds, Timestamp};
use stdx::{Reader, ShortRead, vint};

use crate::version::Limits;
use crate::{EncodingStats, Version};

/// Bytes of an absolute deletion time.
pub(crate) const LEN: usize = 12;

/// The largest local deletion time of the format, which has 31 bits for it and keeps the largest value for "never".
pub(crate) const LOCAL_MAX: Seconds = Limits::SIGNED.local_deletion_max;
const _: () = assert!(LEN == size_of::<i32>() + size_of::<Timestamp>(), "what `write` appends");
const _: () = assert!(Version::CURRENT.capabilities().limits.local_deletion_max == LOCAL_MAX);

/// A local deletion time as the format's signed number.
pub(crate) fn to_signed(local: Seconds) -> i32 {
    if local == NO_DELETION { i32::MAX } else { local.min(LOCAL_MAX) as i32 }
}

/// A local deletion time from the format's signed number. Negative ones come from releases that let expiration times
/// overflow; they are taken for the largest, so that nothing is lost to them.
pub(crate) fn from_signed(local: i64) -> Seconds {
    match local {
        0..=0x7fff_fffe => local as Seconds,
        0x7fff_ffff => NO_DELETION,
        _ => LOCAL_MAX,
    }
}

/// Appends an absolute deletion time.
pub(crate) fn write(deletion: DeletionTime, out: &mut Vec<u8>) {
    out.extend_from_slice(&to_signed(deletion.local).to_be_bytes());
    out.extend_from_slice(&deletion.timestamp.to_be_bytes());
}

/// Decodes the output of [`write`].
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<DeletionTime, ShortRead> {
    let local = reader.i32()?;
    let timestamp = reader.i64()?;
    Ok(of(timestamp, i64::from(local)))
}

fn of(timestamp: Timestamp, local: i64) -> DeletionTime {
    if timestamp == NO_TIMESTAMP {
        return DeletionTime::LIVE;
    }
    // A deletion without a local time cannot be; like an overflowed one it is kept.
    DeletionTime { timestamp, local: from_signed(local).min(LOCAL_MAX) }
}

impl EncodingStats {
    #[inline]
    pub(crate) fn write_timestamp(&self, timestamp: Timestamp, out: &mut Vec<u8>) {
        vint::write_unsigned(timestamp.wrapping_sub(self.min_timestamp) as u64, out);
    }

    #[inline]
    pub(crate) fn read_timestamp(&self, reader: &mut Reader<'_>) -> Result<Timestamp, ShortRead> {
        Ok(self.min_timestamp.wrapping_add(vint::read_unsigned(reader)? as i64))
    }

    #[inline]
    pub(crate) fn write_local(&self, local: Seconds, out: &mut Vec<u8>) {
        // Differences are 32-bit and, when negative, sign-extended.
        let difference = to_signed(local).wrapping_sub(to_signed(self.min_local_deletion));
        vint::write_unsigned(i64::from(difference) as u64, out);
    }

    #[inline]
    pub(crate) fn read_local(&self, reader: &mut Reader<'_>) -> Result<Seconds, ShortRead> {
        let difference = vint::read_unsigned(reader)? as i32;
        Ok(from_signed(i64::from(to_signed(self.min_local_deletion).wrapping_add(difference))))
    }

    #[inline]
    pub(crate) fn write_ttl(&self, ttl: Seconds, out: &mut Vec<u8>) {
        let difference = (ttl as i32).wrapping_sub(self.min_ttl as i32);
        vint::write_unsigned(i64::from(difference) as u64, out);
    }

    #[inline]
    pub(crate) fn read_ttl(&self, reader: &mut Reader<'_>) -> Result<Seconds, ShortRead> {
        let difference = vint::read_unsigned(reader)? as i32;
        Ok((self.min_ttl as i32).wrapping_add(difference) as u32)
    }

    pub(crate) fn write_deletion(&self, deletion: DeletionTime, out: &mut Vec<u8>) {
        self.write_timestamp(deletion.timestamp, out);
        self.write_local(deletion.local, out);
    }

    pub(crate) fn read_deletion(&self, reader: &mut Reader<'_>) -> Result<DeletionTime, ShortRead> {
        let timestamp = self.read_timestamp(reader)?;
        let local = self.read_local(reader)?;
        Ok(of(timestamp, i64::from(to_signed(local))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            timestamp in any::<i64>(), local in 0..=LOCAL_MAX, ttl in 0u32..700_000_000,
            min_timestamp in any::<i64>(), min_local in 0..=LOCAL_MAX, min_ttl in 0u32..700_000_000,
        ) {
            let stats = EncodingStats { min_timestamp, min_local_deletion: min_local, min_ttl };
            let deletion = if timestamp == NO_TIMESTAMP { DeletionTime::LIVE } else { DeletionTime::new(timestamp, local) };
            let mut out = Vec::new();
            write(deletion, &mut out);
            prop_assert_eq!(out.len(), LEN);
            stats.write_deletion(deletion, &mut out);
            stats.write_deletion(DeletionTime::LIVE, &mut out);
            stats.write_ttl(ttl, &mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(read(&mut reader).unwrap(), deletion);
            prop_assert_eq!(stats.read_deletion(&mut reader).unwrap(), deletion);
            prop_assert_eq!(stats.read_deletion(&mut reader).unwrap(), DeletionTime::LIVE);
            prop_assert_eq!(stats.read_ttl(&mut reader).unwrap(), ttl);
            prop_assert!(reader.is_empty());
        }
    }
}
