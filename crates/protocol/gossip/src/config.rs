//! The settings of gossip and its bounds.

use std::net::SocketAddr;
use std::time::Duration;

use crate::DetectorConfig;

/// How a node gossips.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the cluster; messages with another one are ignored.
    pub cluster: String,
    /// The seeds, which a node contacts when it knows no peer, and now and then later, so that parts of a cluster find each other again.
    pub seeds: Vec<SocketAddr>,
    /// The failure detector.
    pub detector: DetectorConfig,
    /// Memory for the state of others, in bytes: further hosts are refused. Members never are, whose number the cluster decides.
    pub memory_max: usize,
    /// Bytes of a message; longer content is split. At least [`Config::MESSAGE_BYTES_LEAST`].
    pub message_bytes_max: usize,
    /// From so many endpoints on an exchange begins with versions alone; fewer are sent whole, which saves a message where they differ.
    pub roster_least: usize,
    /// How long a removed host is not listened to.
    pub quarantine: Duration,
    /// How long a host that is no member may be silent until it is forgotten.
    pub stranger_silence_max: Duration,
    /// After this time without an answer an echo may be asked for again.
    pub probe_timeout: Duration,
    /// A generation further ahead of this node's wall clock is absurd, and refused. Seconds.
    pub generation_ahead_max: u64,
    /// How long another node with this one's host id may be silent until it counts as this one's own past.
    pub double_silence_max: Duration,
}

impl Config {
    /// An endpoint with everything that it may say fits into a message of this size.
    pub const MESSAGE_BYTES_LEAST: usize = 20 << 10;

    /// Memory of an endpoint without values, its window of intervals included. Bytes.
    pub const PEER_MEMORY: usize = 5 << 10;

    /// The default settings for a cluster.
    pub fn new(cluster: impl Into<String>, seeds: Vec<SocketAddr>) -> Self {
        Self {
            cluster: cluster.into(),
            seeds,
            detector: DetectorConfig::default(),
            memory_max: 64 << 20,
            message_bytes_max: 32 << 10,
            roster_least: 16,
            quarantine: Duration::from_secs(60),
            stranger_silence_max: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(5),
            generation_ahead_max: 365 * 86_400,
            double_silence_max: Duration::from_secs(10),
        }
    }
}
