//! The density of a crate's assertions. Only those of release builds count: `assert!`, `assert_eq!` and `assert_ne!`
//! outside tests.

use crate::source::Source;

/// Assertions that are wanted in a thousand lines of code, of the crates whose mistakes cost data.
const WANTED: &[(&str, usize)] = &[
    ("crates/cluster/cluster", 15),
    ("crates/cluster/coordinator", 15),
    ("crates/protocol/paxos", 15),
    ("crates/storage/commitlog", 15),
    ("crates/storage/engine", 15),
    ("crates/storage/hnsw", 15),
    ("crates/storage/sstable", 15),
];

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Lines that are neither blank nor only comment.
    pub lines: usize,
    /// Assertions in them.
    pub assertions: usize,
}

impl Counted {
    /// Assertions in a thousand lines, rounded down.
    pub fn per_thousand(self) -> usize {
        self.assertions * 1000 / self.lines.max(1)
    }
}

/// Assertions that are wanted in a thousand lines of a crate; none for most.
pub fn wanted(krate: &str) -> Option<usize> {
    WANTED.iter().find(|(name, _)| *name == krate).map(|(_, wanted)| *wanted)
}

/// Counts the production code of some files.
pub fn count<'a>(sources: impl Iterator<Item = &'a Source>) -> Counted {
    let mut counted = Counted::default();
    for source in sources {
        let is_code = |(index, line): &(usize, &str)| !line.trim().is_empty() && !source.is_test(index + 1);
        counted.lines += source.code.lines().enumerate().filter(is_code).count();
        for name in ["assert!", "assert_eq!", "assert_ne!"] {
            counted.assertions +=
                source.words(name).filter(|at| !source.is_test(source.line_of(*at))).count();
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_debug_assertions_do_not_count() {
        let text = "fn f() {\n    // assert!(a);\n\n    assert!(a);\n    debug_assert!(b);\n    assert_eq!(\"assert!(c)\", d);\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn g() { assert!(e); }\n}\n";
        let counted = count(std::iter::once(&Source::new(text)));
        assert_eq!(counted, Counted { lines: 5, assertions: 2 });
        assert_eq!(counted.per_thousand(), 400);
    }
}
