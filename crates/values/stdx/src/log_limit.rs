//! A limit on log lines of one kind: lines that a stranger can cause must not fill the disk.

use std::time::Duration;

/// Lines within [`WINDOW`].
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Counts the lines of the present second; time counts from any beginning.
#[derive(Default)]
pub struct LogLimit {
    window_start: Duration,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Whether a line may be logged now, and how many were left out before it.
    pub fn line(&mut self, now: Duration) -> Option<u64> {
        if now >= self.window_start + WINDOW {
            self.window_start = now;
            self.lines = 0;
        }
        if self.lines >= LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second() {
        let mut limit = LogLimit::default();
        let at = |millis: u64| Duration::from_millis(millis);
        assert_eq!((0..1000).filter(|_| limit.line(at(5)).is_some()).count(), 10);
        assert_eq!(limit.line(at(999)), None);
        assert_eq!(limit.line(at(1000)), Some(991));
        assert_eq!(limit.line(at(1001)), Some(0));
    }
}
