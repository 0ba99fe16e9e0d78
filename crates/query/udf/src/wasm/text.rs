//! Texts of errors.

/// An error's text on one line, of bounded length.
pub(super) fn detail(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ").chars().take(1024).collect()
}
