//! bcrypt against hashes that others made.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use auth::password::{COST_MAX, Hash};

/// Runs a future that waits for nothing but other tasks.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

/// Password and hash, as jBCrypt and the reference implementation give them.
const KNOWN: &[(&str, &str)] = &[
    ("", "$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s."),
    ("a", "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe"),
    ("abc", "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i"),
    (
        "pässwordpässwordpässwordpässwordpässwordpässwordpässwordpässwordpässword",
        "$2b$05$If6bvum7DFjUnE9p2uDeDue3q/E6u/XSdK4MTQT1jeIOw0PPJm9kO",
    ),
];

#[test]
fn hashes_of_others_are_verified() {
    for (password, text) in KNOWN {
        let hash = Hash::parse(text).expect("a good hash");
        assert_eq!(hash.to_string(), *text);
        assert!(block_on(hash.matches(password)), "{password:?}");
        assert!(!block_on(hash.matches("abd")), "{password:?}");
    }
}

#[test]
fn a_hash_is_written_and_read() {
    let hash = block_on(Hash::new("päss", 4, *b"0123456789abcdef"));
    let read = Hash::parse(&hash.to_string()).expect("what was written");
    assert!(read == hash && block_on(read.matches("päss")) && !block_on(read.matches("pass")));
    assert_eq!(format!("{hash:?}"), "Hash(***)");
    // Bytes after the 72nd do not count, as in every bcrypt.
    let long = "x".repeat(80);
    let hash = block_on(Hash::new(&long, 4, [7; 16]));
    assert!(block_on(hash.matches(&"x".repeat(72))) && !block_on(hash.matches(&"x".repeat(71))));
}

#[test]
fn other_texts_are_no_hashes() {
    let (_, good) = KNOWN[1];
    assert!(Hash::parse(good).is_some());
    for text in
        ["", "zz", "$2a$06$", "$6$abc$def", &good[..59], &format!("{good}x"), &good.replace("$06", "$03")]
    {
        assert!(Hash::parse(text).is_none(), "{text}");
    }
    assert!(
        Hash::parse(&good.replace("$06", &format!("${}", COST_MAX + 1))).is_none(),
        "it would take minutes"
    );
    assert!(Hash::parse(&good.replace('m', "ä")).is_none());
    assert!(!block_on(Hash::of_nobody(4).matches("")));
}
