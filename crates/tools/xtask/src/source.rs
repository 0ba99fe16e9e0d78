//! A Rust file as the rules see it: code with comments and literals blanked out, the comments beside it, and which
//! lines belong to tests. Not a parser: a scanner that knows where comments, strings and braces begin and end.

/// One comment line.
#[derive(Debug)]
pub struct Comment {
    /// From 1.
    pub line: usize,
    /// The text after `//`, `///`, `//!` or inside `/* */`.
    pub text: String,
    /// A doc comment may quote code.
    pub is_doc: bool,
}

/// A scanned file.
pub struct Source {
    /// The file with comments and the insides of literals turned into spaces; same length, same lines.
    pub code: String,
    /// Every comment, line by line.
    pub comments: Vec<Comment>,
    /// Per line (index 0 is line 1): inside a `#[cfg(test)]` item.
    pub test_lines: Vec<bool>,
    /// Names of `#[cfg(test)] mod name;`, whose files are tests as well.
    pub test_modules: Vec<String>,
    line_starts: Vec<usize>,
}

impl Source {
    /// Scans a file.
    pub fn new(text: &str) -> Source {
        let mut scanner =
            Scanner { bytes: text.as_bytes(), at: 0, line: 1, code: Vec::new(), comments: Vec::new() };
        scanner.run();
        let code = String::from_utf8(scanner.code).expect("only whole characters are copied or blanked");
        assert_eq!(code.len(), text.len(), "blanking changes no offset");
        let line_starts: Vec<usize> =
            std::iter::once(0).chain(code.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut source = Source {
            test_lines: vec![false; line_starts.len()],
            code,
            comments: scanner.comments,
            test_modules: Vec::new(),
            line_starts,
        };
        source.mark_tests();
        source
    }

    /// The line of an offset, from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Whether a line (from 1) belongs to a `#[cfg(test)]` item.
    pub fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Lines that are not part of tests.
    pub fn production_lines(&self) -> usize {
        let trailing = usize::from(self.code.ends_with('\n'));
        self.test_lines.iter().filter(|is_test| !**is_test).count().saturating_sub(trailing)
    }

    /// The offset after the bracket that closes the one at `open`.
    pub fn after_matching(&self, open: usize) -> usize {
        let bytes = self.code.as_bytes();
        let mut depth = 0usize;
        for (at, byte) in bytes.iter().enumerate().skip(open) {
            match byte {
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return at + 1;
            }
        }
        bytes.len()
    }

    /// The offset of the first `{` or `;` at or after `from` that is not inside parentheses or brackets.
    pub fn body_or_end(&self, from: usize) -> Option<usize> {
        let bytes = self.code.as_bytes();
        let mut at = from;
        while at < bytes.len() {
            match bytes[at] {
                b'(' | b'[' => at = self.after_matching(at),
                b'{' | b';' => return Some(at),
                _ => at += 1,
            }
        }
        None
    }

    /// Offsets where `word` stands as a whole word.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = self.code.as_bytes();
        self.code.match_indices(word).map(|(at, _)| at).filter(move |at| {
            let is_part = |index: usize| bytes.get(index).is_some_and(|byte| is_word(*byte));
            let starts = !is_word(word.as_bytes()[0]) || *at == 0 || !is_part(at - 1);
            let ends = !is_word(word.as_bytes()[word.len() - 1]) || !is_part(at + word.len());
            starts && ends
        })
    }

    fn mark_tests(&mut self) {
        let attributes: Vec<usize> = self.code.match_indices("#[cfg(test)]").map(|(at, _)| at).collect();
        for start in attributes {
            let mut item = start;
            while self.code[item..].starts_with("#[") {
                item = self.after_matching(item + 1);
                item += self.code[item..].len() - self.code[item..].trim_start().len();
            }
            let Some(end) = self.body_or_end(item) else { continue };
            let after = if self.code.as_bytes()[end] == b'{' { self.after_matching(end) } else { end + 1 };
            if self.code.as_bytes()[end] == b';'
                && let Some(name) = self.code[item..end].trim().strip_prefix("mod ")
            {
                self.test_modules.push(name.trim().to_string());
            }
            let (first, last) = (self.line_of(start), self.line_of(after.saturating_sub(1)));
            self.test_lines[first - 1..last].fill(true);
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
    code: Vec<u8>,
    comments: Vec<Comment>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.peek(0) {
            let after_word = self.at > 0 && is_word(self.bytes[self.at - 1]);
            match byte {
                b'/' if self.peek(1) == Some(b'/') => self.line_comment(),
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(),
                b'"' => self.string(),
                b'r' | b'b' | b'c' if !after_word && self.prefixed_literal() => {}
                b'\'' => self.char_or_lifetime(),
                _ => self.keep(),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        self.step(self.bytes[self.at]);
    }

    fn blank(&mut self) {
        self.step(b' ');
    }

    fn step(&mut self, shown: u8) {
        let byte = self.bytes[self.at];
        if byte == b'\n' {
            self.line += 1;
        }
        self.code.push(if byte == b'\n' { b'\n' } else { shown });
        self.at += 1;
    }

    fn line_comment(&mut self) {
        let start = self.at;
        let line = self.line;
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.blank();
        }
        let text = String::from_utf8_lossy(&self.bytes[start + 2..self.at]).into_owned();
        let is_doc = text.starts_with(['/', '!']);
        self.comments.push(Comment {
            line,
            text: text.trim_start_matches(['/', '!']).trim().to_string(),
            is_doc,
        });
    }

    fn block_comment(&mut self) {
        let (start, first_line) = (self.at, self.line);
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => depth += 1,
                (Some(b'*'), Some(b'/')) => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                break;
            }
        }
        let text = String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned();
        let is_doc = text.starts_with("/**") || text.starts_with("/*!");
        for (offset, line) in text.lines().enumerate() {
            let text = line.trim_matches(|ch: char| ch == '/' || ch == '*' || ch.is_whitespace()).to_string();
            self.comments.push(Comment { line: first_line + offset, text, is_doc });
        }
    }

    fn string(&mut self) {
        self.keep();
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => {
                    self.blank();
                    if self.peek(0).is_some() {
                        self.blank();
                    }
                }
                b'"' => return self.keep(),
                _ => self.blank(),
            }
        }
    }

    /// `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#`, `c"…"`, `b'x'`. False (and nothing taken) when it is only a name.
    fn prefixed_literal(&mut self) -> bool {
        let mut ahead = 1;
        if matches!(self.peek(0), Some(b'b' | b'c')) && self.peek(1) == Some(b'r') {
            ahead = 2;
        }
        let raw = self.peek(ahead - 1) == Some(b'r');
        let hashes = (0..).take_while(|index| raw && self.peek(ahead + index) == Some(b'#')).count();
        match self.peek(ahead + hashes) {
            Some(b'"') => {}
            Some(b'\'') if !raw && self.peek(0) == Some(b'b') => {
                self.keep();
                self.char_or_lifetime();
                return true;
            }
            _ => return false,
        }
        (0..ahead + hashes).for_each(|_| self.keep());
        if !raw {
            self.string();
            return true;
        }
        self.keep();
        let mut end = vec![b'"'];
        end.resize(hashes + 1, b'#');
        while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(&end) {
            self.blank();
        }
        (0..end.len().min(self.bytes.len() - self.at)).for_each(|_| self.keep());
        true
    }

    fn char_or_lifetime(&mut self) {
        self.keep();
        let closes = match self.peek(0) {
            Some(b'\\') => true,
            Some(byte) => {
                let width = match byte {
                    0..0x80 => 1,
                    0x80..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    _ => 4,
                };
                self.peek(width) == Some(b'\'')
            }
            None => false,
        };
        if !closes {
            return;
        }
        while let Some(byte) = self.peek(0) {
            if byte == b'\\' {
                self.blank();
                self.blank();
            } else if byte == b'\'' {
                return self.keep();
            } else {
                self.blank();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_literals_and_comments() {
        let text = "let a = \"std::fs\"; // std::net\nlet b = r#\"x \" tokio::\"#; let c = '\\''; let d: &'static u8 = b\"q\"; /* rand:: /* in */ */ z('é', b'\\n');\n";
        let source = Source::new(text);
        for hidden in ["std::fs", "std::net", "tokio::", "rand::"] {
            assert!(!source.code.contains(hidden), "{hidden} is blanked in {}", source.code);
        }
        for kept in ["let a", "let b", "let c", "let d: &'static u8", "z("] {
            assert!(source.code.contains(kept), "{kept} stays in {}", source.code);
        }
        assert_eq!(source.comments.len(), 2);
        assert_eq!(source.comments[1].line, 2);
    }

    #[test]
    fn finds_test_items() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() { }\n}\nfn c() {}\n#[cfg(test)]\nmod more;\n";
        let source = Source::new(text);
        let tests: Vec<usize> = (1..=9).filter(|line| source.is_test(*line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 6, 8, 9]);
        assert_eq!(source.test_modules, ["more"]);
        assert_eq!(source.production_lines(), 2);
    }

    #[test]
    fn whole_words_only() {
        let source = Source::new("unsafe_code unsafe { my_unsafe } std::fs std::fsx");
        assert_eq!(source.words("unsafe").count(), 1);
        assert_eq!(source.words("std::fs").count(), 1);
    }
}
