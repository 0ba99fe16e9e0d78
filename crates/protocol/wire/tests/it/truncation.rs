//! A body that ends too early is an error wherever it ends; surplus bytes behind a body are ignored.

use wire::client::Answer;
use wire::{Envelope, ProtocolError, Request};

use crate::samples::{dialects, request_envelope, requests, response_envelope, responses};

#[test]
fn requests_cut_short() {
    for dialect in dialects() {
        for request in requests(dialect) {
            let whole = request_envelope(&request);
            let message = Request::decode(&whole, dialect).expect("a good request");
            for len in 0..whole.body.len() {
                let cut = Envelope { body: whole.body.slice(..len), ..whole.clone() };
                match Request::decode(&cut, dialect) {
                    Err(ProtocolError::Truncated { needed, left, .. }) => assert!(needed > left),
                    other => panic!("{} cut at {len}: {other:?}", whole.opcode),
                }
            }
            let mut longer = whole.body.to_vec();
            longer.extend_from_slice(b"from the future");
            let longer = Envelope { body: longer.into(), ..whole };
            assert_eq!(Request::decode(&longer, dialect), Ok(message));
        }
    }
}

#[test]
fn responses_cut_short() {
    for dialect in dialects() {
        for response in responses(dialect) {
            let whole = response_envelope(&response);
            for len in 0..whole.body.len() {
                let cut = Envelope { body: whole.body.slice(..len), ..whole.clone() };
                // Rows are read lazily: there the cells fail.
                let result = Answer::decode(&cut, dialect).and_then(|answer| match answer.body {
                    wire::client::AnswerBody::Result(wire::client::ResultBody::Rows(rows)) => {
                        rows.to_vec().map(|_| ())
                    }
                    _ => Ok(()),
                });
                assert!(result.is_err(), "{} cut at {len} was read", whole.opcode);
            }
        }
    }
}
