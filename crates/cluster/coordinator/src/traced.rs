//! Traced requests over nodes: a traced request carries its id, and every node that serves it writes its own events under it to
//! `system_traces.events`. An untraced request takes the same way, and pays one test of an option a message.
//!
//! The body of verb `traced`: version (1), id (16), the verb's number (1), and that verb's body.

use bytes::Bytes;
use rpc::{Refusal, Verb};

use crate::peer_error::malformed;

const VERSION: u8 = 1;
const HEADER_LEN: usize = 18;

/// Verbs whose steps another node records.
pub(crate) const TRACED_VERBS: [Verb; 9] = [
    Verb::Read,
    Verb::ReadDigest,
    Verb::Apply,
    Verb::Forward,
    Verb::ReadRepair,
    Verb::Increment,
    Verb::PaxosPrepare,
    Verb::PaxosPropose,
    Verb::PaxosCommit,
];

/// Cassandra's name of a verb's message.
pub(crate) fn message_name(verb: Verb) -> String {
    match verb {
        Verb::Read | Verb::ReadDigest => "READ".to_owned(),
        Verb::Apply | Verb::Forward => "MUTATION".to_owned(),
        Verb::Increment => "COUNTER_MUTATION".to_owned(),
        verb => verb.name().to_uppercase(),
    }
}

/// A request of a verb whose steps are to be recorded.
pub(crate) fn encode(session: [u8; 16], verb: Verb, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER_LEN + body.len());
    out.push(VERSION);
    out.extend_from_slice(&session);
    out.push(verb.number());
    out.extend_from_slice(body);
    out.into()
}

pub(crate) fn decode(body: &Bytes) -> Result<([u8; 16], Verb, Bytes), Refusal> {
    let (Some((&[version], rest)), true) = (body.split_first_chunk::<1>(), body.len() >= HEADER_LEN) else {
        return Err(malformed("a traced request that ends too early"));
    };
    if version != VERSION {
        return Err(malformed("a version of traced requests that this node does not know"));
    }
    let (session, rest) = rest.split_first_chunk::<16>().expect("its length was checked");
    let verb = rest.first().and_then(|number| Verb::from_number(*number));
    let verb = verb
        .filter(|verb| TRACED_VERBS.contains(verb))
        .ok_or_else(|| malformed("a traced verb that is not"))?;
    Ok((*session, verb, body.slice(HEADER_LEN..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_others_are_refused() {
        let message = encode([7; 16], Verb::Read, b"body");
        assert_eq!(decode(&message), Ok(([7; 16], Verb::Read, Bytes::from_static(b"body"))));
        for len in 0..HEADER_LEN {
            assert!(decode(&message.slice(..len)).is_err(), "{len} bytes");
        }
        // A traced request in a traced request would have no end.
        assert!(decode(&encode([7; 16], Verb::Traced, b"")).is_err());
        assert!(decode(&encode([7; 16], Verb::Truncate, b"")).is_err());
    }
}
