//! Large partitions, rows and cells: noticed at a flush and at a compaction, known after a restart, gone with the SSTable.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Bounds, Canaries, Engine, EngineConfig, EngineSettings, LargeKind, LargeRecord, LargeThresholds, Origin,
    SyncMode, Write,
};
use rt::Rt;
use schema::TableId;

use crate::model::{Change, Op, key, schema, updates};
use crate::world::{Plan, config, on_a_node};

const NOW: u32 = 1_700_000_000;

fn settings() -> EngineConfig {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 0, sstables: true, ops_max: 0 };
    let large = LargeThresholds {
        partition_bytes: 1 << 30,
        partition_rows: 4,
        row_bytes: 2_500,
        cell_bytes: 3_500,
        elements: 1_000,
        ..LargeThresholds::DEFAULT
    };
    EngineConfig {
        settings: EngineSettings { large, ..EngineSettings::default() },
        auto_compaction: false,
        memtable_bytes_max: 8 << 20,
        ..config(&plan)
    }
}

fn shown(engine: &Engine) -> Vec<LargeRecord> {
    let large = engine.stats().large;
    assert!(large.iter().all(|sstable| sstable.name.ends_with("-big-Data.db")), "{large:?}");
    large.iter().flat_map(|sstable| sstable.large.records().to_vec()).collect()
}

async fn write(engine: &Engine, changes: Vec<Change>, large: bool) {
    let table = schema(0).table("ks", "t1").unwrap().clone();
    for update in updates(&table, &Op { number: 1, changes, large }, NOW) {
        engine.apply(Write::one(Origin::Client, update)).await.unwrap();
    }
}

async fn work(rt: Rt) {
    let schema = schema(0);
    let id = schema.table("ks", "t1").unwrap().id;
    let engine = Engine::open(rt.clone(), settings(), schema.clone()).await.unwrap();
    // Five rows, one of them deleted, and a range; none of them is large.
    let cell = |pk, ck, ts| Change::Cell { pk, ck, b: false, ts };
    write(&engine, (0..4).map(|ck| cell(1, ck, 10)).collect(), false).await;
    write(&engine, vec![Change::Row { pk: 1, ck: 9, ts: 11 }], false).await;
    write(&engine, vec![Change::Range { pk: 1, from: 20, upto: 30, ts: 11 }], false).await;
    // A row of 3,005 bytes, whose cell is not large, and one whose cell is: of 4,000 bytes.
    write(&engine, vec![cell(2, 7, 5)], true).await;
    write(&engine, vec![cell(3, 8, 1_000)], true).await;
    // As many rows as are not yet too many.
    write(&engine, (0..4).map(|ck| cell(4, ck, 10)).collect(), false).await;
    assert_eq!(shown(&engine), [], "nothing is written yet");
    let before = engine.table_size(id);
    assert_eq!(before.rows, 11, "the deleted one counts until it is purged");
    assert_eq!(before.bytes, before.partition_bytes_max, "a memtable bounds each of its partitions");
    engine.flush(id).await.unwrap();
    let after = engine.table_size(id);
    assert_eq!(after.rows, 11);
    // The largest partition has a cell of 4,000 bytes, and the others have 3,000 and less.
    assert!((4_000..6_000).contains(&after.partition_bytes_max), "{after:?}");
    assert!(after.bytes > 7_000 && after.bytes < before.bytes, "{before:?} {after:?}");
    write(&engine, vec![cell(3, 8, 1_001)], true).await;
    let both = engine.table_size(id);
    assert_eq!(both.rows, 12, "a row in a memtable and in an SSTable counts twice");
    assert!(both.partition_bytes_max > after.partition_bytes_max + 3_000, "{both:?}");
    assert_eq!(engine.table_size(TableId([0xff; 16])).rows, 0);

    let found = shown(&engine);
    let keys: Vec<&str> = found.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["1", "3", "2", "3"]);
    assert!(found.iter().all(|record| (rt.wall_micros() - record.written_micros) < 60_000_000));
    assert_eq!(found[0].token, key(1).token);
    assert_eq!(found[0].kind, LargeKind::Partition { rows: 5, dead_rows: 1, range_tombstones: 2 });
    let row = |clustering: &str| LargeKind::Row { clustering: clustering.to_owned() };
    assert_eq!([&found[1].kind, &found[2].kind], [&row("8"), &row("7")]);
    assert!((3_005..3_100).contains(&found[2].bytes), "{found:?}");
    let large_cell = LargeKind::Cell { clustering: "8".to_owned(), column: "a".to_owned(), elements: 0 };
    assert_eq!((&found[3].kind, found[3].bytes), (&large_cell, 4_000));

    engine.stop().await.unwrap();
    let engine = Engine::open(rt.clone(), settings(), schema).await.unwrap();
    assert_eq!(shown(&engine), found, "the records are part of the SSTable");

    // The rows are removed, and with the SSTables their records.
    write(&engine, [1, 3].map(|pk| Change::Partition { pk, ts: 2_000 }).into(), false).await;
    engine.flush(id).await.unwrap();
    rt.sleep(Duration::from_secs(2)).await;
    engine.compact(id).await.unwrap();
    let kinds: Vec<LargeKind> = shown(&engine).into_iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [row("7")]);
}

#[test]
fn large_data_is_noticed_and_goes_with_its_sstable() {
    on_a_node(5, work);
}

/// The lines of the log that guardrails write.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Lines {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" && text.contains("uardrail") {
            self.0.lock().unwrap().push(text);
        }
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

async fn guarded(rt: Rt) {
    let schema = schema(0);
    let id = schema.table("ks", "t1").unwrap().id;
    let mut config = settings();
    config.settings.large.guarded.bytes = Bounds { warn: Some(2_500), fail: Some(3_500) };
    config.settings.large.guarded.tombstones = Bounds { warn: Some(2), fail: None };
    let engine = Engine::open(rt.clone(), config, schema.clone()).await.unwrap();
    let cell = |pk, ck, ts| Change::Cell { pk, ck, b: false, ts };
    // A partition of 3,005 bytes, one of 4,000, one with two tombstones and one with three.
    write(&engine, vec![cell(2, 7, 5)], true).await;
    write(&engine, vec![cell(3, 8, 1_000)], true).await;
    for (pk, rows) in [(4, 2), (5, 3)] {
        write(&engine, (0..rows).map(|ck| Change::Row { pk, ck, ts: 11 }).collect(), false).await;
    }
    engine.flush(id).await.unwrap();
    engine.stop().await.unwrap();
}

#[test]
fn partitions_beyond_the_bounds_of_guardrails_are_named_in_the_log() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || on_a_node(1, guarded));
    let mut lines = lines.0.lock().unwrap().clone();
    lines.sort();
    let expected = [
        (
            "partition_size violated: Partition ks.t1:2 on sstable ",
            "exceeds the warning threshold of 2500. Too large",
        ),
        (
            "partition_size violated: Partition ks.t1:3 on sstable ",
            "exceeds the failure threshold of 3500. Too large",
        ),
        (
            "partition_tombstones violated: Partition ks.t1:5 on sstable ",
            " has 3 tombstones, this exceeds the warning threshold of 2. Partitions with too many tombstones",
        ),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (begins, contains)) in lines.iter().zip(expected) {
        let rest = line.strip_prefix("Guardrail ").unwrap_or_default();
        assert!(rest.starts_with(begins) && rest.contains(contains), "{line}");
    }
}
