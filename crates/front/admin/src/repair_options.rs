//! The options of a repair over REST: ScyllaDB's, and `full` and `since`. One that would have no effect is refused unless ScyllaDB ignores it,
//! too. Pure.

use coordinator::ClusterView;
use repair::Wanted;
use repair::plan::{Ranges, RepairOptions};
use topology::{HostId, TokenRange};

use crate::names::{bad, given, list, member};
use crate::{Answer, Call};

/// Every option. ScyllaDB ignores the last three.
const OPTIONS: &[&str] = &[
    "primaryRange",
    "parallelism",
    "incremental",
    "ranges",
    "columnFamilies",
    "dataCenters",
    "hosts",
    "ignore_nodes",
    "trace",
    "startToken",
    "endToken",
    "ranges_parallelism",
    "small_table_optimization",
    "full",
    "since",
    "jobThreads",
    "pullRepair",
    "ignoreUnreplicatedKeyspaces",
];

/// The repair that a request asks for.
///
/// # Errors
/// 400 for an option or a value that is not understood, or cannot be met.
pub(crate) fn wanted(view: &ClusterView, call: &Call, keyspace: &str) -> Result<Wanted, Answer> {
    if let Some((other, _)) = call.query.iter().find(|(name, _)| !OPTIONS.contains(&name.as_str())) {
        return Err(bad(format!("option {other} is not supported")));
    }
    parallelism(call)?;
    integer(call, "jobThreads")?;
    if truth(call, "trace")?.unwrap_or(false) {
        return Err(bad("unsupported trace"));
    }
    if truth(call, "small_table_optimization")?.unwrap_or(false) {
        return Err(bad("unsupported small_table_optimization: a node repairs the ranges that it has"));
    }
    let since = integer(call, "since")?.unwrap_or(0);
    let at_once = integer(call, "ranges_parallelism")?.filter(|number| *number > 0);
    let names = |name: &str| -> Vec<String> {
        list(call.parameter(name).unwrap_or_default()).into_iter().map(str::to_owned).collect()
    };
    let (ranges, tokens) = ranges(call)?;
    Ok(Wanted {
        keyspace: keyspace.to_owned(),
        tables: names("columnFamilies"),
        options: RepairOptions {
            ranges,
            tokens,
            datacenters: names("dataCenters"),
            hosts: hosts(view, call, "hosts")?,
            ignored: hosts(view, call, "ignore_nodes")?,
            ..RepairOptions::all()
        },
        unless_since: u32::try_from(since)
            .map_err(|_| bad(format!("since is a time in seconds, not {since}")))?,
        // Repairs are incremental unless that is refused.
        full: truth(call, "full")?.unwrap_or(false) || !truth(call, "incremental")?.unwrap_or(true),
        units_at_once: at_once.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX),
    })
}

/// Checks `parallelism`. ScyllaDB's own nodetool sends a word, which ScyllaDB reads as the number 0; of numbers it takes 0 and 1.
fn parallelism(call: &Call) -> Result<(), Answer> {
    if let Some("parallel" | "sequential" | "dc_parallel") = given(call, "parallelism") {
        return Ok(());
    }
    match integer(call, "parallelism")? {
        None | Some(0 | 1) => Ok(()),
        Some(other) => Err(bad(format!("unsupported repair parallelism: {other}"))),
    }
}

/// Which of the node's ranges, and the tokens in them. Ranges that are named count instead of the primary ones, as in ScyllaDB.
fn ranges(call: &Call) -> Result<(Ranges, Vec<TokenRange>), Answer> {
    let primary = truth(call, "primaryRange")?.unwrap_or(false);
    let ends = (token(call, "startToken")?, token(call, "endToken")?);
    match (given(call, "ranges"), ends) {
        (Some(_), (Some(_), _) | (_, Some(_))) => Err(bad("name either ranges, or startToken and endToken")),
        (Some(text), (None, None)) => {
            let all: Result<Vec<TokenRange>, Answer> = list(text).into_iter().map(range).collect();
            Ok((Ranges::All, all?))
        }
        (None, (None, None)) => Ok((if primary { Ranges::Primary } else { Ranges::All }, Vec::new())),
        (None, _) if primary => Err(bad("name either the primary range or tokens")),
        (None, (after, upto)) => {
            let range = TokenRange { after: after.unwrap_or(i64::MIN), upto: upto.unwrap_or(i64::MAX) };
            Ok((Ranges::All, vec![range]))
        }
    }
}

/// `start:end`, either of which may be left out.
fn range(text: &str) -> Result<TokenRange, Answer> {
    let parts: Vec<&str> = text.split(':').collect();
    let [after, upto] = parts[..] else {
        return Err(bad(format!("range must have two components separated by ':', got '{text}'")));
    };
    let token = |part: &str, open: i64| match part {
        "" => Ok(open),
        part => part.parse().map_err(|_| bad(format!("Invalid token {part} in the range {text}"))),
    };
    Ok(TokenRange { after: token(after, i64::MIN)?, upto: token(upto, i64::MAX)? })
}

fn token(call: &Call, name: &str) -> Result<Option<i64>, Answer> {
    let Some(text) = given(call, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| bad(format!("{name} is a token, not {text}")))
}

fn integer(call: &Call, name: &str) -> Result<Option<i64>, Answer> {
    let Some(text) = given(call, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| bad(format!("cannot parse integer: '{text}' ({name})")))
}

fn truth(call: &Call, name: &str) -> Result<Option<bool>, Answer> {
    match given(call, name).map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(bad(format!("{name} is true or false, not {other}"))),
    }
}

/// The members that a list names by address or host id.
fn hosts(view: &ClusterView, call: &Call, name: &str) -> Result<Vec<HostId>, Answer> {
    let find = |host: &str| {
        let unknown = || bad(format!("Unknown host specified: {host}"));
        member(view, host).map(|node| node.host).ok_or_else(unknown)
    };
    list(call.parameter(name).unwrap_or_default()).into_iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use coordinator::{Phase, ViewNode};
    use topology::Location;

    use super::*;

    fn view() -> ClusterView {
        let node = |number: u8| ViewNode {
            host: HostId([number; 16]),
            native: SocketAddr::from(([10, 0, 0, number], 9042)),
            internode: SocketAddr::from(([10, 1, 0, number], 7000)),
            location: Location::new("dc1", "r1"),
            shards: 1,
            tokens: vec![i64::from(number)],
            alive: true,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
            phase: Phase::Normal,
        };
        ClusterView::new(HostId([1; 16]), vec![node(1), node(2)]).expect("a view")
    }

    fn asked(query: &str) -> Result<Wanted, String> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let call = Call { method: "POST".to_owned(), path: String::new(), query };
        wanted(&view(), &call, "ks").map_err(|answer| {
            assert_eq!(answer.status, 400);
            answer.body
        })
    }

    #[test]
    fn options_have_effect() {
        let ranges = |query: &str| {
            let wanted = asked(query).expect("they are understood");
            let tokens = wanted.options.tokens.iter().map(|range| (range.after, range.upto));
            (wanted.options.ranges, tokens.collect::<Vec<_>>())
        };
        assert_eq!(ranges(""), (Ranges::All, vec![]));
        assert_eq!(ranges("primaryRange=True&jobThreads=2"), (Ranges::Primary, vec![]));
        assert_eq!(ranges("ranges=1:2,-3:4"), (Ranges::All, vec![(1, 2), (-3, 4)]));
        assert_eq!(ranges("ranges=:5&primaryRange=true"), (Ranges::All, vec![(i64::MIN, 5)]));
        assert_eq!(ranges("startToken=7"), (Ranges::All, vec![(7, i64::MAX)]));
        let wanted = asked(
            "hosts=10.0.0.1,02020202-0202-0202-0202-020202020202&columnFamilies=a,b&ranges_parallelism=2",
        );
        let wanted = wanted.expect("it is understood");
        assert_eq!(wanted.options.hosts, [HostId([1; 16]), HostId([2; 16])]);
        assert_eq!((wanted.tables.len(), wanted.units_at_once, wanted.full), (2, 2, false));
        for word in ["parallel", "sequential", "dc_parallel", "1"] {
            asked(&format!("parallelism={word}")).expect(word);
        }
        let wanted = asked("ignore_nodes=10.1.0.2&incremental=false").expect("it is understood");
        assert_eq!((wanted.options.ignored, wanted.full), (vec![HostId([2; 16])], true));
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        for (query, why) in [
            ("bogus=1", "option bogus is not supported"),
            ("ranges=5", "range must have two components separated by ':', got '5'"),
            ("ranges=a:5", "Invalid token a in the range a:5"),
            ("ranges=1:2&startToken=1", "name either ranges, or startToken and endToken"),
            ("primaryRange=bogus", "primaryRange is true or false, not bogus"),
            ("primaryRange=true&endToken=9", "name either the primary range or tokens"),
            ("parallelism=2", "unsupported repair parallelism: 2"),
            ("parallelism=bogus", "cannot parse integer: 'bogus' (parallelism)"),
            ("jobThreads=abc", "cannot parse integer: 'abc' (jobThreads)"),
            ("trace=true", "unsupported trace"),
            ("small_table_optimization=true", "unsupported small_table_optimization"),
            ("hosts=10.9.9.9", "Unknown host specified: 10.9.9.9"),
            ("since=-1", "since is a time in seconds, not -1"),
        ] {
            let said = asked(query).expect_err(query);
            assert!(said.contains(why), "{query}: {said}");
        }
    }
}
