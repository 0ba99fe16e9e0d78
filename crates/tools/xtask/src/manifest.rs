//! Reads the dependency names out of a `Cargo.toml`. A subset of TOML is enough: section headers, and keys that
//! start a line; the workspace's manifests hold nothing else.

/// Which table of the manifest a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[dependencies]`, `[build-dependencies]` and their `target` forms.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
}

/// One dependency of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The key, which is the crate's name here (nothing is renamed).
    pub name: String,
    /// Its table.
    pub kind: Kind,
    /// The line, from 1.
    pub line: usize,
    /// Whether it says `workspace = true`.
    pub from_workspace: bool,
}

/// The dependencies of one manifest, in its order.
pub fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section: Option<Kind> = None;
    for (index, raw) in text.lines().enumerate() {
        let line = raw.split('#').next().unwrap_or("").trim_end();
        if let Some(header) = line.trim().strip_prefix('[') {
            let header = header.trim_start_matches('[').trim_end_matches(']').trim();
            section = kind_of(header);
            if let Some((table, name)) = header.rsplit_once('.')
                && let Some(kind) = kind_of(table)
            {
                found.push(Dependency {
                    name: name.to_string(),
                    kind,
                    line: index + 1,
                    from_workspace: false,
                });
            }
            continue;
        }
        let Some(kind) = section else { continue };
        let starts_a_key = line.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '"');
        let Some((key, value)) = line.split_once('=').filter(|_| starts_a_key) else { continue };
        let (name, rest) = key.split_once('.').unwrap_or((key, ""));
        let from_workspace = rest.trim() == "workspace" || value.replace(' ', "").contains("workspace=true");
        found.push(Dependency {
            name: name.trim().trim_matches('"').to_string(),
            kind,
            line: index + 1,
            from_workspace,
        });
    }
    found
}

fn kind_of(header: &str) -> Option<Kind> {
    let last = header.rsplit('.').next().unwrap_or(header);
    match last {
        _ if header.starts_with("workspace.") => None,
        "dependencies" | "build-dependencies" => Some(Kind::Normal),
        "dev-dependencies" => Some(Kind::Dev),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        let text = "[package]\nname = \"x\"\n[dependencies]\nstdx.workspace = true\n# no = \"1\"\n\
                    rt = { workspace = true, features = [\"a\"] }\nlone = \"1\"\n[dependencies.table]\npath = \"y\"\n\
                    [target.'cfg(unix)'.dependencies]\nlibc.workspace = true\n[dev-dependencies]\n\
                    proptest.workspace = true\n[features]\ndefault = []\n";
        let names: Vec<(String, Kind, bool)> = dependencies(text)
            .into_iter()
            .map(|found| (found.name, found.kind, found.from_workspace))
            .collect();
        let expected = [
            ("stdx", Kind::Normal, true),
            ("rt", Kind::Normal, true),
            ("lone", Kind::Normal, false),
            ("table", Kind::Normal, false),
            ("libc", Kind::Normal, true),
            ("proptest", Kind::Dev, true),
        ];
        assert_eq!(names, expected.map(|(name, kind, workspace)| (name.to_string(), kind, workspace)));
    }
}
