//! `system_views.repairs`: the repairs that this node leads or led since its start.

use coordinator::ClusterView;
use topology::HostId;
use types::uuid;

use crate::rows::{Datum, RowBuilder};

/// How far a repair is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairJobState {
    /// Under way.
    Running,
    /// It has ended, and everything was repaired.
    Done,
    /// It has ended, and something was not repaired, for this reason.
    Failed(String),
}

/// One repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairJobFacts {
    /// Its number on this node; 0 for automatic repair.
    pub number: u64,
    /// Keyspace.
    pub keyspace: String,
    /// Tables.
    pub tables: Vec<String>,
    /// The other nodes that take part.
    pub peers: Vec<HostId>,
    /// Whether everything is compared.
    pub full: bool,
    /// Whether only the ranges of which the node is the first replica are.
    pub primary: bool,
    /// The datacenters of the replicas; empty for all.
    pub datacenters: Vec<String>,
    /// The requested range of tokens, if it is not all.
    pub range: Option<String>,
    /// When it began, microseconds since the epoch.
    pub begun_micros: i64,
    /// For how long it has run, microseconds.
    pub elapsed_micros: i64,
    /// How far it is.
    pub status: RepairJobState,
}

/// The time UUID of a repair: the time at which it began, and its number in place of the sequence of the clock.
fn id(job: &RepairJobFacts, own: HostId) -> [u8; 16] {
    let [a, b, c, d, e, f, ..] = own.0;
    // No address of a network card (RFC 9562, section 6.10).
    let node = u64::from_be_bytes([0, 0, a | 1, b, c, d, e, f]);
    uuid::time_uuid(job.begun_micros.saturating_mul(10), uuid::clock_and_node(job.number as u16, node))
}

/// An address with its port, as Cassandra names nodes.
fn address(view: &ClusterView, host: HostId) -> Option<String> {
    let node = view.node(view.index_of(host)?);
    Some(format!("/{}:{}", node.internode.ip(), node.internode.port()))
}

pub(crate) async fn fill(rows: &mut RowBuilder, jobs: &[RepairJobFacts], view: &ClusterView) {
    let own = view.node(view.own()).host;
    rows.each(jobs, |rows, job| row(rows, job, own, view)).await;
}

fn row(rows: &mut RowBuilder, job: &RepairJobFacts, own: HostId, view: &ClusterView) {
    let (begun, now) = (job.begun_micros / 1_000, (job.begun_micros + job.elapsed_micros) / 1_000);
    let ended = |is_so: bool| if is_so { Datum::Bigint(now) } else { Datum::Null };
    let (is_done, failure) = match &job.status {
        RepairJobState::Running => (false, None),
        RepairJobState::Done => (true, None),
        RepairJobState::Failed(why) => (false, Some(why.as_str())),
    };
    let status = match (is_done, failure) {
        (true, _) => "success",
        (false, Some(_)) => "failure",
        (false, None) => "repair_start",
    };
    rows.row([
        ("id", id(job, own).into()),
        ("command_id", i32::try_from(job.number).unwrap_or(i32::MAX).into()),
        ("completed", (job.status != RepairJobState::Running).into()),
        ("duration_millis", (job.elapsed_micros / 1_000).into()),
        ("failure_cause", failure.into()),
        ("keyspace_name", job.keyspace.as_str().into()),
        ("last_updated_at", now.into()),
        ("options_column_families", Datum::texts(&job.tables)),
        ("options_data_centers", Datum::texts(&job.datacenters)),
        ("options_incremental", (!job.full).into()),
        ("options_primary_range", job.primary.into()),
        ("options_ranges", Datum::texts(&job.range)),
        ("options_subrange_repair", job.range.is_some().into()),
        ("participants", Datum::list(job.peers.iter().filter_map(|host| address(view, *host)))),
        ("state_failure_timestamp", ended(failure.is_some())),
        ("state_init_timestamp", begun.into()),
        ("state_repair_start_timestamp", begun.into()),
        ("state_start_timestamp", begun.into()),
        ("state_success_timestamp", ended(is_done)),
        ("status", status.into()),
        ("table_names", Datum::list(&job.tables)),
        ("type", if job.full { "full" } else { "incremental" }.into()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{cell, cluster, now, rows};

    #[test]
    fn a_repair_has_one_id_while_it_runs_and_afterwards() {
        let view = cluster(&[("dc1", &[1]), ("dc1", &[2])]);
        let running = RepairJobFacts {
            number: 3,
            keyspace: "ks".to_owned(),
            tables: vec!["b".to_owned(), "a".to_owned()],
            peers: vec![HostId([2; 16]), HostId([9; 16])],
            full: true,
            primary: false,
            datacenters: Vec::new(),
            range: Some("(1,2]".to_owned()),
            begun_micros: 1_764_000_000_123_456,
            elapsed_micros: 2_500_000,
            status: RepairJobState::Running,
        };
        let failed = RepairJobFacts {
            status: RepairJobState::Failed("a node is down".to_owned()),
            elapsed_micros: 4_000_000,
            ..running.clone()
        };
        let own = HostId([1; 16]);
        assert_eq!(id(&running, own), id(&failed, own));
        assert_ne!(id(&running, own), id(&RepairJobFacts { number: 4, ..running.clone() }, own));
        assert_eq!(id(&running, own)[6] >> 4, 1, "the version of a time UUID");
        let shown = |job| rows("system_views.repairs", |rows| now(fill(rows, &[job], &view))).remove(0);
        let (running, failed) = (shown(running), shown(failed));
        assert_eq!(cell(&running, "status"), Some(&b"repair_start"[..]));
        assert_eq!(
            (cell(&running, "completed"), cell(&failed, "completed")),
            (Some(&[0][..]), Some(&[1][..]))
        );
        assert_eq!(cell(&running, "state_failure_timestamp"), None);
        assert_eq!(cell(&failed, "state_failure_timestamp"), Some(&1_764_000_004_123_i64.to_be_bytes()[..]));
        assert_eq!(cell(&failed, "failure_cause"), Some(&b"a node is down"[..]));
        let participants = cell(&failed, "participants").expect("a list");
        assert!(participants.ends_with(b"/10.0.0.2:7000") && participants[3] == 1, "{participants:?}");
    }
}
