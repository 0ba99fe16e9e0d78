//! The events of a schema change that clients get.

use wire::client::AnswerBody;
use wire::{Consistency, ErrorKind, WriteType};

use crate::golden::{Node, show};
use crate::memory::Memory;

/// A driver that were told OK would use the table at a node that does not know it yet.
#[test]
fn a_change_that_live_nodes_do_not_use_in_time_is_a_write_timeout() {
    let node = Node::of(Memory::new().with_behind(1));
    let answer = node.request(|request| {
        let text =
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        request.query(text, &Node::values(&[]));
    });
    let AnswerBody::Error(error) = &answer.body else { panic!("{}", show(&answer)) };
    let ErrorKind::WriteTimeout { consistency, received, block_for, write_type, .. } = &error.kind else {
        panic!("{}", show(&answer));
    };
    assert_eq!((*consistency, *received, *block_for), (Consistency::All, 2, 3));
    assert_eq!(*write_type, WriteType::Simple, "which no driver tries again by itself");
}
