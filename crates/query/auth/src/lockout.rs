//! Addresses that fail to log in too often are refused for a while, before their passwords are looked at.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use rt::Instant;
use stdx::HashMap;

/// Addresses that are remembered; of more, those whose time has passed are forgotten, then any.
const ADDRESSES_MAX: usize = 16_384;

/// When an address is locked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockoutLimits {
    /// Failures in a row that are allowed; 0 for any number.
    pub failures_max: u32,
    /// How long an address is locked out, and for how long a failure counts.
    pub duration: Duration,
}

/// The failures of addresses, on one shard.
pub struct Lockout {
    limits: LockoutLimits,
    addresses: RefCell<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    /// They are forgotten then.
    until: Instant,
}

impl Lockout {
    /// With no failures yet.
    pub fn new(limits: LockoutLimits) -> Self {
        Self { limits, addresses: RefCell::default() }
    }

    /// How long an address is still locked out; none when it may try.
    pub fn remaining(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let addresses = self.addresses.borrow();
        let failures = addresses.get(&group(address))?;
        let locked = self.limits.failures_max > 0 && failures.count >= self.limits.failures_max;
        (locked && failures.until > now).then(|| failures.until.duration_since(now))
    }

    /// An address has failed; true when it is locked out since.
    pub fn failed(&self, address: IpAddr, now: Instant) -> bool {
        if self.limits.failures_max == 0 {
            return false;
        }
        let mut addresses = self.addresses.borrow_mut();
        let address = group(address);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            addresses.retain(|_, failures| failures.until > now);
            if addresses.len() >= ADDRESSES_MAX
                && let Some(any) = addresses.keys().next().copied()
            {
                addresses.remove(&any);
            }
        }
        let failures = addresses.entry(address).or_insert(Failures { count: 0, until: now });
        if failures.until <= now {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.until = now + self.limits.duration;
        failures.count == self.limits.failures_max
    }

    /// An address has logged in: its failures are forgotten.
    pub fn succeeded(&self, address: IpAddr) {
        self.addresses.borrow_mut().remove(&group(address));
    }
}

/// A client of IPv6 has a whole network of addresses.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 => v4,
    }
}
