//! The shares of flushes and compactions: the more waits for them, the more of the CPU and the disk they get (docs/design/io.md).

use rt::Group;

use crate::config::ShareSettings;
use crate::engine::Inner;

/// How much waits, as a part of the memory of memtables, and the shares then; on a line between two points.
type Points = [(f64, f64); 3];

/// Of the bytes that compactions are to merge. Beside 1,000 shares of statements.
const COMPACTION: Points = [(0.0, 50.0), (1.5, 100.0), (30.0, 1000.0)];
/// Of the bytes in memtables: at a half flushes begin, at the whole writes wait.
const FLUSH: Points = [(0.0, 100.0), (0.5, 200.0), (1.0, 1000.0)];

/// The shares at a point.
fn at(points: &Points, place: f64) -> f64 {
    assert!(points.is_sorted_by_key(|point| point.0), "places come in their order");
    let (first, last) = (points[0], points[points.len() - 1]);
    if place <= first.0 {
        return first.1;
    }
    let part = points.windows(2).find(|part| place <= part[1].0);
    part.map_or(last.1, |part| {
        let ((from, low), (to, high)) = (part[0], part[1]);
        low + (high - low) * (place - from) / (to - from)
    })
}

/// The shares of compactions that are to merge so many bytes.
fn of_compaction(bytes: u64, memory: usize, settings: &ShareSettings) -> u32 {
    if settings.compaction_static > 0 {
        return settings.compaction_static;
    }
    let shares = at(&COMPACTION, bytes as f64 / memory.max(1) as f64) as u32;
    assert!(shares > 0, "a group without shares would never run");
    if settings.compaction_max > 0 { shares.min(settings.compaction_max) } else { shares }
}

/// The shares of flushes beside memtables of so many bytes.
fn of_flush(bytes: usize, memory: usize, settings: &ShareSettings) -> u32 {
    match settings.flush_static {
        0 => at(&FLUSH, bytes as f64 / memory.max(1) as f64) as u32,
        shares => shares,
    }
}

/// Gives flushes the shares that the memory of memtables asks for.
pub(crate) fn adjust_flush(inner: &Inner) {
    let memory = inner.config.memtable_bytes_max;
    let shares = of_flush(inner.memory.bytes(), memory, &inner.settings.get().shares);
    inner.rt.set_shares(Group::Flush, shares);
}

/// Gives compactions the shares that a backlog of so many bytes asks for.
pub(crate) fn adjust_compaction(inner: &Inner, bytes: u64) {
    let memory = inner.config.memtable_bytes_max;
    let shares = of_compaction(bytes, memory, &inner.settings.get().shares);
    inner.rt.set_shares(Group::Compaction, shares);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: usize = 1000;

    #[test]
    fn shares_follow_what_waits() {
        let settings = ShareSettings::default();
        let compaction = |bytes| of_compaction(bytes, MEMORY, &settings);
        let shares = [0, 750, 1_500, 15_750, 30_000, u64::MAX].map(compaction);
        assert_eq!(shares, [50, 75, 100, 550, 1000, 1000]);
        let flush = |bytes| of_flush(bytes, MEMORY, &settings);
        assert_eq!([0, 250, 500, 750, 1000, 1_000_000].map(flush), [100, 150, 200, 600, 1000, 1000]);
        assert_eq!(of_flush(0, 0, &settings), 100);
    }

    #[test]
    fn settings_bound_them() {
        let settings = ShareSettings { compaction_static: 0, compaction_max: 300, flush_static: 7 };
        assert_eq!(of_compaction(u64::MAX, MEMORY, &settings), 300);
        assert_eq!(of_compaction(0, MEMORY, &settings), 50);
        assert_eq!(of_flush(MEMORY, MEMORY, &settings), 7);
        let settings = ShareSettings { compaction_static: 400, ..settings };
        assert_eq!(of_compaction(0, MEMORY, &settings), 400);
    }
}
