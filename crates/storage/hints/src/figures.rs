//! Figures of the stored hints, and counters since the start.

/// The hints of a host on this shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintFigures {
    /// Hints that were not delivered yet.
    pub count: u64,
    /// Their size, bytes.
    pub bytes: u64,
    /// When the oldest write began, microseconds since 1970; of hints that are partly delivered it may be an older one.
    pub oldest_micros: i64,
    /// When the newest began.
    pub newest_micros: i64,
    /// Files that hold them.
    pub files: u64,
}

impl HintFigures {
    pub(crate) fn add(&mut self, count: u64, bytes: u64, (oldest, newest): (i64, i64)) {
        if count > 0 {
            self.merge(&Self { count, bytes, oldest_micros: oldest, newest_micros: newest, files: 0 });
        }
    }

    /// Adds another shard's stored hints for the host.
    pub fn merge(&mut self, other: &HintFigures) {
        if self.count == 0 {
            (self.oldest_micros, self.newest_micros) = (other.oldest_micros, other.newest_micros);
        } else if other.count > 0 {
            self.oldest_micros = self.oldest_micros.min(other.oldest_micros);
            self.newest_micros = self.newest_micros.max(other.newest_micros);
        }
        self.count += other.count;
        self.bytes += other.bytes;
        self.files += other.files;
    }
}

/// The work since the start, on this shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintsStats {
    /// Hints taken.
    pub stored: u64,
    /// Hints refused, for any reason.
    pub refused: u64,
    /// Of these, because the window had passed.
    pub refused_window: u64,
    /// Of these, because a limit of size was reached.
    pub refused_size: u64,
    /// Of these, because the disk could not be written.
    pub refused_disk: u64,
    /// Hints that were taken and then lost: the disk stayed broken until the stop.
    pub lost: u64,
    /// Hints that a host has.
    pub delivered: u64,
    /// Bytes of these.
    pub delivered_bytes: u64,
    /// Deliveries that failed; the hint is kept.
    pub delivery_failures: u64,
    /// Hints left out of a replay: too old, or their table is gone.
    pub left_out: u64,
    /// Hints dropped because their host has left.
    pub discarded: u64,
    /// Places where a file was damaged.
    pub corruptions: u64,
    /// Reads, writes and syncs that failed.
    pub disk_failures: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Hints that wait to be written now.
    pub pending: u64,
    /// Bytes of these.
    pub pending_bytes: u64,
    /// Hosts that are delivered to now.
    pub replaying: u64,
    /// Hints on their way to a host now.
    pub in_flight: u64,
}
