//! The addresses from which roles may log in (`cidr_authorizer`): a role with groups of addresses only from an address whose smallest range is in
//! one of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rt::{Instant, Rt};
use schema::{Role, Schema};

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
}

impl AddressCheck {
    pub(crate) fn of(config: &Config) -> Self {
        let is_on = is_class(&config.cidr_authorizer, "CassandraCIDRAuthorizer");
        let mode = match (is_on, config.cidr_authorizer_mode.eq_ignore_ascii_case("ENFORCE")) {
            (false, _) => Mode::Off,
            (true, false) => Mode::Monitor,
            (true, true) => Mode::Enforce,
        };
        Self { mode, superusers: config.cidr_checks_for_superusers, warned: RefCell::default() }
    }

    /// Refuses a login as a role from an address where it has none of the groups, or has the log name it.
    pub(crate) fn check(&self, rt: &Rt, schema: &Schema, role: &Role, address: IpAddr) -> Result<(), String> {
        let is_free = role.cidr_groups.is_empty()
            || (!self.superusers && auth::roles::is_superuser(schema, &role.name));
        if self.mode == Mode::Off || is_free {
            return Ok(());
        }
        let address = address.to_canonical();
        let groups = schema.cidr_groups_of(address);
        if !groups.is_disjoint(&role.cidr_groups) {
            return Ok(());
        }
        if self.mode == Mode::Enforce {
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
