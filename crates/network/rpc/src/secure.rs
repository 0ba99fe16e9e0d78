//! Which connections between nodes are encrypted. Pure.

use std::sync::Arc;

use tls::Credentials;

use crate::peers::Near;

/// Between which nodes connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptBetween {
    /// All; plain text is refused.
    Nodes,
    /// Those of different racks.
    Racks,
    /// Those of different datacenters.
    Datacenters,
}

/// Encryption between nodes.
#[derive(Clone, Debug)]
pub struct Secure {
    /// This node's certificate, and its truststore.
    pub credentials: Arc<Credentials>,
    /// Which connections.
    pub between: EncryptBetween,
}

impl EncryptBetween {
    /// Whether this node encrypts messages to a peer. As long as the peer's location is unknown, it does.
    pub(crate) fn encrypts(self, near: Near) -> bool {
        match self {
            EncryptBetween::Nodes => true,
            EncryptBetween::Racks => near != Near::Rack,
            EncryptBetween::Datacenters => !matches!(near, Near::Rack | Near::Datacenter),
        }
    }

    /// Whether a peer may use plain text. A joining one may: its location is not known yet.
    fn takes_plaintext(self, near: Near) -> bool {
        match self {
            EncryptBetween::Nodes => false,
            EncryptBetween::Racks | EncryptBetween::Datacenters => {
                near == Near::Unknown || !self.encrypts(near)
            }
        }
    }
}

/// Whether a peer may go on as it has begun.
pub(crate) fn check(secure: Option<&Secure>, near: Near, encrypted: bool) -> Result<(), &'static str> {
    match secure {
        Some(secure) if !encrypted && !secure.between.takes_plaintext(near) => Err(
            "it uses plain text, but connections to its datacenter or rack are encrypted (internode_encryption)",
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_depends_on_rack_and_datacenter_of_both_nodes() {
        let all = [Near::Unknown, Near::Elsewhere, Near::Datacenter, Near::Rack];
        for (between, encrypts, takes) in [
            (EncryptBetween::Nodes, [true, true, true, true], [false, false, false, false]),
            (EncryptBetween::Racks, [true, true, true, false], [true, false, false, true]),
            (EncryptBetween::Datacenters, [true, true, false, false], [true, false, true, true]),
        ] {
            assert_eq!(all.map(|near| between.encrypts(near)), encrypts, "{between:?}");
            assert_eq!(all.map(|near| between.takes_plaintext(near)), takes, "{between:?}");
        }
    }
}
