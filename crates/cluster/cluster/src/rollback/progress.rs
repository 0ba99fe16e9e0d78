//! The progress of a node's disk, by its own record and by the memory of others, and the decision whether it was rolled back.
//!
//! Pure: [`super`] reads, writes and sends.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::HostId;

use crate::state::text::{parse_uuid, uuid};

/// A generation that lies further ahead of the clock is no node's: gossip refuses it, too.
const AHEAD_MAX_SECONDS: u64 = 365 * 24 * 3600;
/// So many process lifetimes in a row without an answer of the others are remembered one by one.
const LIFETIMES_MAX: usize = 1_000;
const FORMAT_VERSION: u32 = 1;
const WIRE_VERSION: u8 = 1;

/// How far a node has come: a process lifetime, and a version of its gossip in it. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Progress {
    /// The generation of the process lifetime.
    pub generation: u64,
    /// The version of the gossip endpoint.
    pub version: u64,
}

/// A node's own record on disk. Nothing beyond `recorded` was ever sent to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    /// The bound of the last process lifetime.
    pub(crate) recorded: Progress,
    /// A majority of the members has confirmed the lifetime of `recorded`.
    pub(crate) confirmed: bool,
    /// The progress before the first lifetime that no other node has confirmed.
    pub(crate) base: Progress,
    /// The generations since.
    pub(crate) lifetimes: Vec<u64>,
}

impl Own {
    /// The disk of a node that recorded nothing but its generation.
    pub(crate) fn unknown_within(generation: u64) -> Self {
        let recorded = Progress { generation, version: u64::MAX };
        Self { recorded, confirmed: true, base: recorded, lifetimes: Vec::new() }
    }

    /// Another process lifetime begins.
    pub(crate) fn begin(&mut self, recorded: Progress) {
        if self.confirmed || self.lifetimes.len() >= LIFETIMES_MAX {
            (self.base, self.lifetimes) = (self.recorded, Vec::new());
        }
        self.lifetimes.push(recorded.generation);
        assert!(self.lifetimes.len() <= LIFETIMES_MAX, "remembered lifetimes are bounded");
        (self.recorded, self.confirmed) = (recorded, false);
    }

    /// The entry of `heard` that proves a rollback, if any does: it is of a lifetime that the disk does not know, or of one that had
    /// come further. `now_seconds` is the wall clock's, since 1970.
    pub(crate) fn find_rollback(&self, heard: &[Progress], now_seconds: u64) -> Option<Progress> {
        let base = if self.confirmed { self.recorded } else { self.base };
        let is_new = |progress: &Progress| match progress.generation == self.recorded.generation {
            true => progress.version > self.recorded.version,
            false => *progress > base && !self.lifetimes.contains(&progress.generation),
        };
        let is_possible =
            |progress: &Progress| progress.generation <= now_seconds.saturating_add(AHEAD_MAX_SECONDS);
        heard.iter().copied().filter(|progress| is_possible(progress) && is_new(progress)).max()
    }
}

/// The last two process lifetimes of a node, as another one remembers them: for a question about the last one it counts how far
/// the one before had come.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lifetimes {
    last: Progress,
    before: Option<Progress>,
}

/// A node's memory of others, by host id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard(BTreeMap<HostId, Lifetimes>);

impl Heard {
    /// A node says that it has come so far.
    pub(crate) fn note(&mut self, host: HostId, progress: Progress) {
        let Some(known) = self.0.get_mut(&host) else {
            self.0.insert(host, Lifetimes { last: progress, before: None });
            return;
        };
        if progress.generation > known.last.generation {
            known.before = Some(known.last);
        }
        known.last = known.last.max(progress);
        let (last, before) = (known.last, known.before);
        assert!(last >= progress, "what was heard of a node never goes back");
        let is_earlier = before.is_none_or(|before| before.generation < last.generation);
        assert!(is_earlier, "the lifetime before is an earlier one");
    }

    /// The memory of a node, later lifetimes first.
    pub(crate) fn of(&self, host: HostId) -> Vec<Progress> {
        let known = self.0.get(&host);
        known.map_or_else(Vec::new, |known| [known.last].into_iter().chain(known.before).collect())
    }

    /// Only these are members.
    pub(crate) fn retain(&mut self, is_member: impl Fn(HostId) -> bool) {
        self.0.retain(|host, _| is_member(*host));
    }
}

/// The file: a checksum, and JSON.
#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    own: Option<Own>,
    heard: BTreeMap<String, Vec<Progress>>,
}

#[expect(clippy::expect_used, reason = "plain values have a JSON form")]
pub(crate) fn encode_file(own: Option<&Own>, heard: &Heard) -> Vec<u8> {
    let heard = heard.0.keys().map(|host| (uuid(&host.0), heard.of(*host))).collect();
    let content = Content { format: FORMAT_VERSION, own: own.cloned(), heard };
    let body = serde_json::to_vec(&content).expect("plain values");
    let mut bytes = format!("{:016x}\n", checksum(&body)).into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

/// The content of the file; none when it is damaged, or a later version's.
pub(crate) fn decode_file(bytes: &[u8]) -> Option<(Option<Own>, Heard)> {
    let (head, body) = bytes.split_at_checked(17)?;
    let expected = u64::from_str_radix(std::str::from_utf8(head).ok()?.trim_end(), 16).ok()?;
    if expected != checksum(body) {
        return None;
    }
    let content: Content = serde_json::from_slice(body).ok()?;
    if content.format > FORMAT_VERSION {
        return None;
    }
    let mut heard = Heard::default();
    for (host, known) in content.heard {
        let host = HostId(parse_uuid(&host)?);
        known.into_iter().rev().for_each(|progress| heard.note(host, progress));
    }
    Some((content.own, heard))
}

fn checksum(body: &[u8]) -> u64 {
    stdx::murmur3::hash128(body, 0)[0]
}

/// The question about a node's versions.
pub(crate) fn encode_question(host: HostId) -> Vec<u8> {
    let mut body = vec![WIRE_VERSION];
    body.extend_from_slice(&host.0);
    body
}

pub(crate) fn decode_question(body: &[u8]) -> Option<HostId> {
    let (version, host) = body.split_first()?;
    (*version == WIRE_VERSION).then_some(HostId(host.try_into().ok()?))
}

/// The answer.
pub(crate) fn encode_answer(heard: &[Progress]) -> Vec<u8> {
    let mut body = vec![WIRE_VERSION];
    for progress in heard {
        body.extend_from_slice(&progress.generation.to_be_bytes());
        body.extend_from_slice(&progress.version.to_be_bytes());
    }
    body
}

pub(crate) fn decode_answer(body: &[u8]) -> Option<Vec<Progress>> {
    let (version, rest) = body.split_first()?;
    let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
    let parts = rest.chunks(16).map(|part| {
        let (generation, version) = part.split_at_checked(8)?;
        Some(Progress { generation: number(generation)?, version: number(version)? })
    });
    if *version != WIRE_VERSION { None } else { parts.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    fn at(generation: u64, version: u64) -> Progress {
        Progress { generation, version }
    }

    /// It is written by every node once in ten seconds: 16 KB a second at most with a thousand members.
    #[test]
    fn progress_records_of_a_thousand_members_are_small() {
        let mut heard = Heard::default();
        for number in 0..1_000_u16 {
            let mut id = [7; 16];
            id[..2].copy_from_slice(&number.to_be_bytes());
            // Two process lifetimes of some months.
            heard.note(HostId(id), at(NOW, 10_000_000));
            heard.note(HostId(id), at(NOW + 10_000_000, 10_000_000));
        }
        let own = confirmed(at(NOW, 10_000_000));
        let bytes = encode_file(Some(&own), &heard);
        assert_eq!(decode_file(&bytes), Some((Some(own), heard)));
        assert!(bytes.len() <= 160_000, "{} bytes", bytes.len());
    }

    fn confirmed(recorded: Progress) -> Own {
        Own { recorded, confirmed: true, base: recorded, lifetimes: vec![recorded.generation] }
    }

    #[test]
    fn a_disk_that_others_have_heard_more_of_went_back() {
        let own = confirmed(at(100, 30));
        assert_eq!(own.find_rollback(&[], NOW), None, "nobody remembers it");
        assert_eq!(own.find_rollback(&[at(100, 30), at(90, 5_000)], NOW), None);
        assert_eq!(own.find_rollback(&[at(100, 31)], NOW), Some(at(100, 31)), "within a lifetime");
        assert_eq!(own.find_rollback(&[at(101, 1), at(100, 9)], NOW), Some(at(101, 1)), "a later lifetime");
    }

    #[test]
    fn impossible_records_stop_no_node() {
        let own = confirmed(at(100, 30));
        let absurd = at(NOW + AHEAD_MAX_SECONDS + 1, 1);
        assert_eq!(own.find_rollback(&[absurd], NOW), None);
        assert_eq!(own.find_rollback(&[absurd, at(102, 7)], NOW), Some(at(102, 7)));
        let old_version = Own::unknown_within(100);
        assert_eq!(old_version.find_rollback(&[at(100, 9_999)], NOW), None, "it did not record versions");
        assert_eq!(old_version.find_rollback(&[at(101, 1)], NOW), Some(at(101, 1)));
    }

    /// A rolled back disk is started where no node can know it, twice: the second start must not take the record of the first for
    /// the memory of the others.
    #[test]
    fn a_start_that_nobody_confirms_hides_nothing() {
        let mut own = confirmed(at(100, 30));
        own.begin(at(300, 16));
        assert_eq!(own.find_rollback(&[at(200, 40)], NOW), Some(at(200, 40)));
        own.begin(at(310, 16));
        assert_eq!(own.find_rollback(&[at(310, 9), at(200, 40)], NOW), Some(at(200, 40)));
        assert_eq!(own.find_rollback(&[at(300, 12)], NOW), None, "that was its own");
        own.confirmed = true;
        assert_eq!(own.find_rollback(&[at(310, 9), at(200, 40)], NOW), None);
    }

    #[test]
    fn the_lifetime_before_the_last_is_remembered() {
        let (mut heard, host) = (Heard::default(), HostId([1; 16]));
        for progress in [at(100, 1), at(100, 30), at(100, 29), at(200, 2), at(100, 90), at(200, 5)] {
            heard.note(host, progress);
        }
        assert_eq!(heard.of(host), [at(200, 5), at(100, 30)]);
        heard.note(host, at(300, 1));
        assert_eq!(heard.of(host), [at(300, 1), at(200, 5)]);
        heard.retain(|_| false);
        assert_eq!(heard, Heard::default());
    }

    #[test]
    fn bytes_read_as_written_and_damage_is_nothing() {
        let mut heard = Heard::default();
        for (host, progress) in [(1, at(100, 30)), (1, at(200, 5)), (2, at(7, u64::MAX))] {
            heard.note(HostId([host; 16]), progress);
        }
        let mut own = confirmed(at(100, 30));
        own.begin(at(200, 3));
        let bytes = encode_file(Some(&own), &heard);
        assert_eq!(decode_file(&bytes), Some((Some(own), heard.clone())));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode_file(&damaged), None, "byte {at}");
            assert_eq!(decode_file(&bytes[..at]), None, "cut at {at}");
        }
        let host = HostId([9; 16]);
        assert_eq!(decode_question(&encode_question(host)), Some(host));
        let known = heard.of(HostId([1; 16]));
        assert_eq!(decode_answer(&encode_answer(&known)), Some(known));
        assert_eq!(decode_answer(&encode_answer(&[])), Some(Vec::new()));
        for bad in [&b""[..], &[2], &[1, 0], &[1; 10], &[1; 18]] {
            assert_eq!(decode_answer(bad), None, "{bad:?}");
            assert_eq!(decode_question(bad), None, "{bad:?}");
        }
    }

    /// A step of a node.
    #[derive(Clone, Debug)]
    enum Step {
        /// It starts, so many seconds later by its clock, which may go back, and is confirmed or not.
        Start(i64, bool),
        /// It gossips so many versions; a peer receives the last one or not.
        Gossip(u64, bool),
        /// An image of its disk is taken.
        Image,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (-500_i64..500, any::<bool>()).prop_map(|(seconds, confirmed)| Step::Start(seconds, confirmed)),
            (1_u64..40, any::<bool>()).prop_map(|(versions, hears)| Step::Gossip(versions, hears)),
            Just(Step::Image),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn a_disk_that_never_went_back_is_never_refused_and_one_that_did_is_when_it_was_heard(steps in steps()) {
            let (mut clock, mut told, mut heard, host) = (NOW as i64, at(0, 0), Heard::default(), HostId([1; 16]));
            let mut own = confirmed(at(1, 0));
            let mut image = own.clone();
            for step in steps {
                match step {
                    Step::Start(seconds, is_confirmed) => {
                        prop_assert_eq!(own.find_rollback(&heard.of(host), NOW), None);
                        clock += seconds;
                        let generation = (clock as u64).max(own.recorded.generation + 1);
                        own.begin(at(generation, 15));
                        told = at(generation, 1);
                        own.confirmed = is_confirmed;
                    }
                    Step::Gossip(versions, hears) => {
                        told.version += versions;
                        own.recorded.version = own.recorded.version.max(told.version + 15);
                        if hears && told.generation > 0 {
                            heard.note(host, told);
                        }
                    }
                    Step::Image => image = own.clone(),
                }
            }
            let known = heard.of(host);
            prop_assert_eq!(own.find_rollback(&known, NOW), None);
            let last = known.first().copied().unwrap_or_default();
            prop_assert_eq!(image.find_rollback(&known, NOW).is_some(), last > image.recorded);
        }
    }
}
