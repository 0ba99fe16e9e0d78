//! The addresses from which roles may log in (`cidr_authorizer`): a role with groups of addresses only from an address whose smallest range is in
//! one of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use admin::CidrFigures;
use rt::{Instant, Rt};
use schema::{Role, Schema};
use stdx::Recent;

use crate::Config;
use crate::config::is_class;

/// Logins of a role from an address are named in the log once in this time.
const WARNING_PAUSE: Duration = Duration::from_secs(60);
/// Pairs of a role and an address that are named in that time at most.
const WARNINGS_MAX: usize = 1_024;

/// The reaction to a login from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// None: addresses do not count.
    Off,
    /// The log names it.
    Monitor,
    /// It is refused.
    Enforce,
}

/// The check of a shard's logins.
pub(crate) struct AddressCheck {
    mode: Mode,
    superusers: bool,
    /// When the login of a role from an address was named last.
    warned: RefCell<BTreeMap<(String, IpAddr), Instant>>,
    /// Logins by group, those that were let in and those that were refused.
    accepted: RefCell<BTreeMap<String, u64>>,
    rejected: RefCell<BTreeMap<String, u64>>,
    /// Nanoseconds of the checks, and of the search for the groups of their addresses.
    checks: Recent,
    lookups: Recent,
}

/// Nanoseconds since the start of the clock.
fn nanos(at: Instant) -> u64 {
    u64::try_from((at - Instant::START).as_nanos()).unwrap_or(u64::MAX)
}

/// Counts a login for each of the groups of its address. Groups that are dropped leave the counts when there are others to be counted in their place.
fn count(counts: &RefCell<BTreeMap<String, u64>>, groups: &BTreeSet<String>, schema: &Schema) {
    let mut counts = counts.borrow_mut();
    for group in groups {
        match counts.get_mut(group) {
            Some(count) => *count += 1,
            None => {
                let known: BTreeSet<&str> = schema.cidr_groups().map(|group| group.name.as_str()).collect();
                counts.retain(|name, _| known.contains(name.as_str()));
                counts.insert(group.clone(), 1);
            }
        }
    }
}

impl AddressCheck {
    pub(crate) fn of(config: &Config) -> Self {
        let is_on = is_class(&config.cidr_authorizer, "CassandraCIDRAuthorizer");
        let mode = match (is_on, config.cidr_authorizer_mode.eq_ignore_ascii_case("ENFORCE")) {
            (false, _) => Mode::Off,
            (true, false) => Mode::Monitor,
            (true, true) => Mode::Enforce,
        };
        Self {
            mode,
            superusers: config.cidr_checks_for_superusers,
            warned: RefCell::default(),
            accepted: RefCell::default(),
            rejected: RefCell::default(),
            checks: Recent::default(),
            lookups: Recent::default(),
        }
    }

    /// Refuses a login as a role from an address where it has none of the groups, or has the log name it.
    pub(crate) fn check(&self, rt: &Rt, schema: &Schema, role: &Role, address: IpAddr) -> Result<(), String> {
        if self.mode == Mode::Off {
            return Ok(());
        }
        let began = nanos(rt.now());
        let checked = self.check_groups(rt, schema, role, address);
        let ended = nanos(rt.now());
        self.checks.add(ended.saturating_sub(began), ended);
        checked
    }

    /// The figures since the start.
    pub(crate) fn figures(&self, now: Instant) -> CidrFigures {
        CidrFigures {
            accepted: self.accepted.borrow().clone(),
            rejected: self.rejected.borrow().clone(),
            checks: self.checks.figures(nanos(now)),
            lookups: self.lookups.figures(nanos(now)),
        }
    }

    /// As Cassandra, logins of a role without groups are counted where nothing is refused.
    fn check_groups(&self, rt: &Rt, schema: &Schema, role: &Role, address: IpAddr) -> Result<(), String> {
        let is_free = role.cidr_groups.is_empty()
            || (!self.superusers && auth::roles::is_superuser(schema, &role.name));
        if self.mode == Mode::Enforce && is_free {
            return Ok(());
        }
        let address = address.to_canonical();
        let began = nanos(rt.now());
        let groups = schema.cidr_groups_of(address);
        let ended = nanos(rt.now());
        self.lookups.add(ended.saturating_sub(began), ended);
        let is_allowed = is_free || !groups.is_disjoint(&role.cidr_groups);
        if is_allowed || self.mode == Mode::Monitor {
            count(&self.accepted, &groups, schema);
        }
        if is_allowed {
            return Ok(());
        }
        if self.mode == Mode::Enforce {
            count(&self.rejected, &groups, schema);
            return Err(format!("You do not have access from this IP {address}"));
        }
        if self.is_worth_a_warning(rt.now(), &role.name, address) {
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            tracing::warn!(
                "Role {} accessed from unauthorized IP {address}, CIDR group [{}]",
                role.name,
                groups.join(", ")
            );
        }
        Ok(())
    }

    fn is_worth_a_warning(&self, now: Instant, role: &str, address: IpAddr) -> bool {
        let mut warned = self.warned.borrow_mut();
        warned.retain(|_, at| now < *at + WARNING_PAUSE);
        let key = (role.to_owned(), address);
        let is_due = warned.len() < WARNINGS_MAX && !warned.contains_key(&key);
        if is_due {
            warned.insert(key, now);
        }
        is_due
    }
}
