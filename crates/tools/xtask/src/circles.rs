//! Files of a crate that use each other in a circle. Nobody can read one of them alone, and none can be moved alone.
//!
//! Seen are the paths of `use`, and those that begin with `crate::` or `super::` elsewhere, as text: a name that a module re-exports
//! counts for the file that it comes from.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// Files that a file uses, each with the paths from the crate's root that name something of it.
pub type Uses<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// The production files of one crate by module path (`["a", "b"]`; of lib.rs: none).
#[derive(Default)]
pub struct Modules<'a> {
    files: BTreeMap<Vec<String>, (&'a str, &'a Source)>,
}

impl<'a> Modules<'a> {
    /// Adds a file, whose path is given from the crate's `src/`.
    pub fn add(&mut self, within: &str, path: &'a str, source: &'a Source) {
        let within = within.trim_end_matches(".rs");
        let mut parts: Vec<String> = within.split('/').map(str::to_owned).collect();
        if parts.last().is_some_and(|last| last == "mod")
            || matches!(parts.as_slice(), [one] if one == "lib" || one == "main")
        {
            parts.pop();
        }
        self.files.insert(parts, (path, source));
    }

    /// The files that each file uses, with the paths that it names of them.
    pub fn uses(&self) -> BTreeMap<&'a str, Uses<'a>> {
        let of_file = |(module, (file, source)): (&Vec<String>, &(&'a str, &'a Source))| {
            let mut used = Uses::new();
            for path in paths(source, module) {
                if let Some(other) = self.resolve(&path, 4).filter(|other| other != file) {
                    used.entry(other).or_default().insert(path.join("::"));
                }
            }
            (*file, used)
        };
        self.files.iter().map(of_file).collect()
    }

    /// The files that a circle ties together, one set a circle.
    pub fn circles(&self) -> Vec<Vec<&'a str>> {
        let edges: BTreeMap<&str, BTreeSet<&str>> =
            self.uses().into_iter().map(|(file, used)| (file, used.into_keys().collect())).collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            edges.keys().map(|file| (*file, reach(&edges, file))).collect();
        let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (file, from_here) in &reached {
            let tied: Vec<&str> =
                from_here.iter().copied().filter(|other| reached[other].contains(file)).collect();
            if tied.len() > 1 {
                circles.insert(tied);
            }
        }
        circles.into_iter().collect()
    }

    /// The file that a path from the crate's root names something of.
    fn resolve(&self, path: &[String], hops: usize) -> Option<&'a str> {
        let deepest = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (file, source) = self.files[&path[..deepest]];
        let Some(name) = path.get(deepest) else {
            // A module as a whole: its user names something of it later.
            return Some(file);
        };
        let hop = hops.checked_sub(1)?;
        let module = &path[..deepest];
        match exported(source, module).into_iter().find(|(known, _)| known == name) {
            Some((_, from)) if from != path => self.resolve(&from, hop),
            _ => Some(file),
        }
    }
}

fn reach<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        for used in edges.get(file).into_iter().flatten() {
            if seen.insert(*used) {
                next.push(used);
            }
        }
    }
    seen
}

/// The paths from the crate's root that a file names, of production code. Items that it only re-exports are not used.
fn paths(source: &Source, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, root) in ["use ", "crate::", "super::"].iter().flat_map(|root| source.code.match_indices(root)) {
        let before = &source.code[..at];
        let is_inside = before.ends_with(|ch: char| ch.is_alphanumeric() || "_:$".contains(ch));
        let is_of_use = root != "use " && before.ends_with("use ");
        if is_inside || is_of_use || is_public(before) || source.is_test(source.line_of(at)) {
            continue;
        }
        let path = source.code[at..].trim_start_matches("use ");
        expand(path, &[], &mut |path| found.extend(absolute(path, module)));
    }
    found
}

/// Whether the line of an item begins with `pub`.
fn is_public(before: &str) -> bool {
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    before[line_start..].trim_start().starts_with("pub") && before.trim_end().ends_with(['b', ')'])
}

/// The names that a module re-exports, with the paths that they come from.
fn exported(source: &Source, module: &[String]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for at in source.words("use") {
        if !is_public(&source.code[..at]) {
            continue;
        }
        expand(source.code[at + 3..].trim_start(), &[], &mut |path| {
            let (Some(name), Some(from)) = (path.last().cloned(), absolute(path, module)) else { return };
            found.push((name, from));
        });
    }
    found
}

/// A path from the crate's root. One without `crate` or `super` is of this module, or of another crate, which no file has.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let (root, mut rest) = path.split_first()?;
    let mut base = match root.as_str() {
        "crate" => Vec::new(),
        "super" => {
            let mut base = module.to_vec();
            base.pop()?;
            while let Some(("super", others)) =
                rest.split_first().map(|(first, others)| (first.as_str(), others))
            {
                base.pop()?;
                rest = others;
            }
            base
        }
        "self" => module.to_vec(),
        _ => {
            rest = path;
            module.to_vec()
        }
    };
    base.extend_from_slice(rest);
    Some(base)
}

/// Gives every path of a tree such as `a::{b, c::d as e}` at the beginning of `code`; returns the rest.
fn expand<'t>(code: &'t str, before: &[String], give: &mut dyn FnMut(&[String])) -> &'t str {
    let mut path = before.to_vec();
    let mut rest = code.trim_start();
    loop {
        let end = rest.find(|ch: char| !(ch.is_alphanumeric() || ch == '_')).unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
        let Some(after) = rest.strip_prefix("::") else { break };
        rest = after;
        if let Some(mut inner) = rest.strip_prefix('{') {
            loop {
                inner = expand(inner, &path, give).trim_start();
                // `as name`, and text that is no path.
                let next = inner.find([',', '}']).unwrap_or(inner.len());
                let separator = inner[next..].chars().next();
                inner = inner.get(next + 1..).unwrap_or("");
                if separator != Some(',') {
                    return inner;
                }
            }
        }
    }
    if path.len() > before.len() {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        give(&path);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources: Vec<Source> = files.iter().map(|(_, text)| Source::new(text)).collect();
        let mut modules = Modules::default();
        for ((path, _), source) in files.iter().zip(&sources) {
            modules.add(path, path, source);
        }
        let owned = |circle: Vec<&str>| circle.into_iter().map(str::to_owned).collect();
        modules.circles().into_iter().map(owned).collect()
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let files = [
            ("a.rs", "use crate::b::{self, Two};\n"),
            ("b.rs", "fn f() { crate::a::one() }\n"),
            ("lib.rs", ""),
        ];
        assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
        let tests_do_not_count = [
            ("a.rs", "use crate::b::Two;\n"),
            ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::One;\n}\n"),
            ("lib.rs", ""),
        ];
        assert_eq!(circles_of(&tests_do_not_count), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_name_counts_for_the_file_that_it_comes_from() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::One;\npub(crate) use b::Two as Second;\n"),
            ("a.rs", "use crate::b::Two;\n"),
            ("b.rs", "use crate::One;\n"),
        ];
        assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
        let without = [files[0], files[1], ("b.rs", "use std::fmt;\n")];
        assert_eq!(circles_of(&without), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_module_and_its_children() {
        let files = [("lib.rs", ""), ("m/mod.rs", "mod x;\nuse x::X;\n"), ("m/x.rs", "use super::M;\n")];
        assert_eq!(circles_of(&files), [["m/mod.rs", "m/x.rs"]]);
    }
}
