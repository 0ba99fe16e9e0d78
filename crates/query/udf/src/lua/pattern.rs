//! Lua's patterns (manual, §6.4.1), matched within a number of steps: Lua's own matcher takes exponential time for some patterns,
//! in C, where no hook can stop it.

use std::cell::Cell;

/// Captures of a pattern.
const CAPTURES_MAX: usize = 32;
/// Parts of a pattern that are tried one inside the other.
const DEPTH_MAX: u32 = 180;
/// Steps of one match; a match that needs more is refused.
pub const MATCH_STEPS_MAX: u64 = 300_000;
/// Steps after which a search looks whether it should go on later.
const SEARCH_STEPS: u64 = 50_000;

/// A part of the subject that a pattern has captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Bytes from one position to another.
    Bytes(usize, usize),
    /// A position, from 0.
    Position(usize),
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing matches.
    Nothing,
    /// The bytes from the first position to the second match.
    Match(usize, usize, Vec<Capture>),
    /// Nothing matches before this position, where the search is to go on.
    Continue(usize),
}

/// Length of a capture that has begun and not ended, and of one of a position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Open,
    Position,
    Closed(usize),
}

struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Length)>,
    steps: Cell<u64>,
    depth: u32,
}

type Result<T> = std::result::Result<T, String>;

/// Looks for the first match from `init` on that does not end at `refused`; with the steps that were taken.
///
/// # Errors
/// When the pattern is malformed, or a match needs too many steps.
pub fn search(
    subject: &[u8],
    pattern: &[u8],
    init: usize,
    refused: Option<usize>,
) -> (std::result::Result<Found, String>, u64) {
    let (anchored, pattern) = match pattern.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, pattern),
    };
    let mut matcher = Matcher { subject, pattern, captures: Vec::new(), steps: Cell::new(0), depth: 0 };
    let mut total = 0;
    for at in init..=subject.len() {
        matcher.captures.clear();
        matcher.steps.set(0);
        let found = matcher.run(at, 0);
        total += 1 + matcher.steps.get();
        match found {
            Err(error) => return (Err(error), total),
            Ok(Some(end)) if Some(end) != refused => {
                return (matcher.result().map(|captures| Found::Match(at, end, captures)), total);
            }
            Ok(_) if anchored => break,
            Ok(_) if total >= SEARCH_STEPS && at < subject.len() => {
                return (Ok(Found::Continue(at + 1)), total);
            }
            Ok(_) => {}
        }
    }
    (Ok(Found::Nothing), total)
}

impl Matcher<'_> {
    fn result(&self) -> Result<Vec<Capture>> {
        let capture = |(start, length): &(usize, Length)| match length {
            Length::Open => Err("unfinished capture".to_owned()),
            Length::Position => Ok(Capture::Position(*start)),
            Length::Closed(length) => Ok(Capture::Bytes(*start, start + length)),
        };
        self.captures.iter().map(capture).collect()
    }

    /// Counts a look at so many bytes.
    fn count(&self, bytes: usize) {
        self.steps.set(self.steps.get() + bytes as u64 / 16);
    }

    fn step(&mut self) -> Result<()> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MATCH_STEPS_MAX {
            return Err(format!("the pattern needs more than {MATCH_STEPS_MAX} steps"));
        }
        Ok(())
    }

    fn run(&mut self, at: usize, pattern: usize) -> Result<Option<usize>> {
        if self.depth >= DEPTH_MAX {
            return Err("pattern too complex".to_owned());
        }
        self.depth += 1;
        let end = self.parts(at, pattern);
        self.depth -= 1;
        end
    }

    /// Matches the pattern from `pattern` on with the subject from `at` on; the position after the match.
    fn parts(&mut self, mut at: usize, mut pattern: usize) -> Result<Option<usize>> {
        loop {
            self.step()?;
            let Some(&first) = self.pattern.get(pattern) else { return Ok(Some(at)) };
            let second = self.pattern.get(pattern + 1).copied();
            match (first, second) {
                (b'(', Some(b')')) => return self.open(at, pattern + 2, Length::Position),
                (b'(', _) => return self.open(at, pattern + 1, Length::Open),
                (b')', _) => return self.close(at, pattern + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, pattern + 2)? {
                    Some(after) => (at, pattern) = (after, pattern + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    let set = pattern + 2;
                    if self.pattern.get(set) != Some(&b'[') {
                        return Err("missing '[' after '%f' in pattern".to_owned());
                    }
                    let after = self.class_end(set)?;
                    let before = at.checked_sub(1).and_then(|i| self.subject.get(i)).copied().unwrap_or(0);
                    let here = self.subject.get(at).copied().unwrap_or(0);
                    if self.in_set(before, set, after) || !self.in_set(here, set, after) {
                        return Ok(None);
                    }
                    pattern = after;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.back_reference(at, digit)? {
                    Some(after) => (at, pattern) = (after, pattern + 2),
                    None => return Ok(None),
                },
                _ => {
                    let after = self.class_end(pattern)?;
                    match self.pattern.get(after) {
                        Some(b'?') => {
                            if self.matches_one(at, pattern, after)
                                && let Some(end) = self.run(at + 1, after + 1)?
                            {
                                return Ok(Some(end));
                            }
                            pattern = after + 1;
                        }
                        Some(b'+') => {
                            if !self.matches_one(at, pattern, after) {
                                return Ok(None);
                            }
                            return self.longest(at + 1, pattern, after);
                        }
                        Some(b'*') => return self.longest(at, pattern, after),
                        Some(b'-') => return self.shortest(at, pattern, after),
                        _ if self.matches_one(at, pattern, after) => (at, pattern) = (at + 1, after),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn longest(&mut self, at: usize, class: usize, after: usize) -> Result<Option<usize>> {
        let mut count = 0;
        while self.matches_one(at + count, class, after) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(end) = self.run(at + count, after + 1)? {
                return Ok(Some(end));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest(&mut self, mut at: usize, class: usize, after: usize) -> Result<Option<usize>> {
        loop {
            if let Some(end) = self.run(at, after + 1)? {
                return Ok(Some(end));
            }
            if !self.matches_one(at, class, after) {
                return Ok(None);
            }
            self.step()?;
            at += 1;
        }
    }

    fn open(&mut self, at: usize, pattern: usize, length: Length) -> Result<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err("too many captures".to_owned());
        }
        self.captures.push((at, length));
        let end = self.run(at, pattern)?;
        if end.is_none() {
            self.captures.pop();
        }
        Ok(end)
    }

    fn close(&mut self, at: usize, pattern: usize) -> Result<Option<usize>> {
        let Some(open) = self.captures.iter().rposition(|(_, length)| *length == Length::Open) else {
            return Err("invalid pattern capture".to_owned());
        };
        let start = self.captures[open].0;
        self.captures[open].1 = Length::Closed(at - start);
        let end = self.run(at, pattern)?;
        if end.is_none() {
            self.captures[open].1 = Length::Open;
        }
        Ok(end)
    }

    fn balanced(&mut self, at: usize, pattern: usize) -> Result<Option<usize>> {
        let (Some(&opens), Some(&closes)) = (self.pattern.get(pattern), self.pattern.get(pattern + 1)) else {
            return Err("malformed pattern (missing arguments to '%b')".to_owned());
        };
        if self.subject.get(at) != Some(&opens) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (i, &byte) in self.subject.iter().enumerate().skip(at + 1) {
            self.step()?;
            if byte == closes {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(i + 1));
                }
            } else if byte == opens {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, at: usize, digit: u8) -> Result<Option<usize>> {
        let index = usize::from(digit.wrapping_sub(b'1'));
        let Some((start, Length::Closed(length))) = self.captures.get(index).copied() else {
            return Err(format!("invalid capture index %{}", u32::from(digit - b'0')));
        };
        self.count(length);
        self.step()?;
        let captured = self.subject.get(start..start + length);
        let here = self.subject.get(at..at + length);
        Ok((here.is_some() && here == captured).then_some(at + length))
    }

    /// The position after the single class that begins at `pattern`.
    fn class_end(&self, pattern: usize) -> Result<usize> {
        let mut at = pattern + 1;
        match self.pattern.get(pattern) {
            Some(b'%') => match self.pattern.get(at) {
                Some(_) => Ok(at + 1),
                None => Err("malformed pattern (ends with '%')".to_owned()),
            },
            Some(b'[') => {
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // The first byte of a set always stands for itself.
                let mut first = true;
                loop {
                    match self.pattern.get(at) {
                        None => return Err("malformed pattern (missing ']')".to_owned()),
                        Some(b']') if !first => {
                            self.count(at - pattern);
                            return Ok(at + 1);
                        }
                        Some(b'%') => at += 2,
                        Some(_) => at += 1,
                    }
                    first = false;
                }
            }
            _ => Ok(at),
        }
    }

    fn matches_one(&self, at: usize, class: usize, after: usize) -> bool {
        let Some(&byte) = self.subject.get(at) else { return false };
        match self.pattern.get(class) {
            Some(b'.') => true,
            Some(b'%') => self.pattern.get(class + 1).is_some_and(|class| in_class(byte, *class)),
            Some(b'[') => self.in_set(byte, class, after),
            Some(other) => *other == byte,
            None => false,
        }
    }

    /// Whether a byte is in the set between `[` at `set` and the position `after` its `]`.
    fn in_set(&self, byte: u8, set: usize, after: usize) -> bool {
        let mut members = self.pattern.get(set + 1..after - 1).unwrap_or_default();
        self.count(members.len());
        let mut wanted = true;
        if let Some((b'^', rest)) = members.split_first() {
            (wanted, members) = (false, rest);
        }
        loop {
            match members {
                [] => return !wanted,
                [b'%', class, rest @ ..] => {
                    if in_class(byte, *class) {
                        return wanted;
                    }
                    members = rest;
                }
                [low, b'-', high, rest @ ..] => {
                    if (*low..=*high).contains(&byte) {
                        return wanted;
                    }
                    members = rest;
                }
                [member, rest @ ..] => {
                    if *member == byte {
                        return wanted;
                    }
                    members = rest;
                }
            }
        }
    }
}

/// Whether a byte is in the class of a letter; a letter in upper case stands for the bytes outside the class.
fn in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}
