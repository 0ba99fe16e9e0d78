//! The keywords of CQL, how each may be used as a name, and their recognition without allocation.

use crate::ast::NativeType;

/// How a keyword may be used as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Never a name unless quoted; in Cassandra's list of reserved words.
    Reserved,
    /// `true` and `false`: constants, so no names, although no list has them.
    Literal,
    /// A name anywhere but for a login name or a language.
    Unreserved,
    /// A native type: a name of anything but a user-defined type.
    Native(NativeType),
    /// A word with call syntax of its own: neither a type's nor a function's name. `key` may name a type.
    Special,
    /// A word that only means something where the grammar looks for it; else an ordinary identifier.
    Context,
}

macro_rules! keywords {
    ($($variant:ident $text:literal $class:expr;)*) => {
        /// Every keyword.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub(crate) enum Keyword { $($variant,)* }

        const TEXTS: &[&str] = &[$($text,)*];
        const CLASSES: &[Class] = &[$($class,)*];
        const KEYWORDS: &[Keyword] = &[$(Keyword::$variant,)*];
    };
}

use Class::{Context, Literal, Native, Reserved, Special, Unreserved};

keywords! {
    Access "ACCESS" Unreserved;
    Add "ADD" Reserved;
    Aggregate "AGGREGATE" Unreserved;
    Aggregates "AGGREGATES" Unreserved;
    All "ALL" Unreserved;
    Allow "ALLOW" Reserved;
    Alter "ALTER" Reserved;
    And "AND" Reserved;
    Ann "ANN" Unreserved;
    Apply "APPLY" Reserved;
    As "AS" Unreserved;
    Asc "ASC" Reserved;
    Ascii "ASCII" Native(NativeType::Ascii);
    Attach "ATTACH" Context;
    Attached "ATTACHED" Context;
    Authorize "AUTHORIZE" Reserved;
    Batch "BATCH" Reserved;
    Begin "BEGIN" Reserved;
    Between "BETWEEN" Context;
    Bigint "BIGINT" Native(NativeType::Bigint);
    Blob "BLOB" Native(NativeType::Blob);
    Boolean "BOOLEAN" Native(NativeType::Boolean);
    By "BY" Reserved;
    Bypass "BYPASS" Context;
    Cache "CACHE" Context;
    Called "CALLED" Unreserved;
    Cast "CAST" Special;
    Check "CHECK" Context;
    Cidrs "CIDRS" Unreserved;
    Cluster "CLUSTER" Unreserved;
    Clustering "CLUSTERING" Unreserved;
    Column "COLUMN" Context;
    Columnfamilies "COLUMNFAMILIES" Unreserved;
    Columnfamily "COLUMNFAMILY" Reserved;
    Comment "COMMENT" Context;
    Commit "COMMIT" Context;
    Compact "COMPACT" Unreserved;
    Concurrency "CONCURRENCY" Context;
    Contains "CONTAINS" Unreserved;
    Count "COUNT" Special;
    Counter "COUNTER" Native(NativeType::Counter);
    Create "CREATE" Reserved;
    Custom "CUSTOM" Unreserved;
    Datacenters "DATACENTERS" Unreserved;
    Date "DATE" Native(NativeType::Date);
    Decimal "DECIMAL" Native(NativeType::Decimal);
    Default "DEFAULT" Unreserved;
    Delete "DELETE" Reserved;
    Desc "DESC" Reserved;
    Describe "DESCRIBE" Reserved;
    Detach "DETACH" Context;
    Distinct "DISTINCT" Special;
    Double "DOUBLE" Native(NativeType::Double);
    Drop "DROP" Reserved;
    Duration "DURATION" Native(NativeType::Duration);
    Effective "EFFECTIVE" Context;
    End "END" Context;
    Entries "ENTRIES" Reserved;
    Execute "EXECUTE" Reserved;
    Exists "EXISTS" Unreserved;
    False "FALSE" Literal;
    Field "FIELD" Context;
    Filtering "FILTERING" Unreserved;
    Finalfunc "FINALFUNC" Unreserved;
    Float "FLOAT" Native(NativeType::Float);
    For "FOR" Context;
    From "FROM" Reserved;
    Frozen "FROZEN" Unreserved;
    Full "FULL" Reserved;
    Function "FUNCTION" Unreserved;
    Functions "FUNCTIONS" Unreserved;
    Generated "GENERATED" Context;
    Grant "GRANT" Reserved;
    Group "GROUP" Unreserved;
    Hash "HASH" Context;
    Hashed "HASHED" Unreserved;
    Identity "IDENTITY" Unreserved;
    If "IF" Reserved;
    In "IN" Reserved;
    Index "INDEX" Reserved;
    Indexes "INDEXES" Context;
    Inet "INET" Native(NativeType::Inet);
    Infinity "INFINITY" Reserved;
    Initcond "INITCOND" Unreserved;
    Input "INPUT" Unreserved;
    Insert "INSERT" Reserved;
    Int "INT" Native(NativeType::Int);
    Internals "INTERNALS" Unreserved;
    Into "INTO" Reserved;
    Is "IS" Reserved;
    Json "JSON" Special;
    Key "KEY" Special;
    Keys "KEYS" Unreserved;
    Keyspace "KEYSPACE" Reserved;
    Keyspaces "KEYSPACES" Unreserved;
    Label "LABEL" Context;
    Labels "LABELS" Context;
    Language "LANGUAGE" Unreserved;
    Let "LET" Context;
    Level "LEVEL" Context;
    Levels "LEVELS" Context;
    Like "LIKE" Unreserved;
    Limit "LIMIT" Reserved;
    List "LIST" Unreserved;
    Login "LOGIN" Unreserved;
    Map "MAP" Unreserved;
    Masked "MASKED" Unreserved;
    Materialized "MATERIALIZED" Reserved;
    Maxwritetime "MAXWRITETIME" Special;
    Mbean "MBEAN" Unreserved;
    Mbeans "MBEANS" Unreserved;
    Modify "MODIFY" Reserved;
    Nan "NAN" Reserved;
    Nologin "NOLOGIN" Unreserved;
    Norecursive "NORECURSIVE" Reserved;
    Nosuperuser "NOSUPERUSER" Unreserved;
    Not "NOT" Reserved;
    Null "NULL" Reserved;
    Of "OF" Reserved;
    On "ON" Reserved;
    Only "ONLY" Unreserved;
    Options "OPTIONS" Unreserved;
    Or "OR" Reserved;
    Order "ORDER" Reserved;
    Partition "PARTITION" Unreserved;
    Password "PASSWORD" Unreserved;
    Per "PER" Unreserved;
    Permission "PERMISSION" Unreserved;
    Permissions "PERMISSIONS" Unreserved;
    Primary "PRIMARY" Reserved;
    Prune "PRUNE" Context;
    Reducefunc "REDUCEFUNC" Context;
    Rename "RENAME" Reserved;
    Replace "REPLACE" Unreserved;
    Returns "RETURNS" Unreserved;
    Revoke "REVOKE" Reserved;
    Role "ROLE" Unreserved;
    Roles "ROLES" Unreserved;
    Salted "SALTED" Context;
    Schema "SCHEMA" Reserved;
    Security "SECURITY" Context;
    Select "SELECT" Reserved;
    SelectMasked "SELECT_MASKED" Unreserved;
    Service "SERVICE" Context;
    ServiceLevel "SERVICE_LEVEL" Context;
    ServiceLevels "SERVICE_LEVELS" Context;
    Set "SET" Reserved;
    Sfunc "SFUNC" Unreserved;
    Smallint "SMALLINT" Native(NativeType::Smallint);
    Static "STATIC" Unreserved;
    Storage "STORAGE" Unreserved;
    Stype "STYPE" Unreserved;
    Superuser "SUPERUSER" Unreserved;
    Superusers "SUPERUSERS" Context;
    Table "TABLE" Reserved;
    Tables "TABLES" Unreserved;
    Text "TEXT" Native(NativeType::Text);
    Then "THEN" Context;
    Time "TIME" Native(NativeType::Time);
    Timeout "TIMEOUT" Context;
    Timestamp "TIMESTAMP" Native(NativeType::Timestamp);
    Timeuuid "TIMEUUID" Native(NativeType::Timeuuid);
    Tinyint "TINYINT" Native(NativeType::Tinyint);
    To "TO" Reserved;
    Token "TOKEN" Reserved;
    Transaction "TRANSACTION" Context;
    Trigger "TRIGGER" Unreserved;
    True "TRUE" Literal;
    Truncate "TRUNCATE" Reserved;
    Ttl "TTL" Special;
    Tuple "TUPLE" Unreserved;
    Type "TYPE" Unreserved;
    Types "TYPES" Unreserved;
    Unlogged "UNLOGGED" Reserved;
    Unmask "UNMASK" Unreserved;
    Unset "UNSET" Unreserved;
    Update "UPDATE" Reserved;
    Use "USE" Reserved;
    User "USER" Unreserved;
    Users "USERS" Unreserved;
    Using "USING" Reserved;
    Uuid "UUID" Native(NativeType::Uuid);
    Values "VALUES" Unreserved;
    Varchar "VARCHAR" Native(NativeType::Varchar);
    Varint "VARINT" Native(NativeType::Varint);
    Vector "VECTOR" Unreserved;
    View "VIEW" Reserved;
    Where "WHERE" Reserved;
    With "WITH" Reserved;
    Writetime "WRITETIME" Special;
}

/// The longest keyword that [`pack`] can hold.
const LENGTH_MAX: usize = 16;
/// Slots of the hash table: a power of two, more than twice the keywords.
const SLOTS: usize = 512;
const SLOT_EMPTY: u8 = u8::MAX;

const _: () = assert!(KEYWORDS.len() < SLOTS / 2 && KEYWORDS.len() < SLOT_EMPTY as usize);

/// The bytes of a word without the case of its letters, as one number. The padding is never a word's byte.
#[allow(clippy::indexing_slicing, reason = "the callers check the length")]
const fn pack(word: &[u8]) -> u128 {
    let mut bytes = [0; LENGTH_MAX];
    let mut i = 0;
    while i < word.len() {
        bytes[i] = word[i];
        i += 1;
    }
    u128::from_le_bytes(bytes) | u128::from_le_bytes([0x20; LENGTH_MAX])
}

const fn slot(packed: u128) -> usize {
    let folded = (packed as u64) ^ ((packed >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros())) as usize
}

#[allow(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static PACKED: [u128; KEYWORDS.len()] = {
    let mut packed = [0; KEYWORDS.len()];
    let mut i = 0;
    while i < packed.len() {
        assert!(TEXTS[i].len() <= LENGTH_MAX);
        packed[i] = pack(TEXTS[i].as_bytes());
        i += 1;
    }
    packed
};

#[allow(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static TABLE: [u8; SLOTS] = {
    let mut table = [SLOT_EMPTY; SLOTS];
    let mut i = 0;
    while i < KEYWORDS.len() {
        let mut at = slot(pack(TEXTS[i].as_bytes()));
        while table[at] != SLOT_EMPTY {
            at = (at + 1) % SLOTS;
        }
        table[at] = i as u8;
        i += 1;
    }
    table
};

impl Keyword {
    /// The keyword that `word` is in any case; `word` holds letters, digits and underscores only.
    pub(crate) fn find(word: &[u8]) -> Option<Keyword> {
        if word.len() > LENGTH_MAX || word.len() < 2 {
            return None;
        }
        let packed = pack(word);
        let mut at = slot(packed);
        loop {
            let index = *TABLE.get(at)?;
            if index == SLOT_EMPTY {
                return None;
            }
            if PACKED.get(usize::from(index)) == Some(&packed) {
                return KEYWORDS.get(usize::from(index)).copied();
            }
            at = (at + 1) % SLOTS;
        }
    }

    /// The keyword in upper case.
    #[expect(clippy::indexing_slicing, reason = "the table has every keyword")]
    pub(crate) fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "the table has every keyword")]
    pub(crate) fn class(self) -> Class {
        CLASSES[self as usize]
    }

    /// Whether it may stand unquoted where a column, table or keyspace is named.
    pub(crate) fn is_name(self) -> bool {
        !matches!(self.class(), Reserved | Literal)
    }

    /// Whether it may stand unquoted as the name of a function.
    pub(crate) fn is_function_name(self) -> bool {
        match self.class() {
            Unreserved | Native(_) | Context => true,
            _ => matches!(self, Keyword::Token | Keyword::Count),
        }
    }

    /// Whether it may stand unquoted as the name of a user-defined type.
    pub(crate) fn is_type_name(self) -> bool {
        matches!(self.class(), Unreserved | Context) || self == Keyword::Key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_found_in_any_case() {
        for (i, text) in TEXTS.iter().enumerate() {
            assert_eq!(Keyword::find(text.as_bytes()), Some(KEYWORDS[i]), "{text}");
            assert_eq!(Keyword::find(text.to_lowercase().as_bytes()), Some(KEYWORDS[i]), "{text}");
            assert_eq!(KEYWORDS[i].text(), *text);
        }
    }

    #[test]
    fn other_words_are_not_keywords() {
        for word in ["", "a", "selec", "selects", "select_mask", "a_very_long_column_name_indeed", "x1"] {
            assert_eq!(Keyword::find(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn keywords_are_in_order_and_differ() {
        assert!(TEXTS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
