//! The failure detector against its golden table, and against its guarantees.

use std::time::Duration;

use gossip::{ArrivalWindow, DetectorConfig, phi};

fn answer(window: &ArrivalWindow, at: f64, config: &DetectorConfig) -> String {
    let phi = window.phi(Duration::from_secs_f64(at), config);
    let verdict = if phi > config.threshold { "down" } else { "up" };
    let mean = window.mean(config).as_secs_f64();
    format!("mean {mean:.3} of {} phi {phi:.2} {verdict}", window.len())
}

#[test]
fn table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/phi.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let config = DetectorConfig::default();
    let mut window = ArrivalWindow::default();
    let mut out = String::new();
    let mut answers = 0;
    for line in text.lines() {
        let line = line.split(" -> ").next().unwrap();
        out.push_str(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<f64>().unwrap();
        let seconds = Duration::from_secs_f64;
        match words.first().copied() {
            None | Some("#") => {}
            Some(word) if word.starts_with('#') => {}
            Some("case") => window = ArrivalWindow::default(),
            Some("hear") => {
                (1..words.len()).for_each(|at| window.heard(seconds(number(at)), &config));
            }
            Some("beat") => {
                let (from, to, step) = (number(1), number(2), number(3));
                let beats = ((to - from) / step).round() as u32;
                (0..=beats).for_each(|beat| window.heard(seconds(from + f64::from(beat) * step), &config));
            }
            Some("pause") => window.excuse(seconds(number(1)), seconds(number(3))),
            Some("at") => {
                out.push_str(&format!(" -> {}", answer(&window, number(1), &config)));
                answers += 1;
            }
            Some(word) => panic!("unknown word {word}"),
        }
        out.push('\n');
    }
    assert!(answers > 20);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, out).unwrap();
        return;
    }
    for (found, expected) in out.lines().zip(text.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(out, text);
}

#[test]
fn phi_is_the_logarithm_of_a_chance() {
    let second = Duration::from_secs(1);
    for tenths in 1..400_u32 {
        let silence = Duration::from_millis(u64::from(tenths) * 100);
        let chance = (-silence.as_secs_f64()).exp();
        assert!((phi(silence, second) + chance.log10()).abs() < 1e-9);
    }
    assert!(phi(Duration::from_secs(18), second) < 8.0 && phi(Duration::from_secs(19), second) > 8.0);
}

#[test]
fn the_window_is_bounded() {
    let config = DetectorConfig { window: 10, ..DetectorConfig::default() };
    let mut window = ArrivalWindow::default();
    assert!(window.is_empty());
    (0..1_000).for_each(|second| window.heard(Duration::from_secs(second), &config));
    assert_eq!(window.len(), 10);
    assert_eq!(window.mean(&config), Duration::from_secs(1));
}
