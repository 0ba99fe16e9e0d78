//! A reader over a log in memory: random writes, generations and sizes, with a resume after each change.

use proptest::prelude::*;
use types::uuid;

use super::*;

const STREAMS: u8 = 5;
const SECOND: i64 = 1_000_000;

/// A log in memory: its rows with their texts as a node would send them.
struct Memory {
    now: i64,
    ttl: Option<i64>,
    generations: Vec<i64>,
    rows: Vec<(Time, [u8; 16], u32, String)>,
    /// Queries for rows.
    reads: usize,
    most_rows: usize,
}

fn stream(generation: usize, number: u8) -> [u8; 16] {
    let mut id = [number; 16];
    id[0] = u8::try_from(generation).unwrap();
    id
}

impl Memory {
    fn new(generations: &[i64]) -> Self {
        let generations = generations.to_vec();
        Self { now: 100 * SECOND, ttl: None, generations, rows: Vec::new(), reads: 0, most_rows: 0 }
    }

    /// A write of `changes` rows at a time.
    fn write(&mut self, micros: i64, order: u64, number: u8, changes: u32, padding: usize) {
        let generation = self.generations.partition_point(|start| start * 1_000 <= micros).max(1) - 1;
        let stream = stream(generation, number);
        let time = Time { order, ..Time::of_micros(micros) };
        let hex: String = stream.iter().map(|byte| format!("{byte:02x}")).collect();
        for at in 0..changes {
            let text = format!(
                r#"{{"\"cdc$stream_id\"":"0x{hex}","\"cdc$time\"":"{}","\"cdc$batch_seq_no\"":{at},"\"cdc$operation\"":1,"p":"{micros}.{order}.{number}.{at}","v":"{}"}}"#,
                uuid::format(&time.uuid()).unwrap(),
                "x".repeat(padding)
            );
            self.rows.push((time, stream, at, text));
        }
    }

    /// The keys of all changes in the order of their writes.
    fn sorted(&self) -> Vec<String> {
        let mut rows: Vec<&(Time, [u8; 16], u32, String)> = self.rows.iter().collect();
        rows.sort();
        let key = |text: &str| {
            serde_json::from_str::<serde_json::Value>(text).unwrap()["p"].as_str().unwrap().to_owned()
        };
        rows.iter().map(|row| key(&row.3)).collect()
    }
}

fn key_of(change: &Change) -> String {
    let parsed: serde_json::Value = serde_json::from_str(&change.json).unwrap();
    parsed["key"]["p"].as_str().unwrap().to_owned()
}

impl ChangeLog for Memory {
    fn now_micros(&mut self) -> Result<i64, Failure> {
        // A clock advances.
        self.now += 1;
        Ok(self.now)
    }

    fn base(&mut self) -> Result<Base, Failure> {
        let partition_key = vec!["p".to_owned()];
        Ok(Base {
            name: "ks.t".to_owned(),
            log: [9; 16],
            partition_key,
            ttl_micros: self.ttl,
            ..Base::default()
        })
    }

    fn generations(&mut self) -> Result<Vec<i64>, Failure> {
        Ok(self.generations.clone())
    }

    fn streams(&mut self, start_millis: i64) -> Result<Vec<[u8; 16]>, Failure> {
        let generation = self.generations.iter().position(|start| *start == start_millis).unwrap();
        Ok((0..STREAMS).map(|number| stream(generation, number)).collect())
    }

    fn rows(
        &mut self,
        streams: &[[u8; 16]],
        from: Time,
        to: Time,
        take: &mut dyn FnMut(LogRow) -> bool,
    ) -> Result<(), Failure> {
        self.reads += 1;
        let mut given = 0;
        for wanted in streams {
            let mut rows: Vec<_> =
                self.rows.iter().filter(|row| row.1 == *wanted && from <= row.0 && row.0 < to).collect();
            rows.sort();
            for row in rows {
                given += 1;
                self.most_rows = self.most_rows.max(given);
                if !take(LogRow::parse(&row.3).unwrap()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

const LIMITS: Limits = Limits { window: Duration::from_secs(10), held_bytes_max: 4_000 };

/// All changes from a place on, by a reader that begins anew after every `stops` changes.
fn read(log: &mut Memory, from: From, stops: usize, limits: Limits) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = Reader::open(log, &from, limits).unwrap();
    let mut left = stops;
    while let Some(change) = reader.next(log).unwrap() {
        assert!(change.position >= reader_floor(&found), "in order");
        found.push((change.position, key_of(&change)));
        left -= 1;
        if left == 0 {
            left = stops;
            reader = Reader::open(log, &From::Token(change.token), limits).unwrap();
        }
    }
    found.into_iter().map(|(_, key)| key).collect()
}

fn reader_floor(found: &[(Position, String)]) -> Position {
    found.last().map_or(Position::before(Time { ticks: i64::MIN, order: 0 }), |(position, _)| position.next())
}

proptest! {
    /// Each change comes once and in order, with any bound of the rows held at once and any stops of the reader.
    #[test]
    fn every_change_comes_once(
        writes in prop::collection::vec((20i64..80, 0u64..3, 0u8..STREAMS, 1u32..4, 0usize..400), 0..60),
        generations in prop::collection::btree_set(10i64..90, 1..4),
        stops in 1usize..20,
        held_bytes_max in 300usize..20_000,
    ) {
        let starts: Vec<i64> = generations.into_iter().map(|second| second * 1_000).collect();
        let mut log = Memory::new(&starts);
        let mut seen = std::collections::BTreeSet::new();
        for (second, order, number, count, padding) in writes {
            let micros = second.max(starts[0] / 1_000) * SECOND;
            if seen.insert((micros, order, number)) {
                log.write(micros, order, number, count, padding);
            }
        }
        let wanted = log.sorted();
        let limits = Limits { held_bytes_max, ..LIMITS };
        prop_assert_eq!(read(&mut log, From::Oldest, stops, limits), wanted);
    }
}

#[test]
fn changes_wait_for_the_window() {
    let mut log = Memory::new(&[0]);
    log.write(89 * SECOND, 0, 1, 1, 0);
    log.write(91 * SECOND, 0, 0, 1, 0);
    let mut reader = Reader::open(&mut log, &From::Oldest, LIMITS).unwrap();
    assert!(reader.next(&mut log).unwrap().is_some());
    assert_eq!(reader.next(&mut log), Ok(None));
    // One that was under way arrives.
    log.write(90 * SECOND + 5, 0, 2, 1, 0);
    log.now += 2 * SECOND;
    let rest: Vec<String> =
        std::iter::from_fn(|| reader.next(&mut log).unwrap()).map(|it| key_of(&it)).collect();
    assert_eq!(rest, [format!("{}.0.2.0", 90 * SECOND + 5), format!("{}.0.0.0", 91 * SECOND)]);
}

#[test]
fn a_generation_that_begins_later_is_read_from_its_start() {
    let mut log = Memory::new(&[0]);
    let mut reader = Reader::open(&mut log, &From::Oldest, LIMITS).unwrap();
    assert_eq!(reader.next(&mut log), Ok(None));
    log.generations.push(105_000);
    log.write(104 * SECOND, 0, 1, 1, 0);
    log.write(105 * SECOND, 0, 1, 1, 0);
    log.now = 200 * SECOND;
    let found: Vec<String> =
        std::iter::from_fn(|| reader.next(&mut log).unwrap()).map(|it| key_of(&it)).collect();
    assert_eq!(found, [format!("{}.0.1.0", 104 * SECOND), format!("{}.0.1.0", 105 * SECOND)]);
}

#[test]
fn one_write_may_be_larger_than_the_limit() {
    let mut log = Memory::new(&[0]);
    log.write(50 * SECOND, 7, 1, 50, 400);
    log.write(51 * SECOND, 7, 1, 1, 400);
    assert_eq!(read(&mut log, From::Oldest, 7, LIMITS).len(), 51);
}

#[test]
fn expired_tokens_name_the_lost_changes() {
    let mut log = Memory::new(&[0]);
    log.write(50 * SECOND, 0, 1, 2, 0);
    log.ttl = Some(60 * SECOND);
    let mut reader = Reader::open(&mut log, &From::Oldest, LIMITS).unwrap();
    let token = reader.next(&mut log).unwrap().unwrap().token;
    log.now = 110 * SECOND - EXPIRY_MARGIN_MICROS - 10;
    assert!(Reader::open(&mut log, &From::Token(token.clone()), LIMITS).is_ok());
    log.now += 10;
    let Err(Failure::Final(message)) = Reader::open(&mut log, &From::Token(token), LIMITS) else {
        panic!("it is accepted");
    };
    assert!(message.contains("written from 50000 to 49000 (milliseconds since 1970) are lost"), "{message}");
    log.now = 200 * SECOND;
    while !reader.ready.is_empty() {
        reader.next(&mut log).unwrap();
    }
    assert!(
        matches!(reader.next(&mut log), Err(Failure::Final(_))),
        "a reader that fell behind receives the error"
    );
}

#[test]
fn foreign_places_are_refused() {
    let mut log = Memory::new(&[0]);
    let other = position::encode([8; 16], Position::before(Time::of_micros(99 * SECOND)));
    for from in [From::Token(other), From::Token("00".to_owned()), From::Time(1_000 * SECOND)] {
        assert!(matches!(Reader::open(&mut log, &from, LIMITS), Err(Failure::Final(_))), "{from:?}");
    }
    assert_eq!("1700000000000".parse(), Ok(From::Time(1_700_000_000_000_000)));
    assert_eq!("now".parse(), Ok(From::Now));
    for text in ["", "yesterday", "-5", "1e9", "123456789012345678"] {
        assert!(text.parse::<From>().is_err(), "{text}");
    }
}
