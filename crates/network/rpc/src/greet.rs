//! The beginning of a connection at the side that makes it: connecting, encrypting, saying hello and judging the answer.

use rt::{ConnectOptions, Stream};

use crate::config::CompressBetween;
use crate::hello::{Agreement, Hello, HelloAnswer, HelloError, HelloRefusal, PREFIX_LEN, decode_prefix};
use crate::packing::Packing;
use crate::peer::{Key, Peer};
use crate::pipe::Pipe;
use crate::pool::wanted_shard;
use crate::shard::Shard;
use crate::{Class, PeerInfo, RpcError};

/// Reads magic, length and the rest.
pub(crate) async fn read_hello<T>(
    stream: &Stream,
    decode: impl FnOnce(&[u8; PREFIX_LEN], &[u8]) -> Result<T, HelloError>,
) -> Result<T, String> {
    let mut prefix = [0; PREFIX_LEN];
    stream.read_exact(&mut prefix).await.map_err(|error| error.to_string())?;
    let len = decode_prefix(&prefix).map_err(|error| error.to_string())?;
    let mut following = vec![0; len];
    stream.read_exact(&mut following).await.map_err(|error| error.to_string())?;
    decode(&prefix, &following).map_err(|error| error.to_string())
}

/// Connects to a peer and says hello.
pub(crate) async fn greet(shard: &Shard, peer: &Peer, class: Class) -> Result<Pipe, RpcError> {
    let address = peer.info.address;
    let config = &shard.config;
    let failed = |error: String| RpcError::Connect(format!("{address}: {error}"));
    let connected = shard.rt.net().connect(address, ConnectOptions::default()).await;
    let stream = connected.map_err(|error| RpcError::Connect(error.to_string()))?;
    // Small requests must not wait for the acknowledgement of those before them; a failure only costs time.
    let _ = stream.set_nodelay(true);
    let (stream, encrypted) = encrypt(shard, &peer.info, stream).await?;
    let compress = match config.compress_between {
        CompressBetween::Nodes => true,
        CompressBetween::Datacenters => !peer.info.near.in_datacenter(),
    };
    let (own, shard_count) = (shard.rt.shard().0, shard.rt.shard_count());
    let wanted_shard = match peer.key {
        Key::Host(_) => wanted_shard(class, (own, shard_count), peer.shard_count.get(), config.host),
        Key::Address(_) => 0,
    };
    let hello = Hello {
        versions: config.versions,
        host: config.host,
        shard_count,
        source_shard: own,
        wanted_shard,
        class,
        packings: if compress { config.compression.bit() } else { 0 },
        cluster_name: config.cluster_name.clone(),
    };
    stream.write_all(&hello.encode()).await.map_err(|error| failed(error.to_string()))?;
    let answer = read_hello(&stream, HelloAnswer::decode).await.map_err(|error| {
        if encrypted {
            // Only now it becomes known when the peer did not like this node's certificate.
            shard.warn(Some(address), "no internode connection to", &error);
        }
        failed(error)
    })?;
    let agreed = agreed(shard, peer, &answer).inspect_err(|error| {
        // The address of a dead node that this one replaces may be its own. A removal is logged once, by its listener.
        let is_own = *error == RpcError::SameHost(config.listen);
        if !is_own && !matches!(error, RpcError::Removed(_)) {
            shard.warn(Some(address), "no internode connection to", &error.to_string());
        }
    })?;
    peer.shard_count.set(answer.shard_count);
    Ok(Pipe::new(stream, shard, agreed.packing))
}

/// The effect of the peer's answer on this side.
fn agreed(shard: &Shard, peer: &Peer, answer: &HelloAnswer) -> Result<Agreement, RpcError> {
    let address = peer.info.address;
    let agreed = match &answer.outcome {
        Ok(agreed) => *agreed,
        Err(refusal) => {
            let message = format!("{address} refused: {}", refusal.message);
            return Err(match refusal.code {
                HelloRefusal::TOO_MANY | HelloRefusal::NOT_READY => RpcError::Connect(message),
                HelloRefusal::SAME_HOST => RpcError::SameHost(address),
                HelloRefusal::REMOVED => {
                    shard.learned_of_removal(address);
                    RpcError::Removed(message)
                }
                _ => RpcError::Mismatch(message),
            });
        }
    };
    if let Some(expected) = peer.expected()
        && expected != answer.host
    {
        let message = format!("{address} is not {expected} but {}: has the address moved?", answer.host);
        return Err(RpcError::Mismatch(message));
    }
    let config = &shard.config;
    let versions = config.versions;
    if agreed.version < versions.min || agreed.version > versions.max {
        let message = format!("{address} chose version {}; this node supports {versions}", agreed.version);
        return Err(RpcError::Mismatch(message));
    }
    if agreed.packing != Packing::None && agreed.packing != config.compression {
        return Err(RpcError::Mismatch(format!("{address} chose a packing that was not offered")));
    }
    Ok(agreed)
}

/// Encrypts a connection that this node has made to a peer, if it shall be; whether it is.
async fn encrypt(shard: &Shard, peer: &PeerInfo, stream: Stream) -> Result<(Stream, bool), RpcError> {
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
