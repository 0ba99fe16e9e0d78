//! Gossip about this node itself: its own earlier generation, or another node that runs with its host id.
//!
//! The newer generation wins. Before a node reports that its id is taken it sees the other one alive, that is, its heartbeat grow: a
//! memory of this node's own past (its clock went back, its disk was copied and it moved) does not.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Delta, Endpoint};

/// Another process with this node's host id, at another address.
#[derive(Clone, Debug)]
pub(crate) struct Double {
    generation: u64,
    address: SocketAddr,
    heartbeat: u64,
    seen: Duration,
    announced: bool,
}

/// The reaction to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Nothing,
    /// Continue in this generation: the received one is past.
    Raise(u64),
    /// Another node is alive with this host id, and its generation is newer.
    Taken {
        /// Its address.
        address: SocketAddr,
        /// Its generation.
        generation: u64,
    },
}

/// Judges a received endpoint with this node's host id.
pub(crate) fn judge(own: &Endpoint, double: &mut Option<Double>, heard: &Delta, now: Duration) -> Verdict {
    if heard.generation < own.generation {
        return Verdict::Nothing;
    }
    let same_life = heard.generation == own.generation;
    if heard.address == own.address {
        let newest = heard.states.values().map(|state| state.version).max().unwrap_or(0).max(heard.heartbeat);
        // In this generation only this node makes versions.
        return match same_life && newest <= own.version() {
            true => Verdict::Nothing,
            false => Verdict::Raise(heard.generation + 1),
        };
    }
    if same_life && heard.address < own.address {
        return Verdict::Raise(heard.generation + 1);
    }
    let known = double.take().filter(|known| {
        (known.generation, known.address) == (heard.generation, heard.address)
            || known.generation < heard.generation && known.announced
    });
    let lives = known
        .as_ref()
        .is_some_and(|known| (heard.generation, heard.heartbeat) > (known.generation, known.heartbeat));
    let announced = known.as_ref().is_some_and(|known| known.announced);
    let seen = if lives { now } else { known.map_or(now, |known| known.seen) };
    *double = Some(Double {
        generation: heard.generation,
        address: heard.address,
        heartbeat: heard.heartbeat,
        seen,
        announced: announced || lives,
    });
    match lives && !announced {
        true => Verdict::Taken { address: heard.address, generation: heard.generation },
        false => Verdict::Nothing,
    }
}

/// Judges a double that was silent for `silence_max`: it was this node's own past, or it is gone. This node may have raised its own
/// generation above the double's since.
pub(crate) fn judge_silence(
    own: &Endpoint,
    double: &mut Option<Double>,
    silence_max: Duration,
    now: Duration,
) -> Verdict {
    match double.take_if(|double| now.saturating_sub(double.seen) > silence_max) {
        Some(gone) if gone.generation >= own.generation => Verdict::Raise(gone.generation + 1),
        _ => Verdict::Nothing,
    }
}
