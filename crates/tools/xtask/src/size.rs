//! How long a file and its functions are, tests left out.

use crate::source::Source;

/// Lines of a file that are not tests, before it needs a reason.
pub const FILE_LINES_MAX: usize = 1_000;
/// Lines of a function from `fn` to its closing brace, before it needs a reason.
pub const FUNCTION_LINES_MAX: usize = 70;

/// One function of a file.
pub struct Function {
    /// Its name; it alone identifies functions of one file.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

/// Every function with a body outside tests.
pub fn functions(source: &Source) -> Vec<Function> {
    let mut found = Vec::new();
    for at in source.words("fn") {
        let after = &source.code[at + 2..];
        let name: String =
            after.trim_start().chars().take_while(|ch| ch.is_alphanumeric() || *ch == '_').collect();
        let line = source.line_of(at);
        if name.is_empty() || source.is_test(line) {
            continue;
        }
        let Some(body) = source.body_or_end(at) else { continue };
        if source.code.as_bytes()[body] == b'{' {
            let last = source.line_of(source.after_matching(body) - 1);
            found.push(Function { name, line, lines: last - line + 1 });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_bodies_and_skips_declarations() {
        let text = "trait T { fn declared(&self) -> [u8; 4]; }\nfn short(f: fn(u8) -> u8) {\n    let s = \"}\";\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn hidden() {}\n}\n";
        let found = functions(&Source::new(text));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].line, found[0].lines), ("short", 2, 3));
    }
}
