//! The addresses from which roles may log in (`cidr_authorizer`): a role with groups of addresses only from an address whose smallest range is in
//! one of them.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use rt::{Instant, Rt};
use schema::{Role, Schema};

use crate::Config;
use crate::config::is_class;

/// Logins from elsewhere are named in the log once in this time.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

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
    warned: Cell<Option<Instant>>,
}

impl AddressCheck {
    pub(crate) fn of(config: &Config) -> Self {
        let is_on = is_class(&config.cidr_authorizer, "CassandraCIDRAuthorizer");
        let mode = match (is_on, config.cidr_authorizer_mode.eq_ignore_ascii_case("ENFORCE")) {
            (false, _) => Mode::Off,
            (true, false) => Mode::Monitor,
            (true, true) => Mode::Enforce,
        };
        Self { mode, superusers: config.cidr_checks_for_superusers, warned: Cell::new(None) }
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
        let now = rt.now();
        if self.warned.get().is_none_or(|warned| now >= warned + WARNING_PAUSE) {
            self.warned.set(Some(now));
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            tracing::warn!(
                "Role {} accessed from unauthorized IP {address}, CIDR group [{}]",
                role.name,
                groups.join(", ")
            );
        }
        Ok(())
    }
}
