//! The throughput of tables and global indexes that is kept and shown, and limits nothing: the maximum on demand, and the warm throughput.

use serde_json::{Value as Json, json};

/// The warm throughput that a table on demand begins with, for reads and writes.
const WARM_ON_DEMAND: [i64; 2] = [12_000, 4_000];

/// Units for reads and writes, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Throughput {
    /// Request units at most, on demand; none where there is no maximum.
    pub(crate) most: [Option<i64>; 2],
    /// The highest throughput that was asked for, or provisioned, until now; 0 where nothing was recorded.
    pub(crate) warm: [i64; 2],
}

/// The warm throughput that follows from the billing: `units` are the provisioned ones.
pub(crate) fn warm_at_least(on_demand: bool, units: [i64; 2]) -> [i64; 2] {
    if on_demand { WARM_ON_DEMAND } else { units }
}

impl Throughput {
    /// As an extension of the table stores it.
    pub(crate) fn json(&self) -> Json {
        json!({ "most": self.most, "warm": self.warm })
    }

    pub(crate) fn read(json: &Json) -> Self {
        let units = |name: &str| {
            let of = json.get(name);
            [0, 1].map(|at| of.and_then(|units| units.get(at)).and_then(Json::as_i64))
        };
        Self { most: units("most"), warm: units("warm").map(Option::unwrap_or_default) }
    }

    /// The same where the warm throughput has come to these units, if they are more.
    pub(crate) fn raised_to(self, units: [i64; 2]) -> Self {
        let [read, write] = self.warm;
        let [least_read, least_write] = units;
        Self { warm: [read.max(least_read), write.max(least_write)], ..self }
    }
}
