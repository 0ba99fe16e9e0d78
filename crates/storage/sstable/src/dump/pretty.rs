//! JSON laid out as `sstabledump` does: indented by two, except where an object or array is kept on one line.

use types::json::write_string;

/// Writes JSON.
#[derive(Debug, Default)]
pub(super) struct Pretty {
    out: String,
    /// Entries so far of each open object or array.
    open: Vec<usize>,
    /// Whether a name was written whose value follows.
    named: bool,
    pub(super) compact_objects: bool,
    pub(super) compact_arrays: bool,
}

impl Pretty {
    /// The data that was written since the last call.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn indent(&mut self, compact: bool) {
        if compact {
            self.out.push(' ');
            return;
        }
        self.out.push('\n');
        self.open.iter().for_each(|_| self.out.push_str("  "));
    }

    fn value(&mut self) {
        if std::mem::take(&mut self.named) {
            return;
        }
        if let Some(entries) = self.open.last_mut() {
            *entries += 1;
            if *entries > 1 {
                self.out.push(',');
            }
            self.indent(self.compact_arrays);
        }
    }

    pub(super) fn name(&mut self, name: &str) {
        assert!(!self.named, "a name is followed by its value");
        let entries = self.open.last_mut().expect("a name lies in an object");
        *entries += 1;
        if *entries > 1 {
            self.out.push(',');
        }
        self.indent(self.compact_objects);
        write_string(name, &mut self.out);
        self.out.push_str(" : ");
        self.named = true;
    }

    pub(super) fn start(&mut self, bracket: char) {
        self.value();
        self.out.push(bracket);
        self.open.push(0);
    }

    fn end(&mut self, bracket: char, compact: bool) {
        assert!(!self.named, "an object ends with a value");
        let entries = self.open.pop().expect("what ends was started");
        match entries {
            0 => self.out.push(' '),
            _ => self.indent(compact),
        }
        self.out.push(bracket);
    }

    pub(super) fn end_object(&mut self) {
        self.end('}', self.compact_objects);
    }

    pub(super) fn end_array(&mut self) {
        self.end(']', self.compact_arrays);
    }

    pub(super) fn string(&mut self, text: &str) {
        self.value();
        write_string(text, &mut self.out);
    }

    /// A value that is JSON already.
    pub(super) fn raw(&mut self, json: &str) {
        self.value();
        self.out.push_str(json);
    }
}
