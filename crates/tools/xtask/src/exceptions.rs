//! The list of files and functions that are longer than the rules allow, each with its reason. It may only shrink:
//! an entry that is not needed any more, or whose number is too high, is an error.

use std::collections::BTreeMap;
use std::path::Path;

/// The list, from the repository's root.
pub const FILE: &str = "crates/tools/xtask/tidy-exceptions.txt";

const HEAD: &str =
    "# Files over 1,000 production lines, functions over 70 and files in circles of a crate, each with the reason that it is so.
# This list may only shrink: `cargo xtask tidy` refuses an entry that is no longer needed or too generous.
# file PATH LINES reason | fn PATH::NAME LINES reason | circles CRATE FILES reason
";

/// The subject of an entry: `file PATH` or `fn PATH::NAME`.
pub type Key = (String, String);

/// One entry of the list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The line of the list, from 1.
    pub line: usize,
    /// How many lines are granted.
    pub lines: usize,
    /// Why.
    pub reason: String,
}

/// Reads the list; a malformed line is reported by its number.
///
/// # Errors
/// That of the system when the list cannot be read for another reason than that it does not exist.
pub fn read(root: &Path) -> std::io::Result<(BTreeMap<Key, Entry>, Vec<usize>)> {
    let text = match std::fs::read_to_string(root.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut entries = BTreeMap::new();
    let mut malformed = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let mut fields = line.splitn(4, ' ');
        let (kind, target, lines, reason) = (fields.next(), fields.next(), fields.next(), fields.next());
        match (kind, target, lines.and_then(|lines| lines.parse().ok()), reason) {
            (Some(kind @ ("file" | "fn" | "circles")), Some(target), Some(lines), Some(reason))
                if !reason.trim().is_empty() =>
            {
                let entry = Entry { line: index + 1, lines, reason: reason.trim().to_string() };
                entries.insert((kind.to_string(), target.to_string()), entry);
            }
            _ => malformed.push(index + 1),
        }
    }
    Ok((entries, malformed))
}

/// Writes the list anew from the present lengths; existing reasons stay.
///
/// # Errors
/// That of the system when the list cannot be written.
pub fn write(
    root: &Path,
    known: &BTreeMap<Key, Entry>,
    too_long: &BTreeMap<Key, usize>,
) -> std::io::Result<usize> {
    let mut text = HEAD.to_string();
    for (key, lines) in too_long {
        let reason = known.get(key).map_or("(say why)", |entry| entry.reason.as_str());
        text.push_str(&format!("{} {} {lines} {reason}\n", key.0, key.1));
    }
    std::fs::write(root.join(FILE), text)?;
    Ok(too_long.len())
}
