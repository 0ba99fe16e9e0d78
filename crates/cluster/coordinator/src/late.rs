//! For how long a write may still arrive after it was made: by a hint, or by a logged batch that is completed. Later, the deletions
//! that supersede it may be purged, and it would resurrect deleted data. Pure.

use schema::Table;

/// How old a row of a log of changes may be: nobody deletes one, so that none can come back.
const LOGGED_SECONDS: u32 = 30 * 86_400;

/// How old a write of this table may be, in seconds.
pub(crate) fn late_seconds(table: &Table) -> u32 {
    if table.is_cdc_log() {
        return LOGGED_SECONDS;
    }
    // After a repair deletions that are older than this may be purged before their grace has passed. Writes that do not arrive, the
    // repair has brought from those that had it.
    table.propagation_delay_seconds().unwrap_or(table.options.gc_grace_seconds)
}

#[cfg(test)]
mod tests {
    use schema::{Derivation, TableBuilder, TableId, TombstoneGc};
    use types::CqlType;

    use super::*;

    #[test]
    fn a_write_is_late_when_its_deletion_may_be_forgotten() {
        let late_of = |derivation, gc| {
            let mut table = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
            table.derivation = derivation;
            table.options.gc_grace_seconds = 864_000;
            table.options.tombstone_gc = gc;
            late_seconds(&table.build_known())
        };
        let late = |gc| late_of(None, gc);
        assert_eq!(late(TombstoneGc::Timeout), 864_000);
        assert_eq!(late(TombstoneGc::Disabled), 864_000);
        assert_eq!(late(TombstoneGc::Repair { propagation_delay_seconds: 3_600 }), 3_600);
        assert_eq!(late(TombstoneGc::Repair { propagation_delay_seconds: 0 }), 0);
        let (where_clause, conditions) = (String::new(), Vec::new());
        let view = Derivation::View { base: TableId([3; 16]), all_columns: false, where_clause, conditions };
        let none = late_of(Some(view), TombstoneGc::Repair { propagation_delay_seconds: 0 });
        assert_eq!(none, Table::VIEW_DELAY_SECONDS_MIN, "updates of a view are delivered after a failure");
        let mut log = TableBuilder::new("ks", "l", TableId([2; 16])).partition_key("k", CqlType::Int);
        log.options.gc_grace_seconds = 0;
        log.derivation = Some(Derivation::Cdc { base: TableId([1; 16]) });
        assert_eq!(late_seconds(&log.build_known()), LOGGED_SECONDS, "it never comes too late");
    }
}
