//! The patterns of LIKE that filter rows, as ScyllaDB has them: `%` stands for any characters, `_` for one, and `\` takes its
//! meaning from either.
//!
//! A value is passed over once for each part between two `%`, for any pattern: none makes it slower than that.

use bytes::Bytes;

use crate::error::{Result, invalid};

/// The most characters of a part with `_` in it: as many as fit the state of the search.
const PART_CHARACTERS_MAX: usize = 64;

/// A pattern, ready for many values.
#[derive(Debug, PartialEq, Eq)]
pub struct Wildcards {
    /// The texts between the `%`; the first and the last are anchored.
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Characters as they are.
    Plain(String),
    /// Characters with `_` among them, which are none, and at which places each ASCII character fits, as bits.
    Any(Vec<Option<char>>, Box<[u64; 128]>),
}

impl Wildcards {
    /// Takes a pattern apart.
    ///
    /// # Errors
    /// When it is no text, or a part with `_` has more than 64 characters.
    pub fn parse(pattern: &Bytes, column: &str) -> Result<Self> {
        let Ok(text) = std::str::from_utf8(pattern) else {
            return invalid!("The pattern of LIKE on column {column} is not valid UTF-8");
        };
        let mut parts = Vec::new();
        let mut part: Vec<Option<char>> = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '%' => parts.push(std::mem::take(&mut part)),
                '_' => part.push(None),
                '\\' if matches!(chars.peek(), Some('%' | '_' | '\\')) => part.push(chars.next()),
                c => part.push(Some(c)),
            }
        }
        parts.push(part);
        let parts = parts.into_iter().map(|part| Part::new(part, column)).collect::<Result<_>>()?;
        Ok(Self { parts })
    }

    /// Whether a value matches. A value that is no text does not.
    pub fn matches(&self, value: &[u8]) -> bool {
        let Ok(value) = std::str::from_utf8(value) else { return false };
        let (Some(first), Some(last)) = (self.parts.first(), self.parts.last()) else { return false };
        let Some(rest) = first.at_start(value) else { return false };
        if self.parts.len() == 1 {
            return rest.is_empty();
        }
        let Some(mut rest) = last.at_end(rest) else { return false };
        // The leftmost place of each part leaves the most room for those behind it.
        for part in self.parts.get(1..self.parts.len() - 1).unwrap_or_default() {
            match part.find(rest) {
                Some(end) => rest = rest.get(end..).unwrap_or_default(),
                None => return false,
            }
        }
        true
    }
}

impl Part {
    fn new(characters: Vec<Option<char>>, column: &str) -> Result<Self> {
        if let Some(plain) = characters.iter().copied().collect::<Option<String>>() {
            return Ok(Self::Plain(plain));
        }
        if characters.len() > PART_CHARACTERS_MAX {
            return invalid!(
                "The pattern of LIKE on column {column} has {} characters with '_' among them and no '%' between: at most \
                 {PART_CHARACTERS_MAX} are allowed",
                characters.len()
            );
        }
        let mut ascii = Box::new([0; 128]);
        for (code, places) in (0_u8..).zip(ascii.iter_mut()) {
            *places = places_of(&characters, char::from(code));
        }
        Ok(Self::Any(characters, ascii))
    }

    /// The rest behind the part at the start of a text.
    fn at_start<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Self::Plain(plain) => text.strip_prefix(plain.as_str()),
            Self::Any(wanted, _) => {
                let mut rest = text.chars();
                wanted
                    .iter()
                    .all(|wanted| rest.next().is_some_and(|c| fits(*wanted, c)))
                    .then(|| rest.as_str())
            }
        }
    }

    /// The rest before the part at the end of a text.
    fn at_end<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Self::Plain(plain) => text.strip_suffix(plain.as_str()),
            Self::Any(wanted, _) => {
                let mut rest = text.chars();
                let mut wanted = wanted.iter().rev();
                wanted.all(|wanted| rest.next_back().is_some_and(|c| fits(*wanted, c))).then(|| rest.as_str())
            }
        }
    }

    /// Where the leftmost occurrence of the part ends, in bytes.
    fn find(&self, text: &str) -> Option<usize> {
        match self {
            Self::Plain(plain) => text.find(plain.as_str()).map(|at| at + plain.len()),
            Self::Any(wanted, ascii) => {
                // Bit i says that the part's first i + 1 characters end here (Baeza-Yates and Gonnet's shift-and).
                let mut ends: u64 = 0;
                let last = 1_u64 << (wanted.len() - 1);
                text.char_indices().find_map(|(at, c)| {
                    let places = match ascii.get(c as usize) {
                        Some(places) => *places,
                        None => places_of(wanted, c),
                    };
                    ends = (ends << 1 | 1) & places;
                    (ends & last != 0).then(|| at + c.len_utf8())
                })
            }
        }
    }
}

/// At which places a character fits, as bits.
fn places_of(wanted: &[Option<char>], found: char) -> u64 {
    let fitting = wanted.iter().enumerate().filter(|(_, wanted)| fits(**wanted, found));
    fitting.fold(0, |places, (at, _)| places | 1 << at)
}

fn fits(wanted: Option<char>, found: char) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        let pattern = Wildcards::parse(&Bytes::copy_from_slice(pattern.as_bytes()), "c");
        pattern.expect("a pattern").matches(value.as_bytes())
    }

    #[test]
    fn patterns_match_as_written() {
        for (pattern, yes, no) in [
            ("abc", "abc", "abcd"),
            ("abc%", "abcd", "xabc"),
            ("%abc", "xabc", "abcx"),
            ("%b%", "abc", "ac"),
            ("a%c", "ac", "acb"),
            ("a%a", "aa", "a"),
            ("a_c", "abc", "ac"),
            ("_", "é", ""),
            ("%_b_%", "abcd", "bcd"),
            ("%a_%_c%", "xabycz", "xabc"),
            (r"50\%", "50%", "500"),
            (r"a\_b", "a_b", "axb"),
            (r"a\\%", r"a\b", "ab"),
            (r"a\b", r"a\b", "ab"),
            ("", "", "a"),
            ("%", "", "\u{0}no"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            if no != "\u{0}no" {
                assert!(!matches(pattern, no), "{pattern} {no}");
            }
        }
        assert!(matches("%%x%%", "axb"));
        let wide = Bytes::from("_".repeat(PART_CHARACTERS_MAX + 1));
        assert!(Wildcards::parse(&wide, "c").is_err());
        assert!(!Wildcards::parse(&Bytes::from("%"), "c").expect("a pattern").matches(&[0xff]));
    }

    /// Against the definition: a pattern without `%` and `_` left is the text, each `%` takes any text.
    #[test]
    fn patterns_match_as_defined() {
        fn defined(pattern: &[char], value: &[char]) -> bool {
            match pattern.split_first() {
                None => value.is_empty(),
                Some(('%', rest)) => (0..=value.len()).any(|at| defined(rest, &value[at..])),
                Some(('_', rest)) => !value.is_empty() && defined(rest, &value[1..]),
                Some((c, rest)) => value.first() == Some(c) && defined(rest, &value[1..]),
            }
        }
        let texts = |alphabet: &[char], length: u32| -> Vec<Vec<char>> {
            let size = alphabet.len();
            (0..=length)
                .flat_map(|length| {
                    (0..size.pow(length))
                        .map(move |number| (0..length).map(move |at| number / size.pow(at) % size))
                })
                .map(|places| places.map(|place| alphabet[place]).collect())
                .collect()
        };
        let values = texts(&['a', 'b'], 5);
        for pattern in texts(&['a', 'b', '_', '%'], 5) {
            let text: String = pattern.iter().collect();
            let parsed = Wildcards::parse(&Bytes::from(text.clone()), "c").expect("a pattern");
            for value in &values {
                let bytes: String = value.iter().collect();
                assert_eq!(parsed.matches(bytes.as_bytes()), defined(&pattern, value), "{text} {bytes}");
            }
        }
    }
}
