//! Which connections between nodes are encrypted, and how one becomes it.

use std::sync::Arc;

use rt::Stream;
use tls::{Accepted, Credentials};

use crate::RpcError;
use crate::peers::{Near, PeerInfo};
use crate::shard::{Peer, Shard};

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
    fn encrypts(self, near: Near) -> bool {
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

/// Encrypts a connection that this node has made to a peer, if it shall be; whether it is.
pub(crate) async fn connected(
    shard: &Shard,
    peer: &PeerInfo,
    stream: Stream,
) -> Result<(Stream, bool), RpcError> {
    let secure = shard.config.secure.as_ref().filter(|secure| secure.between.encrypts(peer.near));
    let Some(secure) = secure else { return Ok((stream, false)) };
    let (address, limit) = (peer.address, shard.config.timeouts.connect);
    let secured = tls::connect(&shard.rt, stream, &secure.credentials, address.ip(), limit).await;
    match secured {
        Ok(stream) => Ok((stream, true)),
        Err(error) => {
            let error = RpcError::Connect(format!("{address}: {error}"));
            shard.warn(Some(address), "no internode connection to", &error.to_string());
            Err(error)
        }
    }
}

/// The accepted connection, decrypted if it is encrypted.
pub(crate) async fn accepted(shard: &Shard, stream: Stream) -> Result<Accepted, String> {
    let Some(secure) = &shard.config.secure else { return Ok(Accepted { stream, encrypted: false }) };
    let optional = secure.between != EncryptBetween::Nodes;
    let limit = shard.config.timeouts.hello;
    let accepted = tls::accept(&shard.rt, stream, &secure.credentials, optional, limit).await;
    accepted.map_err(|error| error.to_string())
}

/// Whether a peer may go on as it has begun.
pub(crate) fn check(shard: &Shard, peer: Option<&Peer>, encrypted: bool) -> Result<(), &'static str> {
    let near = peer.map_or(Near::Unknown, |peer| peer.info.near);
    match &shard.config.secure {
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
    fn what_is_encrypted_depends_on_where_both_stand() {
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
