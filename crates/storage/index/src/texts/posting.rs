//! Postings as bytes.
//!
//! ```text
//! term    := UTF-8, 0xff                       no term is the beginning of another one
//! posting := vint terms of the text, vint count, { vint distance to the position before }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;

use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};
use text::{FullText, Hit};

/// Behind a term: no byte of UTF-8.
const TERM_END: u8 = 0xff;

/// The bytes of a term.
pub(crate) fn term_of(word: &str) -> Vec<u8> {
    let mut term = Vec::with_capacity(word.len() + 1);
    term.extend_from_slice(word.as_bytes());
    term.push(TERM_END);
    term
}

/// The word of a term.
pub(super) fn word_of(term: &[u8]) -> Option<&str> {
    std::str::from_utf8(term.strip_suffix(&[TERM_END])?).ok()
}

/// Hands the terms of a text, each once, and their postings to `take`; how many terms it has with repetitions. None when its bytes are no text.
pub(crate) fn postings_of(
    fulltext: &FullText,
    value: &[u8],
    mut take: impl FnMut(&[u8], &[u8]),
) -> Option<u32> {
    std::str::from_utf8(value).ok()?;
    let mut terms: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
    let mut count = 0;
    fulltext.analyzer.terms(value, |term| {
        terms.entry(term.to_vec()).or_default().push(count);
        count += 1;
        true
    });
    let mut posting = Vec::new();
    for (mut term, positions) in terms {
        term.push(TERM_END);
        posting.clear();
        write_unsigned(u64::from(count), &mut posting);
        write_unsigned(positions.len() as u64, &mut posting);
        if fulltext.has_positions {
            let mut before = 0;
            for position in positions {
                write_unsigned(u64::from(position - before), &mut posting);
                before = position;
            }
        }
        take(&term, &posting);
    }
    Some(count)
}

/// The length of the text of a posting, and the places of the term in it; none when it is damaged.
pub(super) fn decode(posting: &[u8]) -> Option<(u32, Hit)> {
    let mut reader = Reader::new(posting);
    let number = |reader: &mut Reader<'_>| u32::try_from(read_unsigned(reader).ok()?).ok();
    let terms = number(&mut reader)?;
    let count = number(&mut reader).filter(|count| *count <= terms)?;
    let mut positions: Vec<u32> = Vec::new();
    while !reader.is_empty() {
        let distance = number(&mut reader)?;
        let position = positions.last().map_or(Some(distance), |before| before.checked_add(distance))?;
        positions.push(position);
    }
    let is_whole = positions.is_empty() || positions.len() == count as usize;
    is_whole.then_some((terms, Hit { count, positions }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postings_come_back() {
        for has_positions in [true, false] {
            let options = [("positions".to_owned(), has_positions.to_string())].into();
            let fulltext = FullText::of(&options).expect("options");
            let mut all = Vec::new();
            let count = postings_of(&fulltext, b"a b A c a", |term, posting| {
                all.push((word_of(term).expect("a word").to_owned(), decode(posting).expect("a posting")));
            });
            assert_eq!(count, Some(5));
            let hit = |count, positions: &[u32]| {
                let positions = if has_positions { positions.to_vec() } else { Vec::new() };
                (5, Hit { count, positions })
            };
            let expected = [("a", hit(3, &[0, 2, 4])), ("b", hit(1, &[1])), ("c", hit(1, &[3]))];
            let expected = expected.map(|(word, posting)| (word.to_owned(), posting));
            assert_eq!(all, expected);
        }
        let fulltext = FullText::of(&Default::default()).expect("options");
        assert_eq!(postings_of(&fulltext, b"\xff", |_, _| panic!("no terms")), None);
        for damaged in [&[][..], &[5], &[5, 6], &[5, 2, 1], &[5, 1, 1, 1]] {
            assert_eq!(decode(damaged), None, "{damaged:?}");
        }
    }
}
