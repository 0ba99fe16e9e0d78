//! The machine by hand: bounds, quarantine, refusals, and splitting.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gossip::{
    Change, Config, Delta, Digest, DownReason, Effect, Event, Gossip, Key, Message, Now, Refusal, Standing,
    Versioned, status,
};
use topology::HostId;

const WALL: u64 = 1_800_000_000;

fn host(id: u8) -> HostId {
    HostId([id; 16])
}

fn address(id: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, id], 7_000))
}

fn delta(id: u8, generation: u64, heartbeat: u64) -> Delta {
    Delta {
        host: host(id),
        generation,
        address: address(id),
        heartbeat,
        base: 0,
        states: BTreeMap::from([(Key::DC, Versioned { version: 1, value: Bytes::from_static(b"dc1") })]),
    }
}

fn digest(id: u8, version: u64) -> Digest {
    Digest { host: host(id), generation: WALL, address: address(id), version }
}

/// A node 1 and its clock.
struct Case {
    gossip: Gossip,
    at: Duration,
}

impl Case {
    fn new(config: Config) -> Self {
        let gossip = Gossip::new(config, host(1), WALL, address(1), vec![]);
        Self { gossip, at: Duration::ZERO }
    }

    fn plain() -> Self {
        Self::new(Config::new("c", vec![]))
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let now = Now { monotonic: self.at, wall_seconds: WALL + self.at.as_secs() };
        self.gossip.step(event, now, &mut |_| 0)
    }

    fn hear(&mut self, deltas: Vec<Delta>) -> Vec<Effect> {
        self.step(Event::Received(Message::Deltas(deltas)))
    }

    /// Seconds pass, with a tick each.
    fn pass(&mut self, seconds: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..seconds {
            self.at += Duration::from_secs(1);
            effects.extend(self.step(Event::Tick));
        }
        effects
    }

    fn meet(&mut self, id: u8) {
        self.hear(vec![delta(id, WALL, 1)]);
        let effects = self.step(Event::Echoed { host: host(id), generation: WALL, reached: true });
        assert_eq!(effects, [changed(id, Change::Alive)]);
    }

    fn standing(&self, id: u8) -> Option<Standing> {
        self.gossip.peer(host(id)).map(|peer| peer.standing)
    }

    fn members(&mut self, ids: &[u8]) -> Vec<Effect> {
        self.step(Event::Members(ids.iter().map(|id| (host(*id), address(*id))).collect()))
    }
}

fn changed(id: u8, change: Change) -> Effect {
    Effect::Changed { host: host(id), change }
}

fn probe(id: u8, generation: u64) -> Effect {
    Effect::Probe { host: host(id), address: address(id), generation }
}

#[test]
fn alive_are_the_reached_nodes() {
    let mut case = Case::plain();
    assert_eq!(case.hear(vec![delta(2, WALL, 5)]), [changed(2, Change::Found), probe(2, WALL)]);
    assert_eq!(case.standing(2), Some(Standing::Down(DownReason::NotReached)));
    assert_eq!(case.hear(vec![delta(2, WALL, 6)]), [], "one probe at a time");
    assert_eq!(case.step(Event::Echoed { host: host(2), generation: WALL - 1, reached: true }), []);
    assert_eq!(case.step(Event::Echoed { host: host(2), generation: WALL, reached: false }), []);
    assert_eq!(case.standing(2), Some(Standing::Down(DownReason::NotReached)));
    assert_eq!(case.step(Event::Echoed { host: host(2), generation: WALL, reached: true }), [], "not asked");
    assert_eq!(case.hear(vec![delta(2, WALL, 7)]), [probe(2, WALL)]);
    let effects = case.step(Event::Echoed { host: host(2), generation: WALL, reached: true });
    assert_eq!(effects, [changed(2, Change::Alive)]);
    assert_eq!(case.hear(vec![delta(2, WALL, 7)]), [], "nothing new");
    // A probe whose answer never comes is given up.
    assert_eq!(case.hear(vec![delta(3, WALL, 5)]), [changed(3, Change::Found), probe(3, WALL)]);
    case.pass(6);
    assert_eq!(case.hear(vec![delta(3, WALL, 6)]), [probe(3, WALL)]);
}

#[test]
fn the_silent_are_convicted_and_heard_again() {
    let mut case = Case::plain();
    case.meet(2);
    for beat in 2..40 {
        case.pass(1);
        case.hear(vec![delta(2, WALL, beat)]);
    }
    let quiet = case.pass(18);
    assert!(!quiet.contains(&changed(2, Change::Down(DownReason::Convicted))));
    assert!(case.gossip.phi(host(2), case.at) > 7.5);
    assert!(case.pass(2).contains(&changed(2, Change::Down(DownReason::Convicted))));
    assert_eq!(case.hear(vec![delta(2, WALL, 39)]), [], "an old heartbeat");
    assert_eq!(case.hear(vec![delta(2, WALL, 40)]), [probe(2, WALL)]);
}

#[test]
fn lives_follow_each_other() {
    let mut case = Case::plain();
    case.meet(2);
    assert_eq!(case.hear(vec![delta(2, WALL - 1, 900)]), [], "of an earlier generation");
    let later = delta(2, WALL + 5, 1);
    assert_eq!(case.hear(vec![later.clone()]), [changed(2, Change::Restarted), probe(2, WALL + 5)]);
    // An answer of the earlier generation to an earlier probe does not count for the later.
    assert_eq!(case.step(Event::Echoed { host: host(2), generation: WALL, reached: true }), []);
    assert_eq!(case.standing(2), Some(Standing::Down(DownReason::NotReached)));
    // At the same second the greater address wins, in any order of arrival.
    let moved = Delta { address: address(200), ..later.clone() };
    assert!(case.hear(vec![moved]).contains(&changed(2, Change::Restarted)));
    assert_eq!(case.hear(vec![later]), []);
    assert_eq!(case.gossip.peer(host(2)).unwrap().endpoint.address, address(200));
}

#[test]
fn news_that_leave_something_out_are_not_taken() {
    let mut case = Case::plain();
    let partial = |id, base| Delta { base, ..delta(id, WALL, 50) };
    assert_eq!(case.hear(vec![partial(2, 3)]), []);
    assert!(case.gossip.peer(host(2)).is_none());
    case.meet(2);
    assert_eq!(case.hear(vec![partial(2, 30)]), []);
    assert_eq!(case.gossip.peer(host(2)).unwrap().endpoint.heartbeat, 1);
    assert_eq!(case.hear(vec![Delta { base: 7, ..delta(2, WALL + 1, 9) }]), []);
    assert_eq!(case.gossip.stats().incomplete, 3);
    case.hear(vec![partial(2, 1)]);
    assert_eq!(case.gossip.peer(host(2)).unwrap().endpoint.heartbeat, 50);
}

#[test]
fn a_node_that_shut_down_is_not_contacted_again_in_this_generation() {
    let mut case = Case::plain();
    case.meet(2);
    let mut good_bye = delta(2, WALL, 2);
    good_bye.states.insert(Key::STATUS, Versioned { version: 3, value: status::SHUTDOWN.into() });
    let effects = case.hear(vec![good_bye]);
    assert_eq!(effects, [changed(2, Change::States), changed(2, Change::Down(DownReason::Shutdown))]);
    assert_eq!(case.hear(vec![delta(2, WALL, 9)]), [], "a heartbeat that was on its way");
    assert_eq!(case.hear(vec![delta(2, WALL + 9, 1)]), [changed(2, Change::Restarted), probe(2, WALL + 9)]);
}

#[test]
fn a_node_that_stops_notifies_the_live_ones_and_is_still() {
    let mut case = Case::plain();
    case.meet(2);
    case.hear(vec![delta(3, WALL, 1)]);
    let effects = case.step(Event::Stop);
    let [Effect::Send { to, message: Message::Deltas(deltas) }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*to, deltas.len(), deltas[0].base), (address(2), 1, 0));
    assert_eq!(deltas[0].states[&Key::STATUS].value, status::SHUTDOWN);
    assert_eq!(case.pass(3), []);
    assert_eq!(case.hear(vec![delta(4, WALL, 1)]), []);
}

#[test]
fn an_absurd_generation_is_refused() {
    let mut case = Case::plain();
    let year = 365 * 86_400;
    let generation = WALL + year + 1;
    let refused = Effect::Refused(Refusal::Generation { host: host(2), address: address(2), generation });
    assert_eq!(case.hear(vec![delta(2, generation, 1)]), [refused]);
    assert_eq!(case.hear(vec![delta(2, generation, 2), delta(1, u64::MAX, 2)]), [], "said once a minute");
    assert_eq!(case.gossip.stats().refused, 3);
    case.pass(61);
    assert_eq!(case.hear(vec![delta(2, generation + 61, 2)]).len(), 1);
    assert!(case.gossip.peer(host(2)).is_none());
    assert_eq!(case.gossip.own().generation, WALL);
    // An hour ahead is a wrong clock, but no reason not to talk.
    assert!(case.hear(vec![delta(2, WALL + 3_600, 1)]).contains(&changed(2, Change::Found)));
}

#[test]
fn another_cluster_is_refused() {
    let mut case = Case::plain();
    let syn = Message::Syn {
        cluster: "other".to_owned(),
        reply_to: address(2),
        first: host(0),
        last: host(255),
        digests: vec![digest(2, 1)],
    };
    let refusal = Refusal::Cluster { from: address(2), found: "other".to_owned() };
    assert_eq!(case.step(Event::Received(syn)), [Effect::Refused(refusal.clone())]);
    assert!(refusal.to_string().contains("cluster 'other'"));
}

#[test]
fn endpoints_are_bounded_and_members_come_first() {
    let memory_max = 7 * Config::PEER_MEMORY / 2;
    let mut case = Case::new(Config { memory_max, ..Config::new("c", vec![]) });
    for id in 2..5 {
        case.hear(vec![delta(id, WALL, 1)]);
    }
    let full = Refusal::Full { host: host(5), address: address(5), endpoints: 3 };
    assert_eq!(case.hear(vec![delta(5, WALL, 1)]), [Effect::Refused(full)]);
    assert_eq!(case.gossip.peers().count(), 3);
    case.members(&[1, 2, 5]);
    let effects = case.hear(vec![delta(5, WALL, 1)]);
    assert_eq!(effects, [changed(3, Change::Forgotten), changed(5, Change::Found), probe(5, WALL)]);
    case.hear(vec![delta(6, WALL, 1)]);
    assert!(case.gossip.peer(host(6)).is_none(), "a stranger does not push a stranger out");
    // Members have room though strangers that live have taken all of it.
    let mut case = Case::new(Config { memory_max, ..Config::new("c", vec![]) });
    (2..5).for_each(|id| case.meet(id));
    case.members(&[1, 5]);
    assert_eq!(case.hear(vec![delta(5, WALL, 1)]), [changed(5, Change::Found), probe(5, WALL)]);
    assert_eq!(case.gossip.peers().count(), 4);
    // Unknown endpoints that have no room are not requested.
    let mut case = Case::new(Config { memory_max: 2 * Config::PEER_MEMORY, ..Config::new("c", vec![]) });
    let digests = (2..9).map(|id| digest(id, 1)).collect();
    let (cluster, reply_to) = ("c".to_owned(), address(2));
    let syn = Message::Syn { cluster, reply_to, first: host(0), last: host(255), digests };
    let effects = case.step(Event::Received(syn));
    let [Effect::Send { message: Message::Ack { requests, deltas, .. }, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((requests.len(), deltas.len()), (2, 1));
}

#[test]
fn the_removed_are_not_listened_to_for_a_while() {
    let mut case = Case::plain();
    case.members(&[1, 2, 3]);
    case.meet(2);
    case.meet(3);
    assert_eq!(case.members(&[1, 2]), [changed(3, Change::Forgotten)]);
    assert_eq!(case.hear(vec![delta(3, WALL + 1, 9)]), []);
    let digests = vec![digest(3, 9)];
    let (cluster, reply_to) = ("c".to_owned(), address(2));
    let syn = Message::Syn { cluster, reply_to, first: host(3), last: host(3), digests };
    assert_eq!(case.step(Event::Received(syn)), [], "not even asked for");
    assert_eq!(case.gossip.stats().quarantined, 1);
    assert_eq!(case.members(&[1, 2, 3]), []);
    assert!(!case.hear(vec![delta(3, WALL + 1, 9)]).is_empty(), "a member again");
    assert_eq!(case.members(&[1, 2]), [changed(3, Change::Forgotten)]);
    case.pass(61);
    assert!(!case.hear(vec![delta(3, WALL + 1, 9)]).is_empty(), "the quarantine has ended");
}

#[test]
fn silent_strangers_are_forgotten_members_are_not() {
    let mut case = Case::plain();
    case.hear(vec![delta(2, WALL, 1), delta(3, WALL, 1)]);
    case.pass(100);
    assert_eq!(case.gossip.peers().count(), 2, "without a word about members nobody is a stranger");
    case.members(&[1, 2]);
    case.pass(1);
    assert_eq!(case.gossip.peers().map(|peer| peer.endpoint.host).collect::<Vec<_>>(), [host(2)]);
}

#[test]
fn the_first_members_are_turned_to_at_once() {
    let mut case = Case::plain();
    let effects = case.members(&[1, 2, 9]);
    let told: Vec<SocketAddr> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Send { to, message: Message::Syn { digests, .. } } if digests[0].host == host(1) => *to,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [address(2), address(9)], "all but this node");
    assert_eq!(case.members(&[1, 2, 9, 10]), [], "later ones are met by rounds");
}

#[test]
fn members_that_are_not_known_are_asked() {
    let mut case = Case::plain();
    assert_eq!(case.pass(1), [], "alone");
    case.members(&[1, 9]);
    let effects = case.pass(1);
    assert!(matches!(&effects[..], [Effect::Send { to, .. }] if *to == address(9)), "{effects:?}");
}

#[test]
fn a_value_is_set_once() {
    let mut case = Case::plain();
    let set = |value: &'static str| Event::Set(vec![(Key::LOAD, Bytes::from_static(value.as_bytes()))]);
    case.step(set("1"));
    let version = case.gossip.own().version();
    case.step(set("1"));
    assert_eq!(case.gossip.own().version(), version, "the same value is no news");
    case.step(set("2"));
    assert!(case.gossip.own().version() > version);
    assert_eq!(case.gossip.own().text(Key::LOAD), Some("2"));
}

#[test]
fn a_silent_double_does_not_take_a_generation_back() {
    let mut case = Case::plain();
    let double = Delta { address: address(6), ..delta(1, WALL + 5, 3) };
    case.hear(vec![double]);
    let effects = case.hear(vec![delta(1, WALL + 9, 3)]);
    assert!(effects.contains(&Effect::Generation(WALL + 10)), "{effects:?}");
    let silence = Config::new("c", vec![]).double_silence_max;
    let effects = case.pass(silence.as_secs() + 2);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Generation(_))), "{effects:?}");
    assert_eq!(case.gossip.own().generation, WALL + 10);
}
