//! The times at which a connection checks the deadlines of its requests.

use std::time::Duration;

use rt::Instant;

/// Deadlines are looked after so often at most.
pub(crate) const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// The earlier of two instants, of which one may be missing.
pub(crate) fn soonest(one: Option<Instant>, other: Instant) -> Instant {
    one.map_or(other, |one| one.min(other))
}
