//! CPU time and memory of processes, as the kernel counts them in `/proc`.

use std::collections::BTreeMap;
use std::fs;

/// Microseconds of one tick of `/proc`; Linux shows 100 ticks a second to programs on every machine.
const TICK_MICROS: u64 = 10_000;

/// CPU time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user: u64,
    /// In the kernel on its behalf.
    pub system: u64,
}

impl CpuTime {
    /// Both together.
    pub fn total(self) -> u64 {
        self.user + self.system
    }

    /// The CPU time since an earlier reading.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// A process at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// Of all threads, ended ones included.
    pub(crate) total: CpuTime,
    /// Of the threads that live, by id, with their names.
    threads: BTreeMap<u32, (String, CpuTime)>,
}

impl Usage {
    /// Reads a process.
    pub(crate) fn of(pid: u32) -> Result<Usage, String> {
        let path = format!("/proc/{pid}");
        let stat = fs::read_to_string(format!("{path}/stat"))
            .map_err(|error| format!("there is no process {pid}, or it cannot be read: {error}"))?;
        let (_, total) = parse_stat(&stat).ok_or_else(|| format!("{path}/stat is not understood"))?;
        let mut threads = BTreeMap::new();
        let entries = fs::read_dir(format!("{path}/task")).into_iter().flatten().flatten();
        for entry in entries {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            // A thread may end between listing and reading.
            let stat = fs::read_to_string(entry.path().join("stat")).ok();
            if let (Some(id), Some(thread)) = (id, stat.as_deref().and_then(parse_stat)) {
                threads.insert(id, thread);
            }
        }
        Ok(Usage { total, threads })
    }

    /// CPU time by kind of thread since an earlier reading, most first: threads whose names differ in a number only
    /// are of one kind.
    pub(crate) fn threads_since(&self, earlier: &Usage) -> Vec<(String, CpuTime)> {
        let mut kinds: BTreeMap<String, CpuTime> = BTreeMap::new();
        for (id, (name, time)) in &self.threads {
            let before = earlier.threads.get(id).map(|(_, time)| *time).unwrap_or_default();
            let used = time.since(before);
            let kind = kinds.entry(kind_of(name)).or_default();
            kind.user += used.user;
            kind.system += used.system;
        }
        let mut kinds: Vec<_> = kinds.into_iter().filter(|(_, time)| time.total() > 0).collect();
        kinds.sort_by_key(|(_, time)| std::cmp::Reverse(time.total()));
        kinds
    }
}

fn kind_of(name: &str) -> String {
    let kind = name.trim_end_matches(|ch: char| ch.is_ascii_digit() || "-#: ".contains(ch));
    if kind.is_empty() { name.to_owned() } else { kind.to_owned() }
}

/// Name and CPU time of a `stat` line; the name stands in parentheses and may hold any character.
fn parse_stat(stat: &str) -> Option<(String, CpuTime)> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let time = CpuTime { user: ticks()? * TICK_MICROS, system: ticks()? * TICK_MICROS };
    Some((name.to_owned(), time))
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let line = "9215 (a) b (c) R 9208 9208 4729 0 -1 4194304 102 0 0 0 17 4 0 0 20 0 1 0 516150";
        let time = CpuTime { user: 170_000, system: 40_000 };
        assert_eq!(parse_stat(line), Some(("a) b (c".to_owned(), time)));
        assert_eq!(parse_stat("9215 (cat) R 1 2"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).is_some_and(|bytes| bytes > 1 << 16));
        let usage = Usage::of(pid).expect("this process");
        assert!(!usage.threads.is_empty());
        assert!(Usage::of(u32::MAX).is_err());
    }

    #[test]
    fn threads_of_a_pool_are_one_kind() {
        assert_eq!(kind_of("GC Thread#12"), "GC Thread");
        assert_eq!(kind_of("ReadStage-3"), "ReadStage");
        assert_eq!(kind_of("42"), "42");
    }
}
