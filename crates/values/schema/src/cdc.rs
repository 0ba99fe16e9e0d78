//! Change data capture: the options of a table, and the generations of streams into which its changes go (docs/design/cdc.md).

/// The end of the name of a table's log, behind the table's name.
pub const CDC_LOG_SUFFIX: &str = "_scylla_cdc_log";

/// How long the rows of a log live when nothing else was said, in seconds.
pub const CDC_TTL_DEFAULT: u32 = 86_400;

/// The rows of a log that show how a changed row was before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CdcPreimage {
    /// None.
    #[default]
    Off,
    /// With the columns that change.
    Changed,
    /// With all columns.
    Full,
}

impl CdcPreimage {
    /// Its word in statements.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "false",
            Self::Changed => "true",
            Self::Full => "full",
        }
    }

    /// From its word, in lower case.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Off, Self::Changed, Self::Full].into_iter().find(|preimage| preimage.word() == word)
    }
}

/// The option `cdc` of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdc {
    /// Whether changes are captured.
    pub enabled: bool,
    /// Whether and how rows before a change are logged.
    pub preimage: CdcPreimage,
    /// Whether rows after a change are logged.
    pub postimage: bool,
    /// `'delta': 'keys'`: changes are logged without the values of columns outside of the key.
    pub keys_only: bool,
    /// How long the rows of the log live, in seconds; 0 for ever.
    pub ttl: u32,
}

impl Default for Cdc {
    fn default() -> Self {
        Self {
            enabled: false,
            preimage: CdcPreimage::Off,
            postimage: false,
            keys_only: false,
            ttl: CDC_TTL_DEFAULT,
        }
    }
}

impl Cdc {
    /// The names of its parts in statements, in order, with the values as statements write them.
    pub fn to_map(self) -> [(&'static str, String); 5] {
        [
            ("delta", if self.keys_only { "keys" } else { "full" }.to_owned()),
            ("enabled", self.enabled.to_string()),
            ("postimage", self.postimage.to_string()),
            ("preimage", self.preimage.word().to_owned()),
            ("ttl", self.ttl.to_string()),
        ]
    }
}

/// A range of the ring that one node owns first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CdcVnode {
    /// The last token of the range, which begins behind the one before; the range of the first wraps around.
    pub upto: i64,
    /// The shards of its owner: so many streams it has.
    pub shards: u16,
}

/// Streams for a ring. They receive changes with timestamps from its start to that of the next generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdcGeneration {
    /// From when it counts, in milliseconds since the epoch.
    pub start_millis: i64,
    /// The ring, by rising tokens; never empty.
    pub vnodes: Vec<CdcVnode>,
}

impl CdcGeneration {
    /// The place among [`CdcGeneration::vnodes`] of the range that a token is in.
    pub fn vnode_of(&self, token: i64) -> usize {
        let at = self.vnodes.partition_point(|vnode| vnode.upto < token);
        if at == self.vnodes.len() { 0 } else { at }
    }

    /// The last token before a range.
    pub fn after(&self, vnode: usize) -> i64 {
        let before = vnode.checked_sub(1).unwrap_or(self.vnodes.len() - 1);
        self.vnodes[before].upto
    }

    /// From when it counts, in microseconds since the epoch.
    pub fn start_micros(&self) -> i64 {
        self.start_millis.saturating_mul(1000)
    }
}
