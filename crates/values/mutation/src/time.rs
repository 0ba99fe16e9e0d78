//! The two clocks of the data model: write timestamps in microseconds (chosen by clients, compared for order)
//! and local deletion times in seconds (the server's, used only to decide when something may be forgotten).

/// Microseconds since the epoch, as the writer claims. Larger wins.
pub type Timestamp = i64;

/// Seconds since the epoch.
pub type Seconds = u32;

/// "Nothing was written here": smaller than every real timestamp.
pub const NO_TIMESTAMP: Timestamp = i64::MIN;

/// A local deletion time that never comes.
pub const NO_DELETION: Seconds = u32::MAX;

/// A deletion of everything written up to a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeletionTime {
    /// Writes up to and including this timestamp are gone.
    pub timestamp: Timestamp,
    /// When the deletion happened by the server's clock.
    pub local: Seconds,
}

impl DeletionTime {
    /// No deletion.
    pub const LIVE: Self = Self { timestamp: NO_TIMESTAMP, local: NO_DELETION };

    /// A deletion of everything up to `timestamp`, made at `local` seconds.
    pub fn new(timestamp: Timestamp, local: Seconds) -> Self {
        Self { timestamp, local }
    }

    /// Whether nothing is deleted.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.timestamp == NO_TIMESTAMP
    }

    /// Whether a write at `timestamp` is gone.
    #[inline]
    pub fn deletes(&self, timestamp: Timestamp) -> bool {
        !self.is_live() && timestamp <= self.timestamp
    }

    /// Whether this one hides more than `other`; at equal timestamps the later local time counts as more.
    #[inline]
    pub fn supersedes(&self, other: &Self) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        !self.is_live() && self.local > other.local
    }

    /// The one that hides more.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other.supersedes(&self) { other } else { self }
    }
}

impl std::fmt::Debug for DeletionTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_live() {
            f.write_str("live")
        } else {
            write!(f, "deleted@{}/{}", self.timestamp, self.local)
        }
    }
}

/// The statement of an INSERT about the existence of its row, apart from its cells.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LivenessInfo {
    /// When, or [`NO_TIMESTAMP`] for no such mark.
    pub timestamp: Timestamp,
    /// Seconds to live, 0 for ever.
    pub ttl: Seconds,
    /// When it expires; [`NO_DELETION`] without a TTL.
    pub expires: Seconds,
}

impl LivenessInfo {
    /// No mark: the row exists only through its cells.
    pub const NONE: Self = Self { timestamp: NO_TIMESTAMP, ttl: 0, expires: NO_DELETION };

    /// A mark without an end.
    pub fn forever(timestamp: Timestamp) -> Self {
        Self { timestamp, ttl: 0, expires: NO_DELETION }
    }

    /// A mark that expires.
    pub fn expiring(timestamp: Timestamp, ttl: Seconds, expires: Seconds) -> Self {
        assert!(ttl > 0, "an expiring mark has a time to live");
        Self { timestamp, ttl, expires }
    }

    /// Whether there is no mark.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.timestamp == NO_TIMESTAMP
    }

    /// Whether the row exists by this mark at `now`.
    #[inline]
    pub fn is_live(&self, now: Seconds) -> bool {
        !self.is_none() && (self.ttl == 0 || now < self.expires)
    }

    /// The winner of two marks of one row: the later; at a tie expiring beats lasting, then the longer life,
    /// then the smaller TTL (so that the rule is total).
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let rank = |mark: &Self| (mark.timestamp, mark.ttl > 0, mark.expires, std::cmp::Reverse(mark.ttl));
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl std::fmt::Debug for LivenessInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.is_none(), self.ttl) {
            (true, _) => f.write_str("-"),
            (false, 0) => write!(f, "@{}", self.timestamp),
            (false, ttl) => write!(f, "@{} ttl {ttl} until {}", self.timestamp, self.expires),
        }
    }
}
