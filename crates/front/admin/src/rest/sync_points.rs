//! Sync points of hints, with ScyllaDB's calls: a moment, and the nodes whose hints of before are to be delivered. The id holds both, so that the
//! node keeps nothing for them.

use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use topology::HostId;

use crate::names::{self, bad, given, mandatory};
use crate::{Answer, Call, Node, uuid, uuid_of};

/// Between two looks at the stored hints.
const PAUSE: Duration = Duration::from_millis(100);

/// A moment and the nodes whose hints are meant, or all.
struct SyncPoint {
    at_micros: i64,
    hosts: Vec<HostId>,
}

impl SyncPoint {
    /// `NODE.MICROSECONDS.HOST,HOST`: with the node whose hints they are, and no host for all.
    fn id(&self, node: &Rc<dyn Node>) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(|host| uuid(&host.0)).collect();
        format!("{}.{}.{}", uuid(&node.info().host_id), self.at_micros, hosts.join(","))
    }

    fn parse(node: &Rc<dyn Node>, id: &str) -> Result<Self, Answer> {
        let wrong = || bad(format!("{id} is the id of no sync point"));
        let mut parts = id.split('.');
        let (Some(own), Some(micros), Some(hosts), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        if uuid_of(own).ok_or_else(wrong)? != node.info().host_id {
            return Err(bad(format!("the sync point was made on node {own}: ask that node")));
        }
        let host = |text| uuid_of(text).map(HostId).ok_or_else(wrong);
        let hosts = names::list(hosts).into_iter().map(host).collect::<Result<_, _>>()?;
        Ok(Self { at_micros: micros.parse().map_err(|_| wrong())?, hosts })
    }

    /// Whether no hint of before is stored any more. The time of the oldest hint may be that of one that was delivered while others of its file
    /// were not.
    async fn is_reached(&self, node: &Rc<dyn Node>) -> bool {
        let stored = node.pending_hints().await;
        let is_meant = |host: &HostId| self.hosts.is_empty() || self.hosts.contains(host);
        let mut of_before =
            stored.iter().filter(|(_, hints)| hints.count > 0 && hints.oldest_micros <= self.at_micros);
        !of_before.any(|(host, _)| is_meant(host))
    }
}

/// Makes a sync point of now: of the nodes `target_hosts`, or of all.
pub(super) fn make(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let view = node.view();
    let find = |name| {
        let member = names::member(&view, name).map(|member| member.host);
        member.ok_or_else(|| bad(format!("target_hosts: there is no node {name} in the cluster")))
    };
    let hosts = names::list(given(call, "target_hosts").unwrap_or_default());
    let hosts = hosts.into_iter().map(find).collect::<Result<_, _>>()?;
    Ok(Answer::json(&json!(SyncPoint { at_micros: node.now_micros(), hosts }.id(node))))
}

/// `DONE` when the hints of a sync point were delivered, which is awaited for `timeout` seconds: not at all when it is missing, and for ever when it is
/// below 0. `IN_PROGRESS` else.
pub(super) async fn status(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let point = SyncPoint::parse(node, mandatory(call, "id")?)?;
    let wrong = |text| bad(format!("timeout is a number of seconds, not {text}"));
    let timeout =
        given(call, "timeout").map(|text| text.parse::<i64>().map_err(|_| wrong(text))).transpose()?;
    let limit = match timeout.unwrap_or(0) {
        ..0 => Duration::MAX,
        seconds => Duration::from_secs(seconds.unsigned_abs()),
    };
    let mut waited = Duration::ZERO;
    while !point.is_reached(node).await {
        if waited >= limit {
            return Ok(Answer::json(&json!("IN_PROGRESS")));
        }
        node.sleep(PAUSE).await;
        waited += PAUSE;
    }
    Ok(Answer::json(&json!("DONE")))
}
