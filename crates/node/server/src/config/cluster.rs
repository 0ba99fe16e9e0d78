//! The options of a node's place in the cluster, and their contradictions.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rpc::{CompressBetween, Packing};
use topology::Location;

use super::snitch::SIMPLE;
use super::{Config, ConfigError};

/// The least and the greatest phi that make a usable failure detector; Cassandra has the same bounds.
const PHI_MIN: f64 = 5.0;
const PHI_MAX: f64 = 16.0;
/// A hint that is never synced, or all the time, is a mistake.
const HINTS_FLUSH_PERIOD_MIN: Duration = Duration::from_millis(10);

impl Config {
    /// This node's address for other nodes.
    pub fn internode_address(&self) -> SocketAddr {
        (self.broadcast_address.unwrap_or(self.listen_address), self.storage_port).into()
    }

    /// This node's address for clients.
    pub fn native_address(&self) -> SocketAddr {
        (self.broadcast_rpc_address.unwrap_or(self.rpc_address), self.native_transport_port).into()
    }

    /// The compression of connections between nodes.
    pub(crate) fn packing(&self) -> (Packing, CompressBetween) {
        let packing = if self.internode_compressor == "zstd" { Packing::Zstd } else { Packing::Lz4 };
        match &*self.internode_compression {
            "none" => (Packing::None, CompressBetween::Datacenters),
            "all" => (packing, CompressBetween::Nodes),
            // The configuration was checked: the remaining value is `dc`.
            _ => (packing, CompressBetween::Datacenters),
        }
    }

    /// The node's datacenter and rack.
    pub fn location(&self) -> Location {
        if self.endpoint_snitch.rsplit('.').next().is_some_and(|name| name.eq_ignore_ascii_case(SIMPLE)) {
            return Location::new("datacenter1", "rack1");
        }
        Location::new(&*self.datacenter, &*self.rack)
    }

    /// Before a seed whose name has no address now.
    pub const UNRESOLVED: char = '?';

    /// Seeds whose names have no address.
    pub fn unresolved_seeds(&self) -> impl Iterator<Item = &str> {
        self.seed_words().filter_map(|seed| seed.strip_prefix(Self::UNRESOLVED))
    }

    /// The seeds, as they were written, but for those that are known to have no address.
    pub fn seed_names(&self) -> impl Iterator<Item = &str> {
        self.seed_words().filter(|seed| !seed.starts_with(Self::UNRESOLVED))
    }

    fn seed_words(&self) -> impl Iterator<Item = &str> {
        let seeds = self.seeds.trim();
        let seeds = seeds.strip_prefix("seeds=").unwrap_or(seeds);
        seeds.split([',', ' ']).map(str::trim).filter(|seed| !seed.is_empty())
    }

    /// The addresses of `seeds`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] when a seed is no address.
    pub fn seed_addresses(&self) -> Result<Vec<SocketAddr>, ConfigError> {
        self.seed_names()
            .map(|seed| {
                parse_seed(seed, self.storage_port).ok_or_else(|| ConfigError::Value {
                    name: "seeds".to_owned(),
                    value: seed.to_owned(),
                    expected: "expected an address such as 10.0.0.1, 10.0.0.1:7000, ::1 or [::1]:7000"
                        .to_owned(),
                })
            })
            .collect()
    }

    /// The dead node whose place a new one is to take: a host id or an address.
    pub fn replaces(&self) -> Option<&str> {
        let given = [&self.replace_node_first_boot, &self.replace_address_first_boot, &self.replace_address];
        given.into_iter().map(|named| named.trim()).find(|named| !named.is_empty())
    }

    /// The dead nodes without which a replacement continues: host ids or addresses.
    pub(crate) fn ignored_for_replace(&self) -> impl Iterator<Item = &str> {
        self.ignore_dead_nodes_for_replace.split(',').map(str::trim).filter(|named| !named.is_empty())
    }

    /// The tokens of `initial_token`; none when they are to be chosen.
    ///
    /// # Errors
    /// [`ConfigError::Value`] when a word is no token, [`ConfigError::Conflict`] when a token comes twice.
    pub fn initial_tokens(&self) -> Result<Vec<i64>, ConfigError> {
        let words = self.initial_token.split(',').map(str::trim).filter(|word| !word.is_empty());
        let parse = |word: &str| {
            word.parse().map_err(|_| ConfigError::Value {
                name: "initial_token".to_owned(),
                value: word.to_owned(),
                expected: format!("expected tokens from {} to {}", i64::MIN, i64::MAX),
            })
        };
        let mut tokens = words.map(parse).collect::<Result<Vec<i64>, _>>()?;
        tokens.sort_unstable();
        if let Some(pair) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::Conflict(format!("initial_token names {} twice", pair[0])));
        }
        Ok(tokens)
    }

    fn check_replace(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("replace_address", &self.replace_address),
            ("replace_address_first_boot", &self.replace_address_first_boot),
        ] {
            if !value.trim().is_empty() && value.trim().parse::<IpAddr>().is_err() {
                let (name, value) = (name.to_owned(), value.clone());
                let expected = "expected the address of a node that is down, such as 10.0.0.1".to_owned();
                return Err(ConfigError::Value { name, value, expected });
            }
        }
        let host = self.replace_node_first_boot.trim();
        if !host.is_empty() && cluster::parse_id(host).is_none() {
            return Err(ConfigError::Value {
                name: "replace_node_first_boot".to_owned(),
                value: host.to_owned(),
                expected: "expected the host id of a node that is down, as `nodetool status` shows it"
                    .to_owned(),
            });
        }
        for named in self.ignored_for_replace() {
            if named.parse::<IpAddr>().is_err() && cluster::parse_id(named).is_none() {
                return Err(ConfigError::Value {
                    name: "ignore_dead_nodes_for_replace".to_owned(),
                    value: named.to_owned(),
                    expected: "expected host ids or addresses of nodes that are down, separated by commas"
                        .to_owned(),
                });
            }
        }
        if self.replaces().is_none() && self.ignored_for_replace().next().is_some() {
            let why = "ignore_dead_nodes_for_replace is for a node that replaces another: set replace_node_first_boot";
            return Err(ConfigError::Conflict(why.to_owned()));
        }
        if self.replaces().is_some() && !(self.auto_bootstrap && self.join_ring) {
            let why = "a node that replaces another needs auto_bootstrap and join_ring";
            return Err(ConfigError::Conflict(why.to_owned()));
        }
        Ok(())
    }

    pub(super) fn check_cluster(&self) -> Result<(), ConfigError> {
        self.check_addresses()?;
        self.seed_addresses()?;
        let tokens = self.initial_tokens()?.len();
        let default = Self::default().num_tokens;
        if tokens != 0 && self.num_tokens != default && tokens != usize::from(self.num_tokens) {
            return Err(ConfigError::Conflict(format!(
                "The number of initial tokens (by initial_token) specified ({tokens}) is different from num_tokens \
                 value ({})",
                self.num_tokens
            )));
        }
        self.check_replace()?;
        for (name, value) in
            [("cluster_name", &self.cluster_name), ("datacenter", &self.datacenter), ("rack", &self.rack)]
        {
            if value.trim().is_empty() || value.len() > NAME_LEN_MAX {
                return Err(ConfigError::Value {
                    name: name.to_owned(),
                    value: value.clone(),
                    expected: format!("expected a name of 1 to {NAME_LEN_MAX} bytes"),
                });
            }
        }
        if !(PHI_MIN..=PHI_MAX).contains(&self.phi_convict_threshold) {
            return Err(ConfigError::Conflict(format!(
                "phi_convict_threshold must be between {PHI_MIN} and {PHI_MAX}, but was {}",
                self.phi_convict_threshold
            )));
        }
        if self.hints_flush_period < HINTS_FLUSH_PERIOD_MIN {
            return Err(ConfigError::Conflict("hints_flush_period must be at least 10ms".to_owned()));
        }
        if self.max_hints_delivery_threads == 0 {
            return Err(ConfigError::Conflict("max_hints_delivery_threads must be at least 1".to_owned()));
        }
        Ok(())
    }

    /// Others must be able to reach this node where it says that it is.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        let wildcard = |name: &str, address: Option<IpAddr>| match address {
            Some(address) if address.is_unspecified() => {
                Err(ConfigError::Conflict(format!("{name} cannot be a wildcard address ({address})")))
            }
            _ => Ok(()),
        };
        wildcard("listen_address", Some(self.listen_address))?;
        wildcard("broadcast_address", self.broadcast_address)?;
        wildcard("broadcast_rpc_address", self.broadcast_rpc_address)?;
        if self.rpc_address.is_unspecified() && self.broadcast_rpc_address.is_none() {
            return Err(ConfigError::Conflict(format!(
                "rpc_address is a wildcard address ({}): set broadcast_rpc_address to the address that clients shall use",
                self.rpc_address
            )));
        }
        if self.storage_port == 0 {
            return Err(ConfigError::Conflict("storage_port must be a number from 1 to 65535".to_owned()));
        }
        Ok(())
    }
}

/// Names travel in gossip, where a value has its limit.
const NAME_LEN_MAX: usize = 255;

/// An address with or without a port.
pub(crate) fn parse_seed(text: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    let text = match text {
        "localhost" => "127.0.0.1",
        text => text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text),
    };
    text.parse::<IpAddr>().ok().map(|address| (address, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        options.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        config
    }

    #[test]
    fn seeds_are_addresses_with_or_without_a_port() {
        let seeds = |text: &str| {
            let config = with(&[("storage_port", "7700"), ("seeds", text)]);
            config
                .seed_addresses()
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        for (text, expected) in [
            ("", ""),
            ("10.0.0.1", "10.0.0.1:7700"),
            ("10.0.0.1, 10.0.0.2:7000", "10.0.0.1:7700 10.0.0.2:7000"),
            ("::1,[::2],[::3]:7000", "[::1]:7700 [::2]:7700 [::3]:7000"),
            ("localhost", "127.0.0.1:7700"),
            ("seeds=10.0.0.1,10.0.0.2", "10.0.0.1:7700 10.0.0.2:7700"),
        ] {
            assert_eq!(seeds(text).as_deref(), Ok(expected), "{text}");
        }
        let config = with(&[("seeds", "10.0.0.1,?lost.example"), ("storage_port", "7700")]);
        assert_eq!(config.seed_addresses().map(|all| all.len()), Ok(1), "only those that have an address");
        assert_eq!(config.unresolved_seeds().collect::<Vec<_>>(), ["lost.example"]);
        for text in ["node one:7000", "10.0.0.1:99999", "10.0.0"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn contradictory_options_are_refused() {
        for (options, said) in [
            (&[("listen_address", "0.0.0.0")][..], "listen_address cannot be a wildcard address"),
            (&[("listen_address", "::")], "listen_address cannot be a wildcard address"),
            (&[("broadcast_address", "0.0.0.0")], "broadcast_address cannot be"),
            (&[("rpc_address", "0.0.0.0")], "set broadcast_rpc_address"),
            (
                &[("rpc_address", "0.0.0.0"), ("broadcast_rpc_address", "0.0.0.0")],
                "broadcast_rpc_address cannot be",
            ),
            (&[("seeds", "one,two")], "option seeds: 'one'"),
            (&[("initial_token", "1,x")], "option initial_token: 'x'"),
            (&[("initial_token", "1,2,1")], "initial_token names 1 twice"),
            (&[("initial_token", "1,2"), ("num_tokens", "3")], "different from num_tokens value (3)"),
            (&[("phi_convict_threshold", "4.9")], "between 5 and 16, but was 4.9"),
            (&[("phi_convict_threshold", "NaN")], "between 5 and 16"),
            (&[("endpoint_snitch", "Ec2Snitch")], "GossipingPropertyFileSnitch or SimpleSnitch"),
            (&[("internode_compression", "some")], "expected all or dc or none"),
            (&[("internode_compressor", "snappy")], "expected lz4 or zstd"),
            (&[("cluster_name", " ")], "option cluster_name"),
            (&[("hints_flush_period", "1ms")], "hints_flush_period"),
            (&[("ignore_dead_nodes_for_replace", "10.0.0.9")], "set replace_node_first_boot"),
            (
                &[("replace_address", "10.0.0.9"), ("ignore_dead_nodes_for_replace", "10.0.0.8, nine")],
                "option ignore_dead_nodes_for_replace: 'nine'",
            ),
            (&[("max_hints_delivery_threads", "0")], "max_hints_delivery_threads"),
        ] {
            let error = with(options).check().expect_err(said).to_string();
            assert!(error.contains(said), "{options:?}: {error}");
        }
        Config::default().check().unwrap();
        with(&[("rpc_address", "0.0.0.0"), ("broadcast_rpc_address", "10.0.0.1")]).check().unwrap();
        with(&[("initial_token", "3, -9223372036854775808,1")]).check().unwrap();
    }

    #[test]
    fn traffic_between_datacenters_is_packed() {
        let packing = |options| with(options).packing();
        assert_eq!(packing(&[]), (Packing::Lz4, CompressBetween::Datacenters));
        let all = [("internode_compression", "all"), ("internode_compressor", "zstd")];
        assert_eq!(packing(&all), (Packing::Zstd, CompressBetween::Nodes));
        let none = [("internode_compression", "none"), ("internode_compressor", "zstd")];
        assert_eq!(packing(&none).0, Packing::None);
    }

    #[test]
    fn a_node_says_where_it_is_found() {
        let mut config = with(&[("listen_address", "10.0.0.1"), ("rpc_address", "::1"), ("rack", "r9")]);
        assert_eq!(config.internode_address().to_string(), "10.0.0.1:7000");
        assert_eq!(config.native_address().to_string(), "[::1]:9042");
        assert_eq!(config.location(), Location::new("datacenter1", "r9"));
        config.broadcast_address = Some(IpAddr::from([10, 0, 0, 7]));
        config.broadcast_rpc_address = Some(IpAddr::from([10, 0, 0, 8]));
        config.endpoint_snitch = "SimpleSnitch".to_owned();
        assert_eq!(config.internode_address().to_string(), "10.0.0.7:7000");
        assert_eq!(config.native_address().to_string(), "10.0.0.8:9042");
        assert_eq!(config.location(), Location::new("datacenter1", "rack1"));
    }
}
