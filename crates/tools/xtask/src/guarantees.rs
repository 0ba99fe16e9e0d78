//! The table of guarantees (`docs/operations/guarantees.md`): each test that it names must be there, so that no line outlives its
//! proof.

/// The path of the table.
pub const FILE: &str = "docs/operations/guarantees.md";
/// Names without a detail.
const WHOLE: &[&str] = &["sim", "topology", "wide", "cluster", "`torc sim`", "`./dev kill9`"];

/// The tests that the table can name.
pub trait Tests {
    /// Whether a file, or one below a folder that ends with `/`, is there; a part `*` of the path stands for any folder.
    fn has_file(&self, path: &str) -> bool;
    /// Whether a file of this folder says this.
    fn says(&self, folder: &str, text: &str) -> bool;
}

/// The lines of the table that name missing tests, with those names.
pub fn missing(table: &str, tests: &dyn Tests) -> Vec<(usize, String)> {
    let mut missing = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        // A row has a guarantee, the faults that it holds under, and tests; the first two rows are the table's head.
        let [_, _, named] = cells[..] else { continue };
        if named == "tests" || named.starts_with("---") {
            continue;
        }
        for clause in named.split(';').map(str::trim) {
            let (place, names) = clause.split_once(": ").unwrap_or((clause, ""));
            let names = names.split(", ").map(str::trim).filter(|name| !name.is_empty());
            let names: Vec<&str> = names.collect();
            let absent = names.iter().filter(|name| !is_there(place, name, tests));
            missing.extend(absent.map(|name| (index + 1, format!("{place}: {name}"))));
            if names.is_empty() && !WHOLE.contains(&place) && !is_there(place, "", tests) {
                missing.push((index + 1, clause.to_owned()));
            }
        }
    }
    missing
}

fn is_there(place: &str, name: &str, tests: &dyn Tests) -> bool {
    if let Some(krate) = place.strip_suffix(" it") {
        let file = if name.is_empty() { String::new() } else { format!("{name}.rs") };
        return tests.has_file(&format!("crates/*/{krate}/tests/it/{file}"));
    }
    if let Some(krate) = place.strip_suffix(" src") {
        // Unit tests, which stand in the file that they test.
        return !name.is_empty() && tests.has_file(&format!("crates/*/{krate}/src/{name}.rs"));
    }
    match place {
        "sim" => {
            let folder = "crates/test/sim/src/cluster/";
            tests.has_file(&format!("{folder}*/{name}.rs")) || tests.says(folder, &format!("\"{name}\""))
        }
        "cluster" | "topology" => tests.says("tests/cluster/", &format!("(\"{name}")),
        "hostile" => tests.says("tests/hostile/", &format!("(\"{name}\"")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    impl Tests for Known {
        fn has_file(&self, path: &str) -> bool {
            [
                "crates/*/a/tests/it/one.rs",
                "crates/*/a/tests/it/",
                "crates/*/a/src/unit.rs",
                "crates/test/sim/src/cluster/*/durable.rs",
            ]
            .contains(&path)
        }

        fn says(&self, folder: &str, text: &str) -> bool {
            folder == "tests/cluster/" && text == "(\"kill -9"
        }
    }

    #[test]
    fn what_is_named_must_be_there() {
        let table = "# Title\n\n| guarantee | holds through | tests |\n|---|---|---|\n\
                     | one | | a it: one; a src: unit; sim: durable; cluster: kill -9; wide |\n\
                     | two | | a it: one, two; a src: none; b it; sim: nothing |\n\
                     | three | | |\n\
                     | four | | `./dev nothing`; a it |\n";
        let expected = [
            (6, "a it: two"),
            (6, "a src: none"),
            (6, "b it"),
            (6, "sim: nothing"),
            (7, ""),
            (8, "`./dev nothing`"),
        ];
        let expected: Vec<_> = expected.map(|(line, what)| (line, what.to_owned())).into();
        assert_eq!(missing(table, &Known), expected);
    }
}
