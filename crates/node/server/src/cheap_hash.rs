//! Passwords that were found right, recognised again without the cost of their own hashes.

use auth::password::{COST_MIN, Hash};
use rt::Rt;

/// A hash of a password that was found right, by which it is recognised again at little cost. For memory only.
pub(crate) async fn cheap_hash(rt: &Rt, password: &str) -> Hash {
    let mut salt = [0; 16];
    rt.fill_random(&mut salt);
    Hash::new(password, COST_MIN, salt).await
}
