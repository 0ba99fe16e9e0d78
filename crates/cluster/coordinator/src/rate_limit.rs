//! Counts how often a second each partition is read and written, for `per_partition_rate_limit` (docs/design/rate-limit.md). Pure:
//! `rate_check` decides which shard and node counts a request.

use std::cell::RefCell;

use rt::Instant;
use schema::TableId;

/// A second, in nanoseconds: the time after which an operation is forgotten.
const WINDOW: u64 = 1_000_000_000;
/// Sets of slots of a shard; a partition and operation belong to one of them.
const SETS: usize = 4096;
/// Slots of a set.
const WAYS: usize = 4;

/// An operation that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read of a partition, or of one page of it.
    Read,
    /// A write to a partition.
    Write,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// The replica that decides about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This replica.
    Here,
    /// Another replica has let it pass: it is counted and not refused.
    Elsewhere,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// The partition and operation; 0 for a slot that was never used.
    id: u64,
    /// When everything that was let pass is forgotten, nanoseconds since the start.
    busy_until: u64,
}

/// How often the partitions of one shard were read and written of late. Its memory is bounded: where more partitions are busy than
/// there are slots, the least busy of a set are forgotten.
#[derive(Default)]
pub(crate) struct RateLimiter {
    sets: RefCell<Vec<[Slot; WAYS]>>,
}

impl RateLimiter {
    /// Counts an operation of which `limit` are allowed a second; whether it may be done. Refused operations are not counted.
    pub(crate) fn count(
        &self,
        (table, token, operation): (TableId, i64, Operation),
        limit: u32,
        decision: Decision,
        now: Instant,
    ) -> bool {
        let now = now.as_nanos();
        if limit == 0 {
            return decision == Decision::Elsewhere;
        }
        let mut sets = self.sets.borrow_mut();
        if sets.is_empty() {
            sets.resize(SETS, [Slot::default(); WAYS]);
        }
        let mut bytes = [0; 25];
        bytes[..16].copy_from_slice(&table.0);
        bytes[16..24].copy_from_slice(&token.to_be_bytes());
        bytes[24] = operation as u8;
        let [id, place] = stdx::murmur3::hash128(&bytes, 0);
        let id = id.max(1);
        assert_eq!(sets.len(), SETS, "the limiter's memory is bounded");
        let set = &mut sets[place as usize % SETS];
        let at = set.iter().position(|slot| slot.id == id).unwrap_or_else(|| {
            let idle = (0..WAYS).min_by_key(|at| set[*at].busy_until).expect("a set has slots");
            set[idle] = Slot { id, busy_until: 0 };
            idle
        });
        assert!(set.iter().filter(|slot| slot.id == id).count() == 1, "a partition has one slot");
        let busy_until = set[at].busy_until.max(now) + WINDOW / u64::from(limit);
        if decision == Decision::Here && busy_until > now + WINDOW {
            return false;
        }
        set[at].busy_until = busy_until.min(now + WINDOW);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: (TableId, i64, Operation) = (TableId([1; 16]), 7, Operation::Write);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn passed(limiter: &RateLimiter, limit: u32, millis: u64, tries: u32) -> u32 {
        let count = |_| limiter.count(PARTITION, limit, Decision::Here, at(millis));
        (0..tries).map(count).filter(|passed| *passed).count() as u32
    }

    #[test]
    fn a_partition_gets_its_limit_each_second_and_refused_operations_do_not_count() {
        let limiter = RateLimiter::default();
        assert_eq!(passed(&limiter, 10, 0, 1000), 10, "at once");
        assert_eq!(passed(&limiter, 10, 500, 1000), 5, "half a second later");
        assert_eq!(passed(&limiter, 10, 10_000, 1000), 10, "a quiet time adds nothing to a second");
        let other = (TableId([1; 16]), 7, Operation::Read);
        assert!(limiter.count(other, 10, Decision::Here, at(10_000)), "reads are counted apart");
        assert_eq!(passed(&RateLimiter::default(), 0, 0, 10), 0);
        assert_eq!(passed(&RateLimiter::default(), 1, 0, 10), 1);
        let largest = passed(&RateLimiter::default(), u32::MAX, 0, 1000);
        assert_eq!(largest, 1000);
    }

    #[test]
    fn operations_that_others_admitted_count_and_their_debt_ends_in_a_second() {
        let limiter = RateLimiter::default();
        for _ in 0..1000 {
            assert!(limiter.count(PARTITION, 10, Decision::Elsewhere, at(0)));
        }
        assert_eq!(passed(&limiter, 10, 0, 10), 0);
        assert_eq!(passed(&limiter, 10, 1000, 100), 10);
    }

    #[test]
    fn a_busy_partition_is_not_forgotten_for_many_idle_ones() {
        let limiter = RateLimiter::default();
        assert_eq!(passed(&limiter, 10, 0, 20), 10);
        for token in 100..200_000 {
            let one = (TableId([1; 16]), token, Operation::Write);
            assert!(limiter.count(one, 1000, Decision::Here, at(0)));
        }
        assert_eq!(passed(&limiter, 10, 0, 20), 0);
    }
}
