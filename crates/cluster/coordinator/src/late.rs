//! For how long a write may still arrive after it was made: by a hint, or by a logged batch that is completed. Later, the deletions
//! that supersede it may be forgotten, and it would bring back what was deleted. Pure.

use schema::{Table, TombstoneGc};

/// How old a write of this table may be, in seconds.
pub(crate) fn late_seconds(table: &Table) -> u32 {
    match table.options.tombstone_gc {
        // A repair lets deletions be forgotten that are older than this, whatever the grace is. What does not arrive, the
        // repair has brought from those that had it.
        TombstoneGc::Repair { propagation_delay_seconds } => propagation_delay_seconds,
        TombstoneGc::Timeout | TombstoneGc::Disabled | TombstoneGc::Immediate => {
            table.options.gc_grace_seconds
        }
    }
}

#[cfg(test)]
mod tests {
    use schema::{TableBuilder, TableId};
    use types::CqlType;

    use super::*;

    #[test]
    fn a_write_is_late_when_its_deletion_may_be_forgotten() {
        let late = |gc| {
            let mut table = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
            table.options.gc_grace_seconds = 864_000;
            table.options.tombstone_gc = gc;
            late_seconds(&table.build_known())
        };
        assert_eq!(late(TombstoneGc::Timeout), 864_000);
        assert_eq!(late(TombstoneGc::Disabled), 864_000);
        assert_eq!(late(TombstoneGc::Repair { propagation_delay_seconds: 3_600 }), 3_600);
    }
}
