//! The settings of a table's strategy, by name.

use std::collections::BTreeMap;

/// Settings as a table's options have them, with defaults for absent or unreadable ones (options were checked when
/// the table was made).
pub(crate) struct Settings<'a>(pub(crate) &'a BTreeMap<String, String>);

impl Settings<'_> {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|text| text.trim())
    }

    pub(crate) fn get<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.0.get(name).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
    }
}
