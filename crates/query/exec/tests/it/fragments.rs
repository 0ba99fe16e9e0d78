//! `SELECT … FROM MUTATION_FRAGMENTS(t)`: results (`testdata/fragments.txt`), pages, and the roles that may read.

use bytes::Bytes;
use exec::ExecLimits;
use wire::client::{AnswerBody, Parameters, ResultBody};

use crate::golden::{Node, check, show};
use crate::memory::Memory;
use crate::paging::paged_within;

#[test]
fn fragments() {
    check("fragments.txt");
}

const MADE: [&str; 6] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int, c int, s int static, v text, PRIMARY KEY (k, c))",
    "INSERT INTO ks.t (k, s) VALUES (1, 1)",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'a')",
    "DELETE FROM ks.t WHERE k = 1 AND c > 1 AND c < 5",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 3, 'b')",
];

#[test]
fn pages_of_every_size_have_every_fragment_once() {
    let cluster = Memory::new();
    let node = Node::of(cluster.clone());
    MADE.iter().for_each(|text| node.run(text));
    node.run("INSERT INTO ks.t (k, c, v) VALUES (2, 2, 'c')");
    cluster.is_cached.set(true);
    let of_pages = |text: &str, size| paged_within(&node, text, size, 100);
    for text in [
        "SELECT k, mutation_source, partition_region, c, position_weight FROM MUTATION_FRAGMENTS(ks.t)",
        "SELECT k, mutation_source, partition_region, c FROM MUTATION_FRAGMENTS(ks.t) WHERE k IN (2, 1)",
        "SELECT k, mutation_source, c FROM MUTATION_FRAGMENTS(ks.t) WHERE k = 1 AND mutation_source = 'row-cache'",
        "SELECT k, mutation_source, c FROM MUTATION_FRAGMENTS(ks.t) WHERE partition_region = 2 ALLOW FILTERING",
        "SELECT k, mutation_source FROM MUTATION_FRAGMENTS(ks.t) PER PARTITION LIMIT 5",
    ] {
        let whole = of_pages(text, 1000);
        assert!(whole.len() >= 5, "{text}: {whole:?}");
        for size in 1..8 {
            assert_eq!(of_pages(text, size), whole, "{text} in pages of {size}");
        }
    }
}

#[test]
fn another_node_and_another_statement_do_not_go_on() {
    let cluster = Memory::with_nodes(&["datacenter1", "datacenter1"]);
    let node = Node::of(cluster.clone());
    MADE.iter().for_each(|text| node.run(text));
    let ask = |node: &Node, text: &str, state: Option<Bytes>| {
        node.request(|request| {
            let parameters = Node::values(&[]);
            let parameters = Parameters { page_size: Some(2), paging_state: state.as_deref(), ..parameters };
            request.query(text, &parameters);
        })
    };
    let text = "SELECT mutation_fragment_kind FROM MUTATION_FRAGMENTS(ks.t) WHERE k = 1";
    let first = ask(&node, text, None);
    let AnswerBody::Result(ResultBody::Rows(rows)) = first.body else { panic!("{}", show(&first)) };
    let state = rows.paging_state;
    assert!(state.is_some());
    let next = show(&ask(&node, text, state.clone()));
    assert_eq!(next, "| mutation_fragment_kind text\n  'clustering row'\n  'range tombstone change'\nmore");
    let refused = show(&ask(&node, "SELECT k FROM ks.t WHERE k = 1", state.clone()));
    assert_eq!(refused, "! Protocol: Invalid value for the paging state: it belongs to another table");
    let other = Node::of(cluster.on_the_other_node());
    let refused = show(&ask(&other, text, state));
    assert_eq!(
        refused,
        "! Invalid: The pages of one SELECT FROM MUTATION_FRAGMENTS() have to be asked of the same node: each node reads its \
         own data"
    );
}

#[test]
fn a_role_needs_select_on_the_table_and_unmask_where_columns_have_masks() {
    let node =
        Node::with_superuser(ExecLimits { data_masking: true, bcrypt_cost: 4, ..ExecLimits::default() });
    MADE.iter().for_each(|text| node.run(text));
    node.run("CREATE ROLE ann");
    let text = "SELECT value FROM MUTATION_FRAGMENTS(ks.t) WHERE k = 1 AND mutation_source = 'memtable:0' AND \
                partition_region = 2 AND c = 1 AND position_weight = 0";
    let seen = || {
        node.log_in("ann");
        let seen = show(&node.query(text));
        node.log_in("cassandra");
        seen
    };
    let refused = "! Unauthorized: User ann has no SELECT permission on <table ks.t> or any of its parents";
    assert_eq!(seen(), refused);
    node.run("GRANT SELECT ON ks.t TO ann");
    assert_eq!(seen(), "| value text\n  '{\"v\":\"a\"}'");
    node.run("ALTER TABLE ks.t ALTER v MASKED WITH DEFAULT");
    let masked =
        "! Unauthorized: User ann has no UNMASK permission on table ks.t, cannot read its mutation fragments";
    assert_eq!(seen(), masked);
    node.run("GRANT UNMASK ON ks.t TO ann");
    assert_eq!(seen(), "| value text\n  '{\"v\":\"a\"}'");
}
