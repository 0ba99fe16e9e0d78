//! Golden decisions of the compaction strategies.

mod pending;

use std::collections::BTreeMap;

use compaction::{Candidate, Choice, Reason, Strategy, TableFigures};

const FIGURES: TableFigures = TableFigures { now: 999_100, flush_bytes: 10 << 20 };

fn candidate(line: &str) -> Candidate {
    let mut words = line.split_whitespace();
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (id, megabytes) = (number() as usize, number());
    let mut out = Candidate {
        id,
        bytes: megabytes << 20,
        level: 0,
        first: 0,
        last: 0,
        timestamp_max: 0,
        droppable: 0.0,
        age: 0,
        expired: false,
        overlapped: false,
    };
    for word in words {
        match word.split_once('=') {
            Some(("level", value)) => out.level = value.parse().unwrap(),
            Some(("tokens", value)) => {
                let (first, last) = value.split_once("..").unwrap();
                (out.first, out.last) = (first.parse().unwrap(), last.parse().unwrap());
            }
            Some(("at", value)) => out.timestamp_max = value.parse::<i64>().unwrap() * 1_000_000,
            Some(("droppable", value)) => out.droppable = value.parse().unwrap(),
            Some(("age", value)) => out.age = value.parse().unwrap(),
            None if word == "expired" => out.expired = true,
            None if word == "overlapped" => out.overlapped = true,
            _ => panic!("unknown word {word} in {line}"),
        }
    }
    out
}

fn answer(choice: Option<Choice>) -> String {
    let Some(choice) = choice else { return "nothing".to_owned() };
    let ids: Vec<String> = choice.inputs.iter().map(usize::to_string).collect();
    let level = if choice.level > 0 { format!(" to {}", choice.level) } else { String::new() };
    let parts = if choice.shards > 1 { format!(" in {} parts", choice.shards) } else { String::new() };
    format!("{} {}{level}{parts}", choice.reason.name(), ids.join(" "))
}

#[test]
fn choices() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/choices.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut out = String::new();
    let mut strategy: Option<Strategy> = None;
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut cases = 0;
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            out.push_str(line);
        } else if line.starts_with("-> ") {
            let strategy = strategy.take().expect("a case begins with its strategy");
            out.push_str(&format!("-> {}", answer(strategy.choose(&candidates, &FIGURES))));
            candidates.clear();
            cases += 1;
        } else if strategy.is_none() {
            let mut words = line.split_whitespace();
            let mut options = BTreeMap::new();
            options.insert("class".to_owned(), words.next().unwrap().to_owned());
            for word in words {
                let (name, value) = word.split_once('=').unwrap();
                options.insert(name.to_owned(), value.to_owned());
            }
            strategy = Some(Strategy::of(&options));
            out.push_str(line);
        } else {
            candidates.push(candidate(line));
            out.push_str(line);
        }
        out.push('\n');
    }
    assert!(cases > 10);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, out).unwrap();
    } else {
        assert_eq!(out, text);
    }
}

#[test]
fn names_of_units_are_taken_in_any_case() {
    let of = |unit: &str, resolution: &str| {
        let class = "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy";
        let options = [
            ("class", class),
            ("compaction_window_unit", unit),
            ("compaction_window_size", "3"),
            ("timestamp_resolution", resolution),
        ];
        Strategy::of(&options.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    };
    for (unit, resolution) in [("hours", "seconds"), ("Minutes", "MilliSeconds"), ("days", "nanoseconds")] {
        let written = of(unit, resolution);
        assert_eq!(written, of(&unit.to_uppercase(), &resolution.to_uppercase()), "{unit} {resolution}");
    }
    assert_ne!(of("hours", "seconds"), of("days", "seconds"));
    assert_ne!(of("hours", "seconds"), of("hours", "milliseconds"));
}

#[test]
fn a_choice_fits_the_room_that_there_is() {
    let choice =
        |reason| Choice { inputs: vec![7, 3, 9, 4], reason, level: 0, output_bytes_max: None, shards: 1 };
    let bytes = [40, 10, 30, 20];
    let cases = [
        (Reason::Tier, 100, Some(vec![7, 3, 9, 4])),
        (Reason::Tier, 99, Some(vec![3, 9, 4])),
        (Reason::Window, 59, Some(vec![3, 4])),
        (Reason::Tier, 29, None),
        (Reason::Level, 99, None),
        (Reason::Level, 100, Some(vec![7, 3, 9, 4])),
        (Reason::Tombstones, 99, None),
        (Reason::Expired, 0, Some(vec![7, 3, 9, 4])),
    ];
    for (reason, room, expected) in cases {
        let fitting = choice(reason).within(&bytes, room);
        assert_eq!(fitting.map(|choice| choice.inputs), expected, "{reason:?} with {room}");
    }
}
