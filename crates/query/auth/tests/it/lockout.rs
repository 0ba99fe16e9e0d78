//! Lockout of addresses.

use std::net::IpAddr;
use std::time::Duration;

use auth::{Lockout, LockoutLimits};
use rt::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_address_that_fails_too_often_is_locked_out_for_a_while() {
    let lockout = Lockout::new(LockoutLimits { failures_max: 3, duration: 10 * SECOND });
    let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    let at = |seconds: u32| Instant::START + seconds * SECOND;
    assert!(!lockout.failed(one, at(0)) && !lockout.failed(one, at(1)));
    assert_eq!(lockout.remaining(one, at(1)), None);
    assert!(lockout.failed(one, at(2)), "the third");
    assert_eq!(lockout.remaining(one, at(4)), Some(8 * SECOND));
    assert_eq!(lockout.remaining(other, at(4)), None);
    assert_eq!(lockout.remaining(one, at(12)), None);
    assert!(!lockout.failed(one, at(12)), "old failures do not count");
    lockout.succeeded(one);
    assert!(!lockout.failed(one, at(12)) && !lockout.failed(one, at(12)));
}

#[test]
fn addresses_of_one_network_and_many_networks() {
    let lockout = Lockout::new(LockoutLimits { failures_max: 1, duration: SECOND });
    let parse = |text: &str| text.parse::<IpAddr>().unwrap();
    lockout.failed(parse("2001:db8::1"), Instant::START);
    assert!(lockout.remaining(parse("2001:db8::2"), Instant::START).is_some(), "the same client");
    assert!(lockout.remaining(parse("2001:db8:0:1::2"), Instant::START).is_none());
    lockout.failed(parse("::ffff:10.0.0.1"), Instant::START);
    assert!(lockout.remaining(parse("10.0.0.1"), Instant::START).is_some());
    for n in 0..40_000_u32 {
        lockout.failed(IpAddr::from(n.to_be_bytes()), Instant::START);
    }
    assert!(lockout.remaining(IpAddr::from(39_999_u32.to_be_bytes()), Instant::START).is_some());
    let unlimited = Lockout::new(LockoutLimits { failures_max: 0, duration: SECOND });
    (0..100).for_each(|_| assert!(!unlimited.failed(parse("10.0.0.1"), Instant::START)));
    assert_eq!(unlimited.remaining(parse("10.0.0.1"), Instant::START), None);
}
