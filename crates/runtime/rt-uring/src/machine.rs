//! The memory of this process: that of the machine, within the limit of its control group.

use std::fs;
use std::path::{Path, PathBuf};

/// The mount point of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process may count on: the machine's, or fewer where a control group (a container) sets a
/// limit. None where the system does not say.
pub fn available_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups, Path::new(CGROUPS)).into_iter();
    let limits = limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    // Version 1 says "no limit" with a number that no machine has.
    limits.chain(machine).min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The files that may hold a limit for a process with this `/proc/self/cgroup`: of its groups and of all above them.
fn limit_files(groups: &str, mount: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            other if other.split(',').any(|one| one == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        files.extend(group.ancestors().take_while(|dir| dir.starts_with(&root)).map(|dir| dir.join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_limits_are_looked_for() {
        let files = |groups| limit_files(groups, Path::new("/cg"));
        assert_eq!(
            files("0::/a/b\n"),
            [PathBuf::from("/cg/a/b/memory.max"), "/cg/a/memory.max".into(), "/cg/memory.max".into()]
        );
        let first = "11:cpu,cpuacct:/x\n9:memory:/docker/7\n1:name=systemd:/\n";
        assert_eq!(
            files(first),
            [
                PathBuf::from("/cg/memory/docker/7/memory.limit_in_bytes"),
                "/cg/memory/docker/memory.limit_in_bytes".into(),
                "/cg/memory/memory.limit_in_bytes".into()
            ]
        );
        assert!(files("nonsense").is_empty());
    }

    #[test]
    fn the_machine_has_memory() {
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(total_of("MemTotal: many"), None);
        assert!(available_memory().is_some_and(|bytes| bytes > 64 << 20));
    }
}
