//! The dead nodes that an operator has a topology change go on without (`ignore_dead_nodes_for_replace`, `removenode --ignore-dead-nodes`).
//!
//! The node that was given their names announces them by gossip beside the host whose place changes, for which alone they count. They are not in the
//! cluster's log, as nothing that it decides follows from them: a node that does not hear of them, or whose announcer started again, waits
//! for the dead ones until it does. Pure.

use std::collections::BTreeSet;

use bytes::Bytes;
use cluster::liveness::Liveness;
use cluster::state::{ClusterState, host_text};
use gossip::Key;
use topology::HostId;

/// So many nodes fit into an announcement.
pub(crate) const IGNORED_MAX: usize = 24;

const TEXT_LEN: usize = 36;
const _: () = assert!((IGNORED_MAX + 1) * (TEXT_LEN + 1) <= gossip::VALUE_BYTES_MAX);

/// The announcement of the dead nodes that are ignored while this host is removed or joins.
pub(crate) fn announcement(subject: HostId, ignored: &BTreeSet<HostId>) -> Bytes {
    assert!(ignored.len() <= IGNORED_MAX, "more nodes are refused");
    let names: Vec<String> = ignored.iter().map(|host| host_text(&host.0)).collect();
    Bytes::from(format!("{}:{}", host_text(&subject.0), names.join(",")))
}

/// The host and the nodes of an announcement; none where it is none.
fn read(value: &[u8]) -> Option<(HostId, BTreeSet<HostId>)> {
    let (subject, names) = std::str::from_utf8(value).ok()?.split_once(':')?;
    let host = |text: &str| cluster::parse_id(text).map(|id| HostId(id.0));
    Some((host(subject)?, names.split(',').filter_map(host).collect()))
}

/// The nodes that members announce for the change that is under way.
pub(crate) fn named(state: &ClusterState, liveness: &Liveness) -> BTreeSet<HostId> {
    let Some(change) = state.change.as_ref() else { return BTreeSet::new() };
    let Some(subject) = change.joins.or(change.leaves) else { return BTreeSet::new() };
    let endpoints = state.members.keys().filter_map(|host| liveness.endpoint(*host));
    let announced = endpoints.filter_map(|endpoint| read(&endpoint.states.get(&Key::IGNORED_NODES)?.value));
    announced.filter(|(of, _)| *of == subject).flat_map(|(_, ignored)| ignored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_back_and_anything_else_is_none() {
        let host = |id: u8| HostId([id; 16]);
        let most: BTreeSet<HostId> = (1..=IGNORED_MAX as u8).map(host).collect();
        let value = announcement(host(99), &most);
        assert!(value.len() <= gossip::VALUE_BYTES_MAX);
        assert_eq!(read(&value), Some((host(99), most)));
        for other in ["", "x:y", "no host", ":"] {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
    }
}
