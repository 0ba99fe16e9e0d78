//! Lines of a file that is read in parts, packed or not. Takes memory for one line and one part.

/// Bytes of a line: the JSON of the largest item, each of whose bytes takes up to six, and more.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;
/// Packed bytes that are unpacked at once: they become up to a thousand times as many.
pub(crate) const PACKED_AT_ONCE: usize = 4096;

/// A line without its end.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    Text(Vec<u8>),
    /// It has more than [`LINE_BYTES_MAX`] bytes.
    TooLong,
}

/// The lines of text that comes in parts.
#[derive(Default)]
pub(crate) struct Lines {
    text: Vec<u8>,
    /// Where the next line begins, and where its end has not been looked for yet.
    start: usize,
    searched: usize,
    /// Whether the next line is the rest of one that is too long.
    is_rest: bool,
}

impl Lines {
    /// Adds a part.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.text.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.text.extend_from_slice(bytes);
    }

    /// The next line that is complete.
    pub(crate) fn next(&mut self) -> Option<Line> {
        loop {
            let found = self.text.get(self.searched..)?.iter().position(|byte| *byte == b'\n');
            let Some(at) = found.map(|at| at + self.searched) else {
                self.searched = self.text.len();
                if self.searched - self.start <= LINE_BYTES_MAX {
                    return None;
                }
                let is_new = !std::mem::replace(&mut self.is_rest, true);
                self.start = self.searched;
                return is_new.then_some(Line::TooLong);
            };
            let line = self.text.get(self.start..at).unwrap_or_default();
            (self.start, self.searched) = (at + 1, at + 1);
            if std::mem::take(&mut self.is_rest) {
                continue;
            }
            return Some(if line.len() > LINE_BYTES_MAX { Line::TooLong } else { Line::Text(line.to_vec()) });
        }
    }

    /// The last line, where no line end follows it.
    pub(crate) fn last(&mut self) -> Option<Line> {
        let line = self.text.get(self.start..).unwrap_or_default().to_vec();
        *self = Self { is_rest: self.is_rest, ..Self::default() };
        (!line.is_empty() && !std::mem::take(&mut self.is_rest)).then_some(Line::Text(line))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::encoding::{Encoding, Unpacker};
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn lines_of(parts: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut take = |line: Line| match line {
            Line::Text(text) => found.push(String::from_utf8(text).expect("text")),
            Line::TooLong => found.push("!".to_owned()),
        };
        for part in parts {
            lines.push(&part);
            while let Some(line) = lines.next() {
                take(line);
            }
        }
        lines.last().into_iter().for_each(take);
        found
    }

    #[test]
    fn parts_of_any_length_give_the_same_lines() {
        for (text, expected) in [
            ("a\nbc\n\nd", vec!["a", "bc", "", "d"]),
            ("a\n", vec!["a"]),
            ("", vec![]),
            ("\n\n", vec!["", ""]),
        ] {
            for part in 1..6 {
                let parts = text.as_bytes().chunks(part).map(<[u8]>::to_vec);
                assert_eq!(lines_of(parts), expected, "{text:?} by {part}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_one_and_takes_no_memory() {
        let part = vec![b'x'; 1 << 20];
        for end in ["\nnext", "y\nnext", ""] {
            let text = std::iter::repeat_n(part.clone(), 20).chain([end.as_bytes().to_vec()]);
            let expected: &[&str] = if end.is_empty() { &["!"] } else { &["!", "next"] };
            assert_eq!(lines_of(text), expected);
        }
        let mut lines = Lines::default();
        for _ in 0..50 {
            lines.push(&part);
            while lines.next().is_some() {}
            assert!(lines.text.len() <= LINE_BYTES_MAX + (2 << 20), "{}", lines.text.len());
        }
    }

    /// The lines of packed bytes that come in parts of this length.
    fn unpacked(encoding: Encoding, bytes: &[u8], part: usize) -> std::io::Result<usize> {
        let (mut unpacker, mut lines, mut complete) = (Unpacker::new(encoding)?, Lines::default(), 0);
        for mut rest in bytes.chunks(part) {
            while !rest.is_empty() {
                let used = unpacker.unpack(rest, |bytes| lines.push(bytes))?;
                rest = &rest[used..];
                complete += std::iter::from_fn(|| lines.next()).count();
                assert!(lines.text.len() <= LINE_BYTES_MAX + (2 << 20), "{}", lines.text.len());
            }
        }
        unpacker.finish(|bytes| lines.push(bytes))?;
        complete += std::iter::from_fn(|| lines.next()).count();
        Ok(complete + usize::from(lines.last().is_some()))
    }

    #[test]
    fn files_of_zstandard_and_their_damage() {
        let text = "one\ntwo".repeat(50_000);
        let packed = zstd::bulk::compress(text.as_bytes(), 3).expect("memory");
        for part in [1, 7, 4096] {
            assert_eq!(unpacked(Encoding::Zstd, &packed, part).expect("it is whole"), 50_001);
            let two = [packed.clone(), packed.clone()].concat();
            assert_eq!(unpacked(Encoding::Zstd, &two, part).expect("two frames"), 100_001);
            for len in 1..packed.len() {
                assert!(unpacked(Encoding::Zstd, &packed[..len], part).is_err(), "{len} bytes of it");
            }
        }
        assert!(unpacked(Encoding::Zstd, b"{\"Item\":{}}\n", 9).is_err(), "it is not packed");
        // A little that becomes very much takes no memory.
        let bomb = zstd::bulk::compress(&vec![b'x'; 300 << 20], 3).expect("memory");
        assert!(bomb.len() < 64 << 10, "{}", bomb.len());
        assert_eq!(unpacked(Encoding::Zstd, &bomb, PACKED_AT_ONCE).expect("a line that is too long"), 1);
        let mut wide = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory");
        wide.set_parameter(zstd::zstd_safe::CParameter::WindowLog(27)).expect("a window");
        wide.write_all(&vec![b'x'; 1 << 20]).expect("memory");
        let wide = wide.finish().expect("memory");
        assert!(unpacked(Encoding::Zstd, &wide, 4096).is_err(), "its window takes 128 MiB");
    }

    #[test]
    fn packed_files_and_their_damage() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all("one\ntwo".repeat(5000).as_bytes()).expect("memory");
        let packed = encoder.finish().expect("memory");
        let unpacked = |bytes: &[u8]| unpacked(Encoding::Gzip, bytes, 7);
        assert_eq!(unpacked(&packed).expect("it is whole"), 5001);
        assert_eq!(unpacked(&[packed.clone(), packed.clone()].concat()).expect("two members"), 10_001);
        assert!(unpacked(&packed[..packed.len() - 9]).is_err(), "it ends in the middle");
        assert!(unpacked(b"{\"Item\":{}}\n").is_err(), "it is not packed");
    }
}
