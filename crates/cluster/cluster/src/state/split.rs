//! A state's JSON without its tables, which are nearly all of it: the rest is decoded at once, and then a table at a time, between
//! which other tasks run. JSON is read by recursion, which cannot stop in the middle.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::steps::Steps;

/// Bytes between two preemption points.
const CHUNK: usize = 16 << 10;

/// Fields on the way to the tables: of the state, of its schema, of a keyspace.
const PATH: [Option<&[u8]>; 5] = [None, Some(b"schema"), Some(b"keyspaces"), None, Some(b"tables")];
/// Arrays and objects around a keyspace, and around a table.
const KEYSPACE_DEPTH: usize = 4;
const TABLE_DEPTH: usize = 5;

/// JSON in two parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// All of it, with empty arrays of tables.
    pub(crate) rest: Vec<u8>,
    /// The elements of these arrays, for each keyspace.
    pub(crate) tables: Vec<Vec<&'a [u8]>>,
}

/// Takes the tables out of JSON, which need not be valid: an error in it is an error of one of the parts.
pub(crate) async fn split<'a>(json: &'a [u8], steps: &mut Steps) -> Split<'a> {
    let mut scan = Scan::new(json);
    let mut begin = 0;
    for chunk in json.chunks(CHUNK) {
        chunk.iter().zip(begin..).for_each(|(byte, at)| scan.take(*byte, at));
        begin += chunk.len();
        steps.made(chunk.len()).await;
    }
    scan.copy_upto(json.len());
    scan.split
}

struct Scan<'a> {
    json: &'a [u8],
    split: Split<'a>,
    /// Open arrays and objects, and how many of them, from outside, are on the way to tables.
    depth: usize,
    on_path: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// Where the last string began, and its content when it has ended.
    string_begin: usize,
    string: &'a [u8],
    /// The last field's name.
    field: &'a [u8],
    /// Up to here the rest is copied.
    copied: usize,
    /// Where an element of an array of tables began.
    element: Option<usize>,
}

impl<'a> Scan<'a> {
    fn new(json: &'a [u8]) -> Self {
        Self {
            json,
            split: Split { rest: Vec::new(), tables: Vec::new() },
            depth: 0,
            on_path: 0,
            is_in_string: false,
            is_escaped: false,
            string_begin: 0,
            string: &[],
            field: &[],
            copied: 0,
            element: None,
        }
    }

    fn slice(&self, from: usize, upto: usize) -> &'a [u8] {
        self.json.get(from..upto).unwrap_or_default()
    }

    fn copy_upto(&mut self, end: usize) {
        let bytes = self.slice(self.copied, end);
        self.split.rest.extend_from_slice(bytes);
        self.copied = end;
    }

    #[inline]
    fn take(&mut self, byte: u8, at: usize) {
        if self.is_in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => {
                    self.is_in_string = false;
                    self.string = self.slice(self.string_begin, at);
                }
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.is_in_string = true;
                self.string_begin = at + 1;
            }
            b':' => self.field = self.string,
            b'{' | b'[' => self.open(byte, at),
            b'}' | b']' => self.close(at),
            b',' if self.is_among_tables() => self.end_element(at),
            _ => {}
        }
    }

    /// In an array of tables, and in none of them.
    fn is_among_tables(&self) -> bool {
        self.on_path == TABLE_DEPTH && self.depth == TABLE_DEPTH
    }

    fn open(&mut self, bracket: u8, at: usize) {
        if self.depth == self.on_path
            && let Some(field) = PATH.get(self.depth)
            && field.is_none_or(|field| field == self.field)
            && (bracket == b'[') == matches!(self.depth, 2 | 4)
        {
            self.on_path += 1;
            match self.on_path {
                KEYSPACE_DEPTH => self.split.tables.push(Vec::new()),
                TABLE_DEPTH => {
                    self.copy_upto(at + 1);
                    self.element = Some(at + 1);
                }
                _ => {}
            }
        }
        self.depth += 1;
    }

    fn close(&mut self, at: usize) {
        if self.is_among_tables() {
            // Of an empty array there is nothing to decode.
            let from = self.element.unwrap_or(at);
            let is_empty = self.copied == from && self.slice(from, at).iter().all(u8::is_ascii_whitespace);
            if !is_empty {
                self.end_element(at);
            }
            self.copied = at;
        }
        self.depth = self.depth.saturating_sub(1);
        self.on_path = self.on_path.min(self.depth);
    }

    fn end_element(&mut self, at: usize) {
        let element = self.slice(self.element.unwrap_or(at), at);
        self.element = Some(at + 1);
        if let Some(tables) = self.split.tables.last_mut() {
            tables.push(element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps;

    fn split_now(json: &str) -> (String, Vec<Vec<&str>>) {
        let split = steps::at_once(split(json.as_bytes(), &mut Steps::none()));
        let rest = String::from_utf8(split.rest).expect("it was text");
        let tables = split.tables.into_iter();
        let tables =
            tables.map(|of| of.into_iter().map(|it| std::str::from_utf8(it).expect("text")).collect());
        (rest, tables.collect())
    }

    #[test]
    fn tables_are_taken_out_and_nothing_else() {
        let json = r#"{"tables":[1],"schema":{"keyspaces":[{"name":"\"tables\":[","tables":[{"a":[1,2]},{"b":"],\\"}],"x":[3]},{"tables":[ ]},{"y":{"tables":[4]}}],"roles":[{"tables":[5]}]},"z":{"keyspaces":[{"tables":[6]}]}}"#;
        let rest = r#"{"tables":[1],"schema":{"keyspaces":[{"name":"\"tables\":[","tables":[],"x":[3]},{"tables":[]},{"y":{"tables":[4]}}],"roles":[{"tables":[5]}]},"z":{"keyspaces":[{"tables":[6]}]}}"#;
        let tables = vec![vec![r#"{"a":[1,2]}"#, r#"{"b":"],\\"}"#], vec![], vec![]];
        assert_eq!(split_now(json), (rest.to_owned(), tables));
    }

    /// Invalid JSON has a part that is invalid.
    #[test]
    fn what_is_no_json_is_none_in_parts() {
        for wrong in [
            r#"{"schema":{"keyspaces":[{"tables":[1,]}]}}"#,
            r#"{"schema":{"keyspaces":[{"tables":[,]}]}}"#,
            r#"{"schema":{"keyspaces":[{"tables":[1 2]}]}}"#,
            r#"{"schema":{"keyspaces":[{"tables":[1}]}}"#,
            r#"{"schema":{"keyspaces":[{"tables":[{}"#,
            r#"{"schema":{"keyspaces":[{"tables":["}]}}"#,
            "]]]}}}{{{",
            "",
        ] {
            let (rest, tables) = split_now(wrong);
            let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
            let all = tables.iter().flatten().all(|it| is_json(it));
            assert!(!is_json(&rest) || !all, "{wrong}: {rest} {tables:?}");
        }
    }
}
