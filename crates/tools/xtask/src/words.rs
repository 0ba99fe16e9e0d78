//! Words that readers of Cassandra, ScyllaDB or Raft would not recognise, each with the field's term and how often it may
//! still stand in the repository. The numbers only shrink: `cargo xtask tidy --write-exceptions` lowers them, and a reviewer
//! adds another such word as a line.

use std::collections::BTreeMap;
use std::path::Path;

/// The list, from the repository's root.
pub const FILE: &str = "crates/tools/xtask/tidy-words.txt";

/// One refused word or phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line of the list, from 1.
    pub line: usize,
    /// How often it may stand in the repository.
    pub allowed: usize,
    /// The word or phrase, matched as whole words, and also with a capital first letter.
    pub word: String,
    /// It is refused in comments of Rust only, outside of code in them.
    pub in_comments: bool,
    /// The field's term.
    pub instead: String,
}

/// The begin of a comment, and of a word that is refused in comments.
const COMMENT: &str = "//";

/// A line of the list that cannot be read.
pub type Malformed = usize;

/// Reads the list: `ALLOWED | word | the field's term`, comments with `#`; `// word` is refused in comments only.
pub fn parse(text: &str) -> (Vec<Refused>, Vec<Malformed>) {
    let (mut refused, mut malformed) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        match fields[..] {
            [allowed, word, instead] if !word.is_empty() && !instead.is_empty() => {
                let Ok(allowed) = allowed.parse() else {
                    malformed.push(index + 1);
                    continue;
                };
                let in_comments = word.starts_with(COMMENT);
                let (word, instead) = (word.to_owned(), instead.to_owned());
                refused.push(Refused { line: index + 1, allowed, word, in_comments, instead });
            }
            _ => malformed.push(index + 1),
        }
    }
    (refused, malformed)
}

/// The places of refused words: by word, paths and lines.
pub type Places = BTreeMap<String, Vec<(String, usize)>>;

/// Adds the places of a file. The words of an identifier are words, too.
pub fn find(refused: &[Refused], path: &str, text: &str, places: &mut Places) {
    for (index, line) in text.lines().enumerate() {
        let prose = prose_of_comment(path, line);
        let line = line.replace('_', " ");
        for Refused { word, in_comments, .. } in refused {
            let spaced = word.trim_start_matches(COMMENT).trim_start().replace('_', " ");
            let line = if *in_comments { &prose } else { &line };
            let count = occurrences(line, &spaced) + occurrences(line, &capitalised(&spaced));
            for _ in 0..count {
                places.entry(word.clone()).or_default().push((path.to_owned(), index + 1));
            }
        }
    }
}

/// A line that is a comment of Rust, without code in it; empty for others.
fn prose_of_comment(path: &str, line: &str) -> String {
    if !path.ends_with(".rs") || !line.trim_start().starts_with(COMMENT) {
        return String::new();
    }
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// How often a line has this as whole words.
fn occurrences(line: &str, word: &str) -> usize {
    let is_part = char::is_alphanumeric;
    line.match_indices(word)
        .filter(|(at, found)| {
            let before = line[..*at].chars().next_back();
            let after = line[at + found.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
        .count()
}

/// The word at the begin of a sentence; a word that begins with a capital is the same, and is not counted twice.
fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    match chars.next() {
        Some(first) if first.is_lowercase() => first.to_uppercase().chain(chars).collect(),
        _ => "\0".to_owned(),
    }
}

/// Lowers the allowed counts to the present ones; the lines keep their order, and comments stay.
///
/// # Errors
/// That of the system when the list cannot be read or written.
pub fn lower(root: &Path, places: &Places) -> std::io::Result<()> {
    let text = std::fs::read_to_string(root.join(FILE))?;
    let (refused, _) = parse(&text);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for Refused { line, allowed, word, instead, .. } in refused {
        let found = places.get(&word).map_or(0, Vec::len);
        lines[line - 1] = format!("{} | {word} | {instead}", found.min(allowed));
    }
    std::fs::write(root.join(FILE), lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_are_found_wherever_they_stand() {
        let (refused, malformed) = parse("# head\n2 | frobbed | fixed\n0 | foo bar | acknowledged\nx | y\n");
        assert_eq!(malformed, [4]);
        assert_eq!((refused[0].allowed, refused[1].word.as_str()), (2, "foo bar"));
        let mut places = Places::new();
        let text = "Frobbed, frobbed and unfrobbed; afrobbed\nfoo bars\na foo bar, foo bar.\nfn afoo_bar_foo_bar()\n";
        find(&refused, "a.rs", text, &mut places);
        assert_eq!(places["frobbed"], [("a.rs".to_owned(), 1), ("a.rs".to_owned(), 1)]);
        assert_eq!(
            places["foo bar"],
            [("a.rs".to_owned(), 3), ("a.rs".to_owned(), 3), ("a.rs".to_owned(), 4)]
        );
    }

    #[test]
    fn words_of_comments_are_free_in_code() {
        let (refused, _) = parse("0 | // whoever | the noun\n");
        let mut places = Places::new();
        let text = "let whoever = 1;\n    // Whoever reads, whoever writes.\n    /// Is `whoever`.\n";
        find(&refused, "a.rs", text, &mut places);
        find(&refused, "a.md", "// whoever", &mut places);
        assert_eq!(places["// whoever"], [("a.rs".to_owned(), 2), ("a.rs".to_owned(), 2)]);
    }
}
