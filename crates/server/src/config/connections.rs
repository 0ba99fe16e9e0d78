//! How many connections the node takes, so that files and other connections keep their descriptors.

use super::Config;

/// Connections of each kind that the node takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Of CQL clients.
    pub(crate) cql: usize,
    /// That other nodes make.
    pub(crate) internode: usize,
    /// Of each of the two HTTP ports.
    pub(crate) http: usize,
}

impl Config {
    /// Parts of `max_open_files`: a quarter for CQL clients, an eighth for other nodes, a sixty-fourth for each HTTP port.
    /// Files and the connections that the node makes itself have the rest. Without a known limit there is none.
    pub(crate) fn connection_limits(&self) -> ConnectionLimits {
        let part = |of: u64| match self.max_open_files {
            0 => usize::MAX,
            files => usize::try_from((files / of).max(4)).unwrap_or(usize::MAX),
        };
        ConnectionLimits { cql: part(4), internode: part(8), http: part(64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_half_of_the_descriptors() {
        let limits = |files| Config { max_open_files: files, ..Config::default() }.connection_limits();
        assert_eq!(limits(256), ConnectionLimits { cql: 64, internode: 32, http: 4 });
        assert_eq!(limits(1 << 20), ConnectionLimits { cql: 1 << 18, internode: 1 << 17, http: 1 << 14 });
        for files in [64, 256, 1024, 65_536] {
            let ConnectionLimits { cql, internode, http } = limits(files);
            assert!((cql + internode + 2 * http) as u64 <= files / 2);
        }
        assert_eq!(limits(0).cql, usize::MAX, "no limit is known");
    }
}
