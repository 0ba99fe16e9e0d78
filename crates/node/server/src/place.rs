//! Whether a role may log in at this node, and from an address (`network_authorizer`, `cidr_authorizer`): one check for logins of CQL and for signed
//! requests of the DynamoDB API.

use std::net::SocketAddr;

use coordinator::Coordinator;
use rt::Rt;
use schema::Role;

use crate::Config;
use crate::addresses::AddressCheck;
use crate::config::is_class;

/// The check of a shard's logins.
pub(crate) struct PlaceCheck {
    rt: Rt,
    coordinator: Coordinator,
    checks_datacenter: bool,
    addresses: AddressCheck,
}

impl PlaceCheck {
    pub(crate) fn new(rt: &Rt, config: &Config, coordinator: &Coordinator) -> Self {
        Self {
            rt: rt.clone(),
            coordinator: coordinator.clone(),
            checks_datacenter: is_class(&config.network_authorizer, "CassandraNetworkAuthorizer"),
            addresses: AddressCheck::of(config),
        }
    }

    /// The figures of the check of addresses.
    pub(crate) fn cidr_figures(&self) -> admin::CidrFigures {
        self.addresses.figures(self.rt.now())
    }

    /// Refuses a role that may not use this datacenter, or not from the address of the peer of the TCP connection.
    ///
    /// # Errors
    /// The text for the client.
    pub(crate) fn check(&self, role: &Role, address: SocketAddr) -> Result<(), String> {
        let view = self.coordinator.view();
        let own = &view.node(view.own()).location.datacenter;
        let allowed = role.datacenters.as_ref();
        if self.checks_datacenter && allowed.is_some_and(|names| !names.contains(own.as_str())) {
            return Err(format!("You do not have access to this datacenter ({own})"));
        }
        self.addresses.check(&self.rt, &self.coordinator.schema(), role, address.ip())
    }
}
