//! Selection of the nodes to gossip with in a round.
//!
//! A live node always, so that news spreads; one that is down now and then, so that it is noticed when it is back; a seed
//! with the chance that any node has, or always when nobody is alive, so that the halves of a cluster find each other.

use std::net::SocketAddr;

/// The nodes of a round; `below(n)` is a random number below n. No address comes twice.
pub(crate) fn targets(
    live: &[SocketAddr],
    down: &[SocketAddr],
    seeds: &[SocketAddr],
    below: &mut dyn FnMut(u64) -> u64,
) -> Vec<SocketAddr> {
    let mut chosen = Vec::new();
    #[allow(clippy::indexing_slicing, reason = "a number below the length")]
    let mut choose = |from: &[SocketAddr], below: &mut dyn FnMut(u64) -> u64| {
        let address = from[below(from.len() as u64) as usize];
        if !chosen.contains(&address) {
            chosen.push(address);
        }
        address
    };
    let mut seed_told = false;
    if !live.is_empty() {
        seed_told = seeds.contains(&choose(live, below));
    }
    if !down.is_empty() && below(live.len() as u64 + 1) < down.len() as u64 {
        choose(down, below);
    }
    if !seeds.is_empty() && (!seed_told || live.len() < seeds.len()) {
        let others = (live.len() + down.len()) as u64;
        if live.is_empty() || below(others) < seeds.len() as u64 {
            choose(seeds, below);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(ids: std::ops::Range<u16>) -> Vec<SocketAddr> {
        ids.map(|id| SocketAddr::from(([10, 0, 0, 1], id))).collect()
    }

    /// How often each of `live`, `down` and `seeds` is chosen in a thousand rounds.
    fn counts(live: &[SocketAddr], down: &[SocketAddr], seeds: &[SocketAddr]) -> [usize; 3] {
        let mut random = testkit::fuzz::Random(7);
        let mut counts = [0; 3];
        for _ in 0..1_000 {
            let chosen = targets(live, down, seeds, &mut |bound| random.next() % bound);
            for (count, group) in counts.iter_mut().zip([live, down, seeds]) {
                *count += chosen.iter().filter(|address| group.contains(address)).count();
            }
        }
        counts
    }

    #[test]
    fn one_live_node_a_round_and_others_by_chance() {
        let (live, down, seeds) = (addresses(0..9), addresses(10..12), addresses(20..21));
        assert_eq!(counts(&[], &[], &[]), [0, 0, 0], "a node alone has nobody to talk to");
        assert_eq!(counts(&[], &[], &seeds), [0, 0, 1_000]);
        assert_eq!(counts(&[], &down, &seeds), [0, 1_000, 1_000]);
        let [to_live, to_down, to_seeds] = counts(&live, &down, &seeds);
        assert_eq!(to_live, 1_000);
        assert!((150..250).contains(&to_down), "two down of nine and one: {to_down}");
        assert!((60..130).contains(&to_seeds), "one seed beside eleven: {to_seeds}");
        // A seed among the live nodes that were sent to is enough.
        let [to_live, ..] = counts(&live, &[], &live);
        assert_eq!(to_live, 1_000);
        let [to_live, _, to_seeds] = counts(&live[..1], &[], &live[..2]);
        assert_eq!(to_live, 1_000);
        assert!(to_seeds > 1_400, "with fewer live nodes than seeds, a seed besides: {to_seeds}");
    }
}
