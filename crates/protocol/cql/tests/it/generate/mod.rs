//! Makes trees out of bytes: every byte is one decision, so that proptest shrinks a tree by shrinking its bytes.
//!
//! Only trees that some text has are made: no tuple is empty, no sum is the operand of a product, and so on.

mod dml;
mod schema;
mod terms;

pub use schema::statement;

/// The bytes that decide; 0 for ever at the end, which is the smallest choice everywhere.
pub struct Entropy<'a> {
    bytes: std::slice::Iter<'a, u8>,
    depth: u32,
}

impl<'a> Entropy<'a> {
    pub fn new(bytes: &'a [u8]) -> Entropy<'a> {
        Entropy { bytes: bytes.iter(), depth: 0 }
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        let wide = if count > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % count
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn chance(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.chance() { Some(make(self)) } else { None }
    }

    /// `least` items or a few more.
    fn list<T>(&mut self, least: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.below(3);
        (0..count).map(|_| make(self)).collect()
    }

    /// One level deeper; `leaf` when that is deep enough.
    fn nest<T>(&mut self, leaf: impl FnOnce(&mut Self) -> T, make: impl FnOnce(&mut Self) -> T) -> T {
        if self.depth >= 5 {
            return leaf(self);
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        made
    }
}

/// Words that are hard for a parser: keywords of every class, and text that looks like other tokens.
const WORDS: &[&str] = &[
    "a",
    "b",
    "c1",
    "key",
    "json",
    "distinct",
    "as",
    "per",
    "ttl",
    "writetime",
    "maxwritetime",
    "count",
    "cast",
    "token",
    "set",
    "list",
    "map",
    "tuple",
    "vector",
    "frozen",
    "int",
    "text",
    "uuid",
    "varchar",
    "timestamp",
    "select",
    "from",
    "where",
    "and",
    "in",
    "is",
    "not",
    "null",
    "if",
    "exists",
    "using",
    "with",
    "on",
    "true",
    "false",
    "nan",
    "infinity",
    "compact",
    "storage",
    "clustering",
    "order",
    "by",
    "group",
    "limit",
    "allow",
    "filtering",
    "bypass",
    "timeout",
    "expr",
    "values",
    "keys",
    "entries",
    "full",
    "all",
    "role",
    "function",
    "mbean",
    "tables",
    "types",
    "cluster",
    "schema",
    "keyspace",
    "only",
    "table",
    "type",
    "static",
    "masked",
    "default",
    "primary",
    "check",
    "like",
    "between",
    "contains",
    "ann",
    "of",
    "unmask",
    "select_masked",
    "to",
    "drop",
    "alter",
    "add",
    "rename",
    "let",
    "transaction",
    "mutation_fragments",
    "service",
    "level",
    "byte",
    "date",
    "interval",
    "unset",
    "asc",
    "desc",
    "A",
    "Foo",
    "P1Y",
    "SELECT",
    "with space",
    "qu\"ote",
    "\"",
    "'",
    "1a",
    "1",
    "é",
    "$$",
    "--",
    "a.b",
    "_x",
    "x_",
    "\n",
];

/// Any name but the empty one.
pub fn name(e: &mut Entropy) -> String {
    if e.chance() { e.of(&["a", "b", "k", "v"]).to_owned() } else { e.of(WORDS).to_owned() }
}

/// Any text.
pub fn text(e: &mut Entropy) -> String {
    let words =
        ["", "x", "it's", "''", "$$", "a$", "$", "\"", "-- c", "/*", "\n", "\u{20ac}", "?", ":x", "a b"];
    let mut out = String::new();
    for _ in 0..e.below(4) {
        out.push_str(e.of(&words));
    }
    out
}

/// The debug text of a tree without the numbers of its markers and all positions, which a made tree lacks.
pub fn shape(tree: &impl std::fmt::Debug) -> String {
    let debug = format!("{tree:?}");
    let mut out = String::with_capacity(debug.len());
    let mut rest = debug.as_str();
    while let Some((at, label)) = ["pos: ", "index: "].iter().filter_map(|l| Some((rest.find(l)?, l))).min() {
        let end = at + label.len();
        out.push_str(&rest[..end]);
        rest = rest[end..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ':');
    }
    out.push_str(rest);
    out
}
