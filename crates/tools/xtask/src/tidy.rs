//! Walks the repository and applies every rule; the result is a list of findings, each with its remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::exceptions::{self, Entry, Key};
use crate::size::{self, FILE_LINES_MAX, FUNCTION_LINES_MAX};
use crate::source::Source;
use crate::{assertions, circles, edges, guarantees, manifest, rules, words};

/// Folders that are not part of the repository's text.
const SKIPPED: &[&str] = &["target", "node_modules", "__pycache__", "data"];
/// Text files, beside Rust, that are searched for paths of a developer's machine.
const TEXT: &[&str] =
    &["md", "toml", "sh", "py", "js", "go", "java", "yaml", "yml", "json", "txt", "xml", "cql"];

/// A broken rule.
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The result of a run.
pub struct Outcome {
    /// Files read.
    pub files: usize,
    /// Broken rules, by path and line.
    pub findings: Vec<Finding>,
}

/// The root of the workspace that this program was built from.
pub fn repository_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(3).expect("crates/tools/xtask is three folders below the root").to_path_buf()
}

/// Applies every rule.
///
/// # Errors
/// That of the system when a file of the tree cannot be read.
pub fn check(root: &Path) -> io::Result<Outcome> {
    let tree = Tree::read(root)?;
    let mut findings = tree.rust_findings();
    findings.extend(tree.decoders());
    findings.extend(tree.machine_paths());
    findings.extend(tree.edges());
    findings.extend(tree.architecture());
    findings.extend(tree.guarantees());
    findings.extend(tree.words());
    findings.extend(tree.assertions());
    findings.extend(too_long(root, &tree.sizes())?);
    findings.sort_by(|left, right| (&left.path, left.line).cmp(&(&right.path, right.line)));
    Ok(Outcome { files: tree.files.len(), findings })
}

/// Writes the list of exceptions anew; how many there are.
///
/// # Errors
/// That of the system when a file of the tree cannot be read or the list cannot be written.
pub fn write_exceptions(root: &Path) -> io::Result<usize> {
    let tree = Tree::read(root)?;
    let (known, _) = exceptions::read(root)?;
    words::lower(root, &tree.word_places().1)?;
    let too_long = tree
        .sizes()
        .into_iter()
        .filter(|(key, size)| size.lines > limit(key))
        .map(|(key, size)| (key, size.lines))
        .collect();
    exceptions::write(root, &known, &too_long)
}

/// The circles of files and the density of assertions of every crate, for a reader; of crate `only` also the items that its files in
/// circles use of each other.
///
/// # Errors
/// That of the system when a file of the tree cannot be read.
pub fn shape(root: &Path, only: Option<&str>) -> io::Result<String> {
    let tree = Tree::read(root)?;
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&(line + "\n"));
    for (krate, circles) in tree.circles() {
        for circle in circles {
            let prefix = format!("{krate}/src/");
            let names: Vec<&str> = circle.iter().map(|file| file.trim_start_matches(&prefix)).collect();
            say(format!("{krate}: a circle of {}: {}", circle.len(), names.join(", ")));
            if only == Some(krate.as_str()) {
                for (file, other, paths) in tree.uses_inside(&krate, &circle) {
                    let paths: Vec<String> = paths.into_iter().collect();
                    say(format!("  {file} -> {other}: {}", paths.join(", ")));
                }
            }
        }
    }
    for (krate, files) in tree.crates() {
        let counted = assertions::count(files.into_iter().map(|(_, source)| source));
        let (lines, assertions) = (counted.lines, counted.assertions);
        say(format!(
            "{krate}: {assertions} assertions in {lines} lines of code, {} a thousand",
            counted.per_thousand()
        ));
    }
    Ok(text)
}

fn limit(key: &Key) -> usize {
    match key.0.as_str() {
        "file" => FILE_LINES_MAX,
        "circles" => 0,
        _ => FUNCTION_LINES_MAX,
    }
}

/// Holds sizes against the list of exceptions.
fn too_long(root: &Path, sizes: &BTreeMap<Key, Size>) -> io::Result<Vec<Finding>> {
    let (known, malformed) = exceptions::read(root)?;
    let in_list =
        |line: usize, message: String| Finding { path: exceptions::FILE.to_string(), line, message };
    let mut findings: Vec<Finding> = malformed
        .into_iter()
        .map(|line| {
            in_list(
                line,
                "not `file PATH LINES reason`, `fn PATH::NAME LINES reason` or `circles CRATE FILES reason`"
                    .to_string(),
            )
        })
        .collect();
    for (key, Size { lines, line }) in sizes.iter().filter(|(key, size)| size.lines > limit(key)) {
        if key.0 == "circles" {
            findings.extend(in_circles(key, *lines, known.get(key)));
            continue;
        }
        let (path, name) = key.1.split_once("::").unwrap_or((&key.1, ""));
        let what = if name.is_empty() { "the file".to_string() } else { format!("function `{name}`") };
        let at = |message: String| Finding { path: path.to_string(), line: *line, message };
        match known.get(key) {
            None => findings.push(at(format!("{what} has {lines} lines, over {}: split it", limit(key)))),
            Some(entry) if entry.lines < *lines => {
                findings.push(at(format!("{what} grew from {} to {lines} lines: split it", entry.lines)));
            }
            Some(_) => {}
        }
    }
    for (key, entry) in &known {
        let lines = sizes.get(key).map_or(0, |size| size.lines);
        let Entry { line, lines: granted, .. } = entry;
        if lines <= limit(key) {
            findings.push(in_list(*line, format!("{} {} is no longer needed: remove it", key.0, key.1)));
        } else if lines < *granted {
            findings.push(in_list(*line, format!("{} {} shrank to {lines}: lower the number", key.0, key.1)));
        }
    }
    Ok(findings)
}

/// Files of a crate that stand in circles, when they are more than before.
fn in_circles(key: &Key, files: usize, known: Option<&Entry>) -> Option<Finding> {
    let allowed = known.map_or(0, |entry| entry.lines);
    (files > allowed).then(|| Finding {
        path: key.1.clone(),
        line: 1,
        message: format!(
            "{files} files use each other in circles, {allowed} are allowed (`cargo xtask shape` shows them): move what one needs of the other"
        ),
    })
}

/// How long something is, and where it begins.
#[derive(Clone, Copy)]
struct Size {
    lines: usize,
    line: usize,
}

struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
    /// Rust files only.
    source: Option<Source>,
}

struct Tree {
    files: Vec<File>,
    /// Files that hold nothing but tests.
    tests: BTreeSet<String>,
}

impl Tree {
    fn read(root: &Path) -> io::Result<Tree> {
        let mut files = Vec::new();
        read_folder(root, "", &mut files)?;
        files.sort_by(|left, right| left.path.cmp(&right.path));
        let mut tests = BTreeSet::new();
        for file in &files {
            let Some(source) = &file.source else { continue };
            let in_test_folder =
                file.path.split('/').any(|part| matches!(part, "tests" | "benches" | "fuzz"));
            // `#[path = "…_tests.rs"] mod tests;`
            if in_test_folder || file.path.ends_with("_tests.rs") {
                tests.insert(file.path.clone());
            }
            for name in &source.test_modules {
                tests.extend(module_files(&file.path, name));
            }
        }
        Ok(Tree { files, tests })
    }

    fn rust(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| file.source.as_ref().map(|source| (file, source)))
    }

    fn is_test(&self, path: &str) -> bool {
        self.tests.contains(path)
            || self.tests.iter().any(|test| test.ends_with('/') && path.starts_with(test.as_str()))
    }

    fn rust_findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (file, source) in self.rust() {
            let krate = crate_of(&file.path);
            for broken in rules::check(&file.path, krate, &file.text, source, self.is_test(&file.path)) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: broken.line,
                    message: broken.message,
                });
            }
        }
        findings
    }

    /// Every file that reads bytes from disk or network denies panicking operations on them.
    fn decoders(&self) -> Vec<Finding> {
        let denying: BTreeSet<&str> = self
            .rust()
            .filter(|(file, _)| file.text.contains(rules::DECODERS_DENY))
            .map(|(file, _)| file.path.as_str())
            .collect();
        let is_open = |file: &File| {
            rules::is_decoder(&file.path)
                && !rules::with_attributes_for(&file.path).iter().any(|holder| denying.contains(&**holder))
        };
        let production = self.rust().filter(|(file, _)| !self.is_test(&file.path));
        let open = production.filter(|(file, _)| file.path.starts_with("crates/") && is_open(file));
        open.map(|(file, _)| Finding {
            path: file.path.clone(),
            line: 1,
            message: format!(
                "it reads bytes from disk or network: it begins with `{}`",
                rules::DECODERS_DENY
            ),
        })
        .collect()
    }

    /// Sizes of every production file and function.
    fn sizes(&self) -> BTreeMap<Key, Size> {
        let mut sizes = BTreeMap::new();
        for (file, source) in self.rust().filter(|(file, _)| !self.is_test(&file.path)) {
            let key = ("file".to_string(), file.path.clone());
            sizes.insert(key, Size { lines: source.production_lines(), line: 1 });
            for function in size::functions(source) {
                let key = ("fn".to_string(), format!("{}::{}", file.path, function.name));
                let size = Size { lines: function.lines, line: function.line };
                let longest = sizes.entry(key).or_insert(size);
                if longest.lines < size.lines {
                    *longest = size;
                }
            }
        }
        for (krate, circles) in self.circles() {
            let lines = circles.iter().map(Vec::len).sum();
            sizes.insert(("circles".to_string(), krate), Size { lines, line: 1 });
        }
        sizes
    }

    /// The production code of each crate.
    fn crates(&self) -> BTreeMap<String, Vec<(&File, &Source)>> {
        let mut crates: BTreeMap<String, Vec<(&File, &Source)>> = BTreeMap::new();
        for (file, source) in self.rust().filter(|(file, _)| !self.is_test(&file.path)) {
            if let Some((krate, _)) = file.path.split_once("/src/")
                && krate.starts_with("crates/")
            {
                crates.entry(krate.to_string()).or_default().push((file, source));
            }
        }
        crates
    }

    /// The production files of each crate as modules.
    fn modules(&self) -> BTreeMap<String, circles::Modules<'_>> {
        let mut all: BTreeMap<String, circles::Modules<'_>> = BTreeMap::new();
        for (krate, files) in self.crates() {
            let modules = all.entry(krate.clone()).or_default();
            for (file, source) in files {
                modules.add(&file.path[krate.len() + "/src/".len()..], &file.path, source);
            }
        }
        all
    }

    /// The uses between the files of a circle of a crate: user, used, paths.
    fn uses_inside(&self, krate: &str, circle: &[&str]) -> Vec<(&str, &str, BTreeSet<String>)> {
        let uses = self.modules().get(krate).map(circles::Modules::uses).unwrap_or_default();
        let pairs = uses
            .into_iter()
            .flat_map(|(file, used)| used.into_iter().map(move |(other, paths)| (file, other, paths)));
        pairs.filter(|(file, other, _)| circle.contains(file) && circle.contains(other)).collect()
    }

    /// The circles of files in each crate that has some.
    fn circles(&self) -> BTreeMap<String, Vec<Vec<&str>>> {
        let mut all = BTreeMap::new();
        for (krate, modules) in self.modules() {
            let circles = modules.circles();
            if !circles.is_empty() {
                all.insert(krate, circles);
            }
        }
        all
    }

    /// Crates that assert less than they have to.
    fn assertions(&self) -> Vec<Finding> {
        let too_few = |(krate, files): (String, Vec<(&File, &Source)>)| {
            let counted = assertions::count(files.into_iter().map(|(_, source)| source));
            let wanted = assertions::wanted(&krate)?;
            (counted.per_thousand() < wanted).then(|| Finding {
                message: format!(
                    "{} assertions in {} lines of code are {} a thousand, and {wanted} are wanted: assert what must hold",
                    counted.assertions, counted.lines, counted.per_thousand()
                ),
                path: krate,
                line: 1,
            })
        };
        self.crates().into_iter().filter_map(too_few).collect()
    }

    /// Paths that exist on one developer's machine only.
    fn machine_paths(&self) -> Vec<Finding> {
        let forbidden = concat!("/wo", "rk/");
        let mut findings = Vec::new();
        for file in &self.files {
            for (index, line) in file.text.lines().enumerate() {
                let absolute = line.match_indices(forbidden).any(|(at, _)| {
                    !line[..at]
                        .ends_with(|before: char| before.is_alphanumeric() || "._-/~}".contains(before))
                });
                if absolute {
                    let message = "a path that exists on one developer's machine only".to_string();
                    findings.push(Finding { path: file.path.clone(), line: index + 1, message });
                }
            }
        }
        findings
    }

    /// Every manifest against the table of edges.
    fn edges(&self) -> Vec<Finding> {
        const TABLE: &str = "crates/tools/xtask/src/edges.rs";
        let mut findings = Vec::new();
        for file in &self.files {
            let krate = crate_of(&file.path);
            if krate.is_empty() || !file.path.ends_with(&format!("/{krate}/Cargo.toml")) {
                continue;
            }
            let mut report = |line: usize, message: String| {
                findings.push(Finding { path: file.path.clone(), line, message })
            };
            let Some(row) = edges::find(krate) else {
                report(1, format!("crate `{krate}` has no row in {TABLE}"));
                continue;
            };
            if file.path != format!("crates/{}/{krate}/Cargo.toml", row.layer) {
                report(1, format!("crate `{krate}` is of layer `{}` in {TABLE}", row.layer));
            }
            let dependencies = manifest::dependencies(&file.text);
            for dependency in &dependencies {
                if let Some(message) = edge_refused(row, dependency) {
                    report(dependency.line, message);
                }
                if !self.is_used(row, dependency) {
                    let name = &dependency.name;
                    report(dependency.line, format!("`{krate}` does not use `{name}`: remove it"));
                }
            }
            for used in row.uses() {
                let is_used =
                    |one: &manifest::Dependency| one.name == used && one.kind == manifest::Kind::Normal;
                if !dependencies.iter().any(is_used) {
                    report(1, format!("`{krate}` does not depend on `{used}`: remove the edge from {TABLE}"));
                }
            }
        }
        findings
    }

    /// Whether a crate's code names a dependency: its sources, and for tests its tests.
    fn is_used(&self, row: &edges::Row, dependency: &manifest::Dependency) -> bool {
        let folder = format!("crates/{}/{}/", row.layer, row.name);
        let sources = format!("{folder}src/");
        let name = dependency.name.replace('-', "_");
        let is_part = |ch: char| ch.is_alphanumeric() || ch == '_';
        self.rust().filter(|(file, _)| file.path.starts_with(&folder)).any(|(file, source)| {
            let may_use = dependency.kind == manifest::Kind::Dev || file.path.starts_with(&sources);
            may_use
                && source.code.match_indices(&name).any(|(at, _)| {
                    let before = source.code[..at].chars().next_back();
                    let after = source.code[at + name.len()..].trim_start();
                    !before.is_some_and(is_part)
                        && ["::", ";", ",", " as "].iter().any(|next| after.starts_with(next))
                })
        })
    }

    /// ARCHITECTURE.md, once it exists, has a section for every crate.
    fn architecture(&self) -> Vec<Finding> {
        let Some(document) = self.files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
            return Vec::new();
        };
        let crates: BTreeSet<&str> =
            self.files.iter().map(|file| crate_of(&file.path)).filter(|krate| !krate.is_empty()).collect();
        let named: BTreeSet<&str> = document
            .text
            .lines()
            .filter(|line| line.starts_with("**") || line.starts_with('#'))
            .flat_map(|line| line.split(|ch: char| !ch.is_alphanumeric() && !"-_".contains(ch)))
            .collect();
        crates
            .into_iter()
            .filter(|krate| !named.contains(krate))
            .map(|krate| Finding {
                path: document.path.clone(),
                line: 1,
                message: format!(
                    "no paragraph begins with **{krate}**: say what it does, its invariants, what it must not know"
                ),
            })
            .collect()
    }
}

impl Tree {
    /// Every test that the table of guarantees names is there.
    fn guarantees(&self) -> Vec<Finding> {
        let table = self.files.iter().find(|file| file.path == guarantees::FILE);
        let missing = table.map(|table| guarantees::missing(&table.text, self)).unwrap_or_default();
        let finding = |(line, what)| Finding {
            path: guarantees::FILE.to_string(),
            line,
            message: format!("'{what}' is no test that is there: name the one that shows this line"),
        };
        missing.into_iter().map(finding).collect()
    }
}

impl Tree {
    /// The refused words, and where they stand in code and documentation.
    fn word_places(&self) -> (Vec<words::Refused>, words::Places, Vec<words::Malformed>) {
        let list = self.files.iter().find(|file| file.path == words::FILE);
        let (refused, malformed) = list.map(|list| words::parse(&list.text)).unwrap_or_default();
        let mut places = words::Places::new();
        let is_text = |path: &str| path.ends_with(".rs") || path.ends_with(".md") || path.ends_with(".py");
        let is_rule = |path: &str| path.starts_with("crates/tools/xtask/");
        for file in self.files.iter().filter(|file| is_text(&file.path) && !is_rule(&file.path)) {
            words::find(&refused, &file.path, &file.text, &mut places);
        }
        (refused, places, malformed)
    }

    /// Refused words that stand more often than they may.
    fn words(&self) -> Vec<Finding> {
        let (refused, places, malformed) = self.word_places();
        let in_list = |line: usize, message: String| Finding { path: words::FILE.to_string(), line, message };
        let unread =
            malformed.into_iter().map(|line| in_list(line, "not `ALLOWED | word | instead`".to_string()));
        let mut findings: Vec<Finding> = unread.collect();
        for words::Refused { line, allowed, word, instead, .. } in refused {
            let found = places.get(&word).map_or(&[][..], Vec::as_slice);
            if found.len() > allowed {
                let last = found.iter().rev().take(3).map(|(path, line)| format!("{path}:{line}"));
                let last = last.collect::<Vec<_>>().join(", ");
                let message = format!(
                    "`{word}` stands {} times, {allowed} are allowed; write: {instead} (the last are {last})",
                    found.len()
                );
                findings.push(in_list(line, message));
            }
        }
        findings
    }
}

impl guarantees::Tests for Tree {
    fn has_file(&self, path: &str) -> bool {
        let (wanted, is_folder) = (path.trim_end_matches('/'), path.ends_with('/'));
        self.files.iter().any(|file| {
            let mut parts = file.path.split('/');
            let begins_so =
                wanted.split('/').all(|part| parts.next().is_some_and(|is| part == "*" || part == is));
            begins_so && parts.next().is_some() == is_folder
        })
    }

    fn says(&self, folder: &str, text: &str) -> bool {
        self.files.iter().any(|file| file.path.starts_with(folder) && file.text.contains(text))
    }
}

/// Why a dependency of a crate may not be there, if so.
fn edge_refused(row: &edges::Row, dependency: &manifest::Dependency) -> Option<String> {
    let (krate, name) = (row.name, dependency.name.as_str());
    if !dependency.from_workspace {
        return Some(format!(
            "`{name}`: declare it in the root Cargo.toml with its reason, and write `{name}.workspace = true`"
        ));
    }
    let is_dev = dependency.kind == manifest::Kind::Dev;
    if let Some(target) = edges::find(name) {
        let allowed = match is_dev {
            true => target.rank() <= row.rank() || edges::DEV_EXTRA.contains(&name),
            false => row.uses().any(|used| used == name),
        };
        return (!allowed).then(|| {
            format!("`{krate}` may not depend on `{name}`: the table is crates/tools/xtask/src/edges.rs")
        });
    }
    edges::RESTRICTED
        .iter()
        .find(|(restricted, users, _)| *restricted == name && !users.contains(&krate) && !is_dev)
        .map(|(_, _, why)| format!("`{krate}` may not use `{name}`: {why}"))
}

/// The crate that a path is in (`crates/<layer>/<crate>/…`), or "".
fn crate_of(path: &str) -> &str {
    let mut parts = path.strip_prefix("crates/").unwrap_or("").splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(krate), Some(_)) => krate,
        _ => "",
    }
}

/// The possible files of `mod name;` in a file; a folder ends with `/`.
fn module_files(parent: &str, name: &str) -> [String; 3] {
    let (folder, file) = parent.rsplit_once('/').unwrap_or(("", parent));
    let stem = file.trim_end_matches(".rs");
    let base =
        if matches!(stem, "lib" | "main" | "mod") { folder.to_string() } else { format!("{folder}/{stem}") };
    [format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs"), format!("{base}/{name}/")]
}

fn read_folder(root: &Path, relative: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(relative))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let hidden = name.starts_with('.') && name != ".ci";
            if !hidden && !SKIPPED.contains(&name.as_str()) {
                read_folder(root, &path, files)?;
            }
            continue;
        }
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_rust = extension == "rs";
        let is_text = is_rust || TEXT.contains(&extension) || name == "dev" || relative == ".ci";
        if !kind.is_file() || !is_text {
            continue;
        }
        let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) else { continue };
        let source = is_rust.then(|| Source::new(&text));
        files.push(File { path, text, source });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The repository obeys its own rules.
    #[test]
    fn repository_is_tidy() {
        let outcome = check(&repository_root()).expect("the repository can be read");
        let lines: Vec<String> = outcome.findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
        assert!(outcome.files > 10, "only {} files were read", outcome.files);
    }

    #[test]
    fn modules_are_found_beside_or_below() {
        assert_eq!(module_files("crates/a/src/lib.rs", "t")[0], "crates/a/src/t.rs");
        assert_eq!(module_files("crates/a/src/b.rs", "t")[0], "crates/a/src/b/t.rs");
    }
}
