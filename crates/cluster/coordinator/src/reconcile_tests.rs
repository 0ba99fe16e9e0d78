//! Random replicas, each with a part of the updates: a read of all of them gives the same as a read of one with everything.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::FutureExt;
use mutation::merge::{Merger, Step};
use mutation::{DecoratedKey, PartitionRange, PartitionUpdate};
use proptest::prelude::*;
use replica::page::{PageBuilder, Progress};
use replica::{Form, Keys, Limits, PartitionResult, Partitions, ReadCommand, ReadPage};
use testkit::data::{table, update};

use replica::compare::fragments;

use super::{reconcile, to_live};

const NOW: u32 = 101;

fn command(partitions: Partitions, reversed: bool, limits: Limits) -> ReadCommand {
    ReadCommand {
        reversed,
        limits,
        form: Form::Reconcilable,
        ..ReadCommand::all_of(table(), partitions, NOW)
    }
}

/// The answer of a replica that holds `updates`.
fn answer(command: &ReadCommand, updates: &[PartitionUpdate]) -> ReadPage {
    let mut page = PageBuilder::new(command);
    if let Some(resume) = &command.resume {
        page.resume(resume.key.clone(), resume.rows_in_partition);
    }
    let mut merger = Merger::new(command.table.clone(), updates.len(), command.reversed);
    for (input, update) in updates.iter().enumerate() {
        if let Some(part) = asked_for(command, update) {
            fragments(&part, command.reversed, merger.buffer(input));
        }
        merger.end(input);
    }
    while let Step::Fragment(fragment) = merger.next() {
        if page.push(fragment) == Progress::Full {
            break;
        }
    }
    page.finish()
}

/// Runs a future that never waits: outside of an executor nothing yields.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it waits for nothing")
}

/// The part of an update that lies behind the command's place to resume from.
fn asked_for(command: &ReadCommand, update: &PartitionUpdate) -> Option<PartitionResult> {
    let inside = match &command.partitions {
        Partitions::Keys(keys) => keys.contains(&update.key),
        Partitions::Range(range) => range.contains(&update.key),
    };
    let mut part = PartitionResult::from_update(update.clone(), command.reversed);
    match &command.resume {
        _ if !inside => return None,
        Some(resume) if part.key < resume.key => return None,
        Some(resume) if part.key == resume.key => {
            let last = resume.clustering.as_ref()?;
            let slices = command.slices.after(last, command.reversed);
            part.rows.retain(|row| slices.contains(&row.clustering));
            part.range_tombstones = mutation::range::clip(&part.range_tombstones, &slices);
        }
        Some(_) | None => {}
    }
    Some(part)
}

/// Every page of a read of all replicas, one after the other; the replicas are repaired on the way.
fn read_all(mut command: ReadCommand, replicas: &mut [Vec<PartitionUpdate>]) -> Vec<PartitionResult> {
    let mut out: Vec<PartitionResult> = Vec::new();
    for _ in 0..200 {
        let pages = replicas.iter().map(|updates| answer(&command, updates)).collect();
        let reconciled = now(reconcile(&command, pages));
        for (replica, repairs) in replicas.iter_mut().zip(reconciled.repairs) {
            replica.extend(repairs);
        }
        for mut partition in reconciled.page.partitions {
            match out.last_mut() {
                Some(last) if last.key == partition.key => last.rows.append(&mut partition.rows),
                _ => out.push(partition),
            }
        }
        match reconciled.page.more {
            None => return out,
            more => command.resume = more,
        }
    }
    panic!("a read of a handful of rows never ends");
}

/// The client's view of a partition: keys of its rows, and the rows.
fn seen(partitions: &[PartitionResult]) -> Vec<(DecoratedKey, Option<mutation::Row>, Vec<mutation::Row>)> {
    partitions.iter().map(|p| (p.key.clone(), p.static_row.clone(), p.rows.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn several_replicas_read_as_one_with_everything(
        updates in prop::collection::vec((update(table()), prop::collection::btree_set(0usize..3, 1..=3)), 0..8),
        one in prop::option::of(0i32..2),
        reversed in any::<bool>(),
        rows in 1u64..5,
        per_partition in prop_oneof![Just(u64::MAX), 1u64..4],
    ) {
        let partitions = match one {
            None => Partitions::Range(PartitionRange::all()),
            Some(k) => Partitions::Keys(Keys::from_elem(
                DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes())), 1,
            )),
        };
        let limits = Limits { rows, rows_per_partition: per_partition, bytes: usize::MAX };
        let paged = command(partitions.clone(), reversed, limits);
        let mut replicas = vec![Vec::new(); 3];
        for (update, holders) in &updates {
            let holders: &BTreeSet<usize> = holders;
            holders.iter().for_each(|holder| replicas[*holder].push(update.clone()));
        }
        let everything: Vec<PartitionUpdate> = updates.into_iter().map(|(update, _)| update).collect();

        let whole = ReadCommand {
            form: Form::Live,
            limits: Limits { rows_per_partition: per_partition, ..Limits::NONE },
            ..paged.clone()
        };
        let truth = answer(&whole, &everything).partitions;
        prop_assert_eq!(seen(&read_all(paged.clone(), &mut replicas)), seen(&truth));

        // Each repaired replica now says the same alone, as far as the limits let anyone see.
        if per_partition == u64::MAX {
            let full = ReadCommand { form: Form::Full, limits: Limits::NONE, ..paged };
            let expected = answer(&full, &everything);
            for replica in &replicas {
                prop_assert_eq!(&answer(&full, replica).partitions, &expected.partitions);
            }
            prop_assert_eq!(seen(&now(to_live(&full, expected)).partitions), seen(&truth));
        }
    }
}
