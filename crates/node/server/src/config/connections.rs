//! How many connections the node takes, so that files and other connections keep their descriptors.

use super::Config;

/// Connections of each kind that the node takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Of CQL clients.
    pub(crate) cql: usize,
    /// That other nodes make.
    pub(crate) internode: usize,
    /// That the node makes to others.
    pub(crate) internode_out: usize,
    /// Of each of the two HTTP ports.
    pub(crate) http: usize,
    /// Of clients of the DynamoDB API.
    pub(crate) alternator: usize,
}

impl Config {
    /// Parts of `max_open_files`: a quarter for CQL clients, an eighth for other nodes, a sixty-fourth for each HTTP port, and
    /// three thirty-seconds for connections to other nodes. Files have the rest. Without a known limit there is none. The node
    /// makes fewer connections than it accepts: all nodes make as many, and some are counted until they are known to be lost.
    pub(crate) fn connection_limits(&self) -> ConnectionLimits {
        let part = |of: u64| match self.max_open_files {
            0 => usize::MAX,
            files => usize::try_from((files / of).max(4)).unwrap_or(usize::MAX),
        };
        let internode_out = part(32).saturating_mul(3);
        // Where the DynamoDB API is on it has a quarter of the CQL clients' share.
        let (cql, alternator) = match self.has_alternator() {
            false => (part(4), 0),
            true => (part(16).saturating_mul(3), part(16)),
        };
        ConnectionLimits { cql, internode: part(8), internode_out, http: part(64), alternator }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_half_of_the_descriptors() {
        let limits = |files| Config { max_open_files: files, ..Config::default() }.connection_limits();
        let of_256 = ConnectionLimits { cql: 64, internode: 32, internode_out: 24, http: 4, alternator: 0 };
        assert_eq!(limits(256), of_256);
        let many = limits(1 << 20);
        assert_eq!((many.cql, many.internode, many.internode_out), (1 << 18, 1 << 17, 3 << 15));
        for files in [256, 1024, 65_536] {
            let ConnectionLimits { cql, internode, internode_out, http, alternator: _ } = limits(files);
            assert!((cql + internode + internode_out + 2 * http) as u64 <= files / 2);
            assert!(internode_out < internode);
        }
        assert_eq!(limits(0).cql, usize::MAX, "no limit is known");
        let both =
            Config { max_open_files: 256, alternator_port: 8000, ..Config::default() }.connection_limits();
        assert_eq!((both.cql, both.alternator), (48, 16));
        let tls = Config { max_open_files: 256, alternator_https_port: 8043, ..Config::default() };
        assert_eq!(tls.connection_limits().alternator, 16);
    }
}
