//! The counters of a run, which its report shows: a seed that exercised nothing proves nothing.

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Writes whose outcome was open for a while.
    pub unknown: u64,
    /// Reads whose answer was compared.
    pub reads: u64,
    /// Rows that were compared.
    pub rows: u64,
    /// Requests that failed for good reason.
    pub errors: u64,
    /// Starts of the node.
    pub starts: u64,
    /// Power failures.
    pub power_losses: u64,
    /// Kills.
    pub kills: u64,
    /// Flushes and compactions that were asked for.
    pub maintenance: u64,
    /// Changes of the schema.
    pub schema_changes: u64,
    /// Disk faults that were switched on.
    pub disk_faults: u64,
    /// Observations with too many unknown writes to judge.
    pub unjudged: u64,
    /// Histories of partitions and registers for which an order was looked for.
    pub histories: u64,
    /// Histories whose search for an order was given up.
    pub unjudged_histories: u64,
    /// Lightweight transactions that were answered.
    pub conditional: u64,
    /// Tables that were truncated.
    pub truncations: u64,
    /// Nodes that joined.
    pub joins: u64,
    /// Nodes that left, were removed or replaced.
    pub other_changes: u64,
    /// Topology changes that were aborted or forced.
    pub aborts: u64,
    /// Repairs and cleanups that were asked for.
    pub repairs: u64,
    /// Disks that were restored from older images.
    pub rollbacks: u64,
    /// Requests under faults that had to succeed in time.
    pub probes: u64,
    /// Looks at a node's metrics under way.
    pub looks: u64,
    /// Requests that a node refused because it had too many.
    pub overloaded: u64,
    /// Requests of the DynamoDB API that were answered.
    pub item_requests: u64,
    /// Transactions of it that were carried out.
    pub item_transactions: u64,
}

impl Stats {
    fn fields(&mut self) -> [(&'static str, &mut u64); 26] {
        [
            ("writes", &mut self.writes),
            ("of unknown outcome", &mut self.unknown),
            ("reads", &mut self.reads),
            ("rows compared", &mut self.rows),
            ("excused errors", &mut self.errors),
            ("starts", &mut self.starts),
            ("power losses", &mut self.power_losses),
            ("kills", &mut self.kills),
            ("flushes and compactions", &mut self.maintenance),
            ("schema changes", &mut self.schema_changes),
            ("disk faults", &mut self.disk_faults),
            ("rows not judged", &mut self.unjudged),
            ("histories", &mut self.histories),
            ("histories not judged", &mut self.unjudged_histories),
            ("lightweight transactions", &mut self.conditional),
            ("truncations", &mut self.truncations),
            ("joins", &mut self.joins),
            ("other topology changes", &mut self.other_changes),
            ("of them aborted or forced", &mut self.aborts),
            ("repairs and cleanups", &mut self.repairs),
            ("restored disks", &mut self.rollbacks),
            ("requests that had to succeed under faults", &mut self.probes),
            ("looks at what nodes hold", &mut self.looks),
            ("refused as overloaded", &mut self.overloaded),
            ("requests for items", &mut self.item_requests),
            ("transactions on items", &mut self.item_transactions),
        ]
    }

    /// Counts a history for which an order was looked for, and whether the search was given up.
    pub(crate) fn note_history(&mut self, is_judged: bool) {
        self.histories += 1;
        self.unjudged_histories += u64::from(!is_judged);
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Stats) {
        let mut other = *other;
        for ((_, sum), (_, more)) in self.fields().into_iter().zip(other.fields()) {
            *sum += *more;
        }
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut copy = *self;
        let all = copy.fields().map(|(name, count)| format!("{count} {name}"));
        f.write_str(&all.join(", "))
    }
}
