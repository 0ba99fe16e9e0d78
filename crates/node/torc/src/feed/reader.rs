//! Reads a log in the order of its writes: slice of time after slice, each from all streams of its generation, of bounded size.
//!
//! The log is behind [`ChangeLog`], so that tests have one in memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::feed::change::{Base, Change, LogRow, WriteRows, changes};
use crate::feed::position::{self, Position, Time};

const MICROS: i64 = 1_000_000;
/// Rows may be gone so long before their time to live has ended by the clock of the queried node.
const EXPIRY_MARGIN_MICROS: i64 = MICROS;

/// Streams that one query reads.
const STREAMS_AT_ONCE: usize = 64;

/// An error of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The node cannot be reached or cannot answer now: another attempt may succeed.
    Transient(String),
    /// The role may not do this.
    Denied(String),
    /// There is no such role with this password, or none was named.
    NoLogin(String),
    /// The same request fails again.
    Final(String),
}

/// A table's log of changes.
pub trait ChangeLog {
    /// Microseconds since 1970 by the cluster's clock.
    fn now_micros(&mut self) -> Result<i64, Failure>;
    /// The table as it is now.
    fn base(&mut self) -> Result<Base, Failure>;
    /// The starts of all generations of streams, milliseconds since 1970, in any order.
    fn generations(&mut self) -> Result<Vec<i64>, Failure>;
    /// The streams of a generation.
    fn streams(&mut self, start_millis: i64) -> Result<Vec<[u8; 16]>, Failure>;
    /// Gives the rows of streams from a time to before another to `take`, until that returns false.
    fn rows(
        &mut self,
        streams: &[[u8; 16]],
        from: Time,
        to: Time,
        take: &mut dyn FnMut(LogRow) -> bool,
    ) -> Result<(), Failure>;
}

/// The place at which a reader begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest change that the log has.
    Oldest,
    /// The changes after now.
    Now,
    /// The changes from a time on, microseconds since 1970.
    Time(i64),
    /// The changes behind one that was read before.
    Token(String),
}

impl std::str::FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "oldest" => return Ok(Self::Oldest),
            "now" => return Ok(Self::Now),
            _ => {}
        }
        // A token has more digits than any time.
        if text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            let millis: i64 = text.parse().map_err(|error| format!("{text}: {error}"))?;
            return Ok(Self::Time(millis.saturating_mul(1_000)));
        }
        position::decode(text).map(|_| Self::Token(text.to_owned()))
    }
}

/// Limits of a reader.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How old a change is before it is shown: writes that are under way arrive meanwhile.
    pub window: Duration,
    /// Bytes of the log's rows that are held at once. One write with more is held as a whole.
    pub held_bytes_max: usize,
}

/// A reader of one table's changes.
pub struct Reader {
    base: Base,
    limits: Limits,
    position: Position,
    /// It begins with the rows that are about to expire: those may be gone.
    is_oldest: bool,
    /// The streams of the generation that is read, by its start.
    streams: Option<(i64, Vec<[u8; 16]>)>,
    ready: VecDeque<Change>,
}

/// The rows of a slice of time.
struct Slice {
    from: Position,
    /// The first time that does not belong to it.
    end: Time,
    writes: BTreeMap<(Time, [u8; 16]), WriteRows>,
    bytes: usize,
    bytes_max: usize,
}

impl Slice {
    /// Adds a row; false when the slice has become shorter.
    fn add(&mut self, row: LogRow) -> bool {
        if row.time >= self.end || row.time < self.from.time {
            return true;
        }
        self.bytes += row.bytes();
        let rows = self.writes.entry((row.time, row.stream)).or_default();
        // The same row comes again when a query is repeated for the shorter slice.
        if let Some(same) = rows.insert(row.number, row) {
            self.bytes -= same.bytes();
        }
        self.bytes <= self.bytes_max || !self.shorten()
    }

    /// Drops the later half of the rows. False when all are of one time.
    fn shorten(&mut self) -> bool {
        let Some(first) = self.writes.keys().next().map(|(time, _)| *time) else { return false };
        if self.writes.keys().next_back().is_some_and(|(last, _)| *last == first) {
            return false;
        }
        let mut bytes = 0;
        let mut cut = None;
        for ((time, _), rows) in &self.writes {
            if bytes > self.bytes_max / 2 && *time > first {
                cut = Some(*time);
                break;
            }
            bytes += rows.values().map(LogRow::bytes).sum::<usize>();
        }
        let last = self.writes.keys().next_back().map(|(time, _)| *time);
        let Some(cut) = cut.or(last.filter(|last| *last > first)) else { return false };
        let dropped = self.writes.split_off(&(cut, [0; 16]));
        self.bytes -= dropped.values().flat_map(BTreeMap::values).map(LogRow::bytes).sum::<usize>();
        self.end = cut;
        true
    }
}

impl Reader {
    /// A reader that begins at a place.
    ///
    /// # Errors
    /// When the log cannot be read, and when a token is malformed, of another table or older than the log's rows.
    pub fn open(log: &mut impl ChangeLog, from: &From, limits: Limits) -> Result<Self, Failure> {
        let base = log.base()?;
        // A role without the permission is refused now, not in the middle of an answer.
        let (never, after) = (Time::of_micros(0), Time::of_micros(1));
        log.rows(&[[0; 16]], never, after, &mut |_| false)?;
        let now = log.now_micros()?;
        let mut is_oldest = false;
        let position = match from {
            From::Now => Position::before(Time::of_micros(now)),
            From::Time(micros) => Position::before(Time::of_micros(*micros)),
            From::Oldest => {
                is_oldest = true;
                let first = log.generations()?.into_iter().min().unwrap_or(0);
                let expired = base.ttl_micros.map_or(i64::MIN, |ttl| now.saturating_sub(ttl));
                Position::before(Time::of_micros(first.saturating_mul(1_000).max(expired)))
            }
            From::Token(token) => {
                let (table, position) = position::decode(token).map_err(Failure::Final)?;
                if table != base.log {
                    return Err(Failure::Final(format!(
                        "the token is of another table than {}, perhaps of one of its name that was dropped: begin with 'oldest'",
                        base.name
                    )));
                }
                position
            }
        };
        // Clocks differ by some seconds, and nobody has seen a change of a later time.
        let ahead = i64::try_from(limits.window.as_micros()).unwrap_or(i64::MAX).saturating_add(60_000_000);
        if position.time.micros() > now.saturating_add(ahead) {
            return Err(Failure::Final("the place to begin at is in the future".to_owned()));
        }
        let reader = Self { base, limits, position, is_oldest, streams: None, ready: VecDeque::new() };
        reader.check_expiry(now)?;
        Ok(reader)
    }

    /// The token of the present place.
    pub fn token(&self) -> String {
        let position = self.ready.front().map_or(self.position, |change| change.position);
        position::encode(self.base.log, position)
    }

    /// The next change; none when there is no further one that is old enough.
    ///
    /// # Errors
    /// When the log cannot be read, and when its rows have expired before they were read.
    pub fn next(&mut self, log: &mut impl ChangeLog) -> Result<Option<Change>, Failure> {
        // The clock advances while slices are read: it is the last slice that ends with the present, not an empty one.
        while self.ready.is_empty() && self.read_slice(log)? {}
        Ok(self.ready.pop_front())
    }

    /// Refuses to go on where rows of the log may have expired.
    fn check_expiry(&self, now: i64) -> Result<(), Failure> {
        let Some(ttl) = self.base.ttl_micros.filter(|_| !self.is_oldest) else { return Ok(()) };
        let (at, oldest) = (self.position.time.micros(), now.saturating_sub(ttl));
        // Rows expire by whole seconds, and the clocks of replicas differ a little.
        if at.div_euclid(MICROS) * MICROS >= oldest.saturating_add(EXPIRY_MARGIN_MICROS) {
            return Ok(());
        }
        Err(Failure::Final(format!(
            "the log of {} has its rows for {} s: the changes that were written from {} to {} (milliseconds since 1970) are lost to this reader. \
             Begin with 'oldest' or a later time, and read the table for what is missing",
            self.base.name,
            ttl / 1_000_000,
            at.div_euclid(1_000),
            oldest.div_euclid(1_000)
        )))
    }

    /// Reads on; false when all is read that was old enough at the beginning.
    fn read_slice(&mut self, log: &mut impl ChangeLog) -> Result<bool, Failure> {
        let base = log.base()?;
        if base.log != self.base.log {
            return Err(Failure::Final(format!("the table {} was dropped", self.base.name)));
        }
        self.base = base;
        // The clock is read before the generations: one that is not among them begins later.
        let now = log.now_micros()?;
        self.check_expiry(now)?;
        let window = i64::try_from(self.limits.window.as_micros()).unwrap_or(i64::MAX);
        let until = Time::of_micros(now.saturating_sub(window));
        let mut starts = log.generations()?;
        starts.sort_unstable();
        let begin = |start: &i64| Time::of_micros(start.saturating_mul(1_000));
        let begun = starts.partition_point(|start| begin(start) <= self.position.time);
        // Before the first generation there are no changes.
        let Some(start) = starts.get(begun.saturating_sub(1)).copied() else { return Ok(false) };
        let end = starts.get(begun.max(1)).map_or(until, |next| begin(next).min(until));
        if self.position.time >= end {
            return Ok(false);
        }
        if self.streams.as_ref().is_none_or(|(known, _)| *known != start) {
            self.streams = Some((start, log.streams(start)?));
        }
        let streams = self.streams.as_ref().map_or(&[][..], |(_, streams)| streams);
        let mut slice = Slice {
            from: self.position,
            end,
            writes: BTreeMap::new(),
            bytes: 0,
            bytes_max: self.limits.held_bytes_max,
        };
        for streams in streams.chunks(STREAMS_AT_ONCE) {
            loop {
                let mut is_whole = true;
                let to = slice.end;
                log.rows(streams, slice.from.time, to, &mut |row| {
                    is_whole = slice.add(row);
                    is_whole
                })?;
                if is_whole {
                    break;
                }
            }
        }
        // Rows may have expired while they were read.
        let now = log.now_micros()?;
        self.check_expiry(now)?;
        self.is_oldest = false;
        let found = slice.writes.values().flat_map(|rows| changes(&self.base, rows));
        self.ready.extend(found.filter(|change| change.position >= slice.from));
        self.position = Position::before(slice.end);
        Ok(slice.end < until)
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
