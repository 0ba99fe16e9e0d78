//! Roles and permissions: statements by several roles, held against Cassandra 5.0.6 (`testdata/roles.txt`), and the path of prepared
//! statements, which are shared by roles with different permissions.

use exec::backend::Coordinator as _;
use exec::{ExecLimits, FunctionLimits};
use schema::Schema;
use wire::client::{AnswerBody, BatchItem, ResultBody};
use wire::{BatchType, Value};

use crate::golden::{Node, block_on, check_on, show};
use crate::memory::Memory;

fn node() -> (Memory, Node) {
    let functions = FunctionLimits { enabled: true, ..FunctionLimits::default() };
    let limits = ExecLimits {
        restricts_datacenters: true,
        data_masking: true,
        functions,
        bcrypt_cost: 4,
        ..ExecLimits::default()
    };
    let node = Node::with_superuser(limits);
    (node.cluster(), node)
}

#[test]
fn roles_and_permissions() {
    check_on(&node().1, "roles.txt");
}

#[test]
fn without_an_authorizer_nothing_can_be_granted() {
    let cluster = Memory::new();
    let node = Node::with_limits(cluster, ExecLimits { bcrypt_cost: 4, ..ExecLimits::default() });
    for text in ["CREATE ROLE a", "LIST ROLES", "GRANT SELECT ON ALL KEYSPACES TO a", "DROP ROLE IF EXISTS a"]
    {
        let shown = show(&node.query(text));
        assert_eq!(
            shown,
            "! Unauthorized: You have to be logged in and not anonymous to perform this request"
        );
    }
    node.log_in("somebody");
    node.run("CREATE ROLE a");
    assert_eq!(
        show(&node.query("GRANT SELECT ON ALL KEYSPACES TO a")),
        "! Invalid: GRANT operation is not supported by AllowAllAuthorizer"
    );
    assert_eq!(
        show(&node.query("ALTER ROLE a WITH ACCESS TO DATACENTERS {'x'}")),
        "! Unauthorized: Only superusers are allowed to alter access to datacenters."
    );
}

/// As in ScyllaDB, where the authorizer alone decides on them: one that allows all, or one that knows nobody without a name.
#[test]
fn anonymous_clients_have_service_levels_where_nothing_is_authorized() {
    let node = Node::new();
    let created = "CREATE SERVICE LEVEL fast WITH timeout = 50ms";
    assert_eq!(show(&node.query(created)), "void");
    assert_eq!(show(&node.query("ALTER SERVICE LEVEL fast WITH timeout = NULL")), "void");
    assert_eq!(
        show(&node.query("DETACH SERVICE LEVEL FROM nobody")),
        "! Invalid: Role nobody doesn't exist."
    );
    assert!(
        show(&node.query("LIST ALL SERVICE LEVELS")).ends_with("'fast' | null | null | 1000 | '100.00%'")
    );
    assert_eq!(show(&node.query("DROP SERVICE LEVEL fast")), "void");
    let unknown = "! Unauthorized: You have to be logged in and not anonymous to perform this request";
    assert_eq!(show(&node.query("LIST ROLES")), unknown);

    let node = Node::with_limits(Memory::new(), ExecLimits { authorizes: true, ..ExecLimits::default() });
    assert_eq!(show(&node.query(created)), unknown);
}

fn prepare(node: &Node, text: &str) -> Vec<u8> {
    match node.request(|request| request.prepare(text, None)).body {
        AnswerBody::Result(ResultBody::Prepared(prepared)) => prepared.metadata.id.to_vec(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn prepared_statements_are_checked_each_time() {
    let (_, node) = node();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
    node.run("CREATE ROLE ann");
    let select = prepare(&node, "SELECT v FROM ks.t WHERE k = ?");
    let insert = prepare(&node, "INSERT INTO ks.t (k, v) VALUES (?, 1)");
    let unless = prepare(&node, "INSERT INTO ks.t (k, v) VALUES (?, 1) IF NOT EXISTS");
    let key = 1_i32.to_be_bytes();
    let execute = |role: &str, id: &[u8]| {
        node.log_in(role);
        let values = [Value::Set(&key)];
        show(&node.request(|request| request.execute(id, &[], &Node::values(&values))))
    };
    let refused = |permission: &str| {
        format!(
            "! Unauthorized: User ann has no {permission} permission on <table ks.t> or any of its parents"
        )
    };
    assert_eq!(execute("cassandra", &insert), "void");
    assert_eq!(execute("ann", &select), refused("SELECT"));
    assert_eq!(execute("ann", &insert), refused("MODIFY"));
    node.log_in("cassandra");
    node.run("GRANT MODIFY ON ks.t TO ann");
    assert_eq!(execute("ann", &insert), "void");
    assert_eq!(execute("ann", &unless), refused("SELECT"), "a condition reads");
    let batch = |role: &str, id: &[u8]| {
        node.log_in(role);
        let values = [Value::Set(&key)];
        let items = [BatchItem::Prepared(id, &values)];
        show(&node.request(|request| request.batch(BatchType::Logged, &items, &Node::values(&[]))))
    };
    assert_eq!(batch("ann", &insert), "void");
    node.log_in("cassandra");
    node.run("REVOKE MODIFY ON ks.t FROM ann");
    assert_eq!(batch("ann", &insert), refused("MODIFY"));
    assert_eq!(execute("ann", &insert), refused("MODIFY"));
    node.log_in("cassandra");
    node.run("GRANT SELECT ON KEYSPACE ks TO ann");
    assert!(execute("ann", &select).contains("\n  1"));
    node.log_in("cassandra");
    node.run("DROP ROLE ann");
    assert_eq!(execute("ann", &select), refused("SELECT"));
}

#[test]
fn a_password_is_hashed_and_never_shown() {
    let (cluster, node) = node();
    node.run("CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true");
    let schema: std::sync::Arc<Schema> = cluster.schema();
    let hash = schema.role("ann").unwrap().salted_hash.clone().expect("a hash");
    let matches = |text: &str| block_on(auth::password::Hash::parse(&hash).expect("bcrypt").matches(text));
    assert!(matches("secret") && !matches("Secret"));
    let rows = node.rows("CREATE ROLE gen WITH GENERATED PASSWORD AND LOGIN = true");
    let password = String::from_utf8(rows[0][0].clone().unwrap()).unwrap();
    assert!(password.len() >= 16 && password.chars().all(|c| c.is_ascii_alphanumeric()));
    let stored = cluster.schema().role("gen").unwrap().salted_hash.clone().unwrap();
    assert!(block_on(auth::password::Hash::parse(&stored).unwrap().matches(&password)));
}

#[test]
fn requests_of_a_role_have_the_timeout_of_its_service_level() {
    let (cluster, node) = node();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
    let level = |role: &str| node.service_level(role).timeout;
    assert_eq!(level("cassandra"), None);
    node.run("CREATE SERVICE LEVEL fast WITH timeout = 50ms");
    node.run("ATTACH SERVICE LEVEL fast TO cassandra");
    assert_eq!(level("cassandra"), Some(std::time::Duration::from_millis(50)));
    assert_eq!(cluster.schema().role("cassandra").unwrap().service_level.as_deref(), Some("fast"));
    node.run("ALTER SERVICE LEVEL fast WITH timeout = 70ms");
    assert_eq!(
        level("cassandra"),
        Some(std::time::Duration::from_millis(70)),
        "open connections see it at once"
    );
    assert_eq!(level("nobody"), None);
}

#[test]
fn service_levels_have_scheduling_groups_in_the_order_of_their_names() {
    let (_, node) = node();
    let place = |role: &str| node.executor().level_place(Some(role));
    assert_eq!((place("cassandra"), node.executor().level_place(None)), (None, None));
    node.run("CREATE SERVICE LEVEL slow WITH shares = 100");
    node.run("ATTACH SERVICE LEVEL slow TO cassandra");
    assert_eq!(place("cassandra"), Some(0));
    node.run("CREATE SERVICE LEVEL fast WITH shares = 1000");
    assert_eq!(place("cassandra"), Some(1), "the place is that of the name");
    // The fewest shares of its roles count, and so that level's group.
    node.run("CREATE ROLE member");
    node.run("ATTACH SERVICE LEVEL fast TO member");
    assert_eq!(place("member"), Some(0));
    node.run("GRANT cassandra TO member");
    assert_eq!(place("member"), Some(1));
    node.run("DROP SERVICE LEVEL slow");
    assert_eq!((place("cassandra"), place("member")), (None, Some(0)));
    for number in 2..=7 {
        node.run(&format!("CREATE SERVICE LEVEL level{number}"));
    }
    let refused =
        "Can't create service level eighth: there are 7, and no more scheduling groups for their shares";
    assert_eq!(node.refusal("CREATE SERVICE LEVEL eighth").as_deref(), Some(refused));
    node.run("CREATE SERVICE LEVEL IF NOT EXISTS fast");
    node.run("DROP SERVICE LEVEL level2");
    node.run("CREATE SERVICE LEVEL eighth");
}

/// The statements of a description of the whole schema, in order; the text of the answer where it is an error.
fn described(node: &Node, text: &str) -> Result<Vec<String>, String> {
    match node.query(text).body {
        AnswerBody::Result(ResultBody::Rows(rows)) => Ok(rows
            .to_vec()
            .expect("rows")
            .into_iter()
            .map(|row| String::from_utf8(row[3].clone().expect("a statement").to_vec()).expect("text"))
            .collect()),
        _ => Err(show(&node.query(text))),
    }
}

#[test]
fn a_description_of_the_schema_makes_it_again() {
    let made = [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE KEYSPACE \"Odd\" WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND durable_writes = false",
        "CREATE TYPE ks.inner (a int, \"B b\" text)",
        "CREATE TYPE ks.outer (i frozen<inner>, m frozen<map<text, frozen<inner>>>)",
        "CREATE TABLE ks.t (p int, q text, c timeuuid, d int, s text static, v outer, w vector<float, 3>, x list<int>, gone int, PRIMARY KEY ((p, q), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s' AND default_time_to_live = 5 AND speculative_retry = 'MIN(99p,50ms)' AND compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 64} AND extensions = {'a': 0x01}",
        "ALTER TABLE ks.t DROP gone",
        "CREATE INDEX ON ks.t (d)",
        "CREATE CUSTOM INDEX sai ON ks.t (x) USING 'StorageAttachedIndex'",
        "CREATE TABLE \"Odd\".\"Tt\" (\"select\" int PRIMARY KEY, \"a\"\"b\" counter)",
        "CREATE TABLE ks.custom (k 'CompositeType(Int32Type,UTF8Type)' PRIMARY KEY, v 'LexicalUUIDType')",
        "CREATE TABLE ks.masked (k int, c text, m text MASKED WITH mask_inner(1, null, '*'), n int CHECK n > 0 AND n < 10 AND NOT NULL, j text CHECK JSON() AND LENGTH() < 100, expires int, PRIMARY KEY (k, c))",
        "ALTER TABLE ks.masked TTL expires",
        "COMMENT ON KEYSPACE ks IS 'a ''keyspace'''",
        "COMMENT ON TABLE ks.masked IS 'masked'",
        "COMMENT ON COLUMN ks.masked.m IS 'hidden'",
        "COMMENT ON TYPE ks.inner IS 'nested'",
        "SECURITY LABEL ON TABLE ks.masked IS 'secret'",
        "SECURITY LABEL ON COLUMN ks.masked.m IS 'top secret'",
        "CREATE TABLE ks.base (k int, l text, c int, v int, w text, e vector<float, 2>, PRIMARY KEY ((k, l), c)) WITH cdc = {'enabled': true, 'preimage': true, 'ttl': 100} AND compression = {'sstable_compression': 'ZstdCompressor', 'compression_level': 5} AND caching = {'keys': 'ALL', 'rows_per_partition': 'ALL'} AND tombstone_gc = {'mode': 'repair'} AND per_partition_rate_limit = {'max_writes_per_second': 7}",
        "CREATE INDEX global ON ks.base (v)",
        "CREATE INDEX local ON ks.base ((k, l), w)",
        "CREATE CUSTOM INDEX words ON ks.base (w) USING 'org.apache.cassandra.index.sasi.SASIIndex' WITH OPTIONS = {'mode': 'CONTAINS', 'case_sensitive': 'false', 'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer'}",
        "CREATE CUSTOM INDEX near ON ks.base (e) USING 'StorageAttachedIndex' WITH OPTIONS = {'similarity_function': 'euclidean'}",
        "CREATE TABLE ks.maps (k int PRIMARY KEY, m map<text, int>, f frozen<set<int>>)",
        "CREATE INDEX by_entry ON ks.maps (ENTRIES(m))",
        "CREATE INDEX by_key ON ks.maps (KEYS(m))",
        "CREATE INDEX by_all ON ks.maps (FULL(f))",
        "CREATE MATERIALIZED VIEW ks.\"ByV\" AS SELECT k, l, c, v FROM ks.base WHERE v IS NOT NULL AND k IS NOT NULL AND l IS NOT NULL AND c > 3 PRIMARY KEY ((v, l), k, c) WITH CLUSTERING ORDER BY (k DESC, c ASC) AND comment = 'a view' AND gc_grace_seconds = 77",
        "CREATE FUNCTION ks.half (x int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return x // 2'",
        "CREATE FUNCTION ks.\"Add\" (s bigint, x int) CALLED ON NULL INPUT RETURNS bigint LANGUAGE lua AS $$return (s or 0) + (x or 0) -- 'quoted'$$",
        "CREATE FUNCTION ks.merge (s bigint, t bigint) RETURNS NULL ON NULL INPUT RETURNS bigint LANGUAGE lua AS 'return s + t'",
        "CREATE AGGREGATE ks.total (int) SFUNC \"Add\" STYPE bigint REDUCEFUNC merge INITCOND 0",
        "CREATE SERVICE LEVEL gold WITH SHARES = 500 AND TIMEOUT = 5s AND WORKLOAD_TYPE = 'batch'",
        "CREATE ROLE readers",
        "CREATE ROLE \"Ann's\" WITH PASSWORD = 'secret' AND LOGIN = true",
        "CREATE ROLE boss WITH SUPERUSER = true AND LOGIN = true AND ACCESS TO DATACENTERS {'datacenter1'}",
        "GRANT readers TO \"Ann's\"",
        "GRANT SELECT ON TABLE ks.t TO readers",
        "GRANT MODIFY ON KEYSPACE \"Odd\" TO readers",
        "GRANT DESCRIBE ON ALL ROLES TO \"Ann's\"",
        "GRANT ALTER ON ROLE readers TO \"Ann's\"",
        "GRANT EXECUTE ON FUNCTION ks.half(int) TO readers",
        "GRANT UNMASK ON TABLE ks.masked TO readers",
        "GRANT CREATE ON ALL FUNCTIONS IN KEYSPACE ks TO readers",
        "ATTACH SERVICE LEVEL gold TO \"Ann's\"",
        "ADD IDENTITY 'spiffe://torc/ann''s' TO ROLE 'Ann''s'",
        "ADD IDENTITY plain TO ROLE boss",
    ];
    let (_, first) = node();
    for text in made {
        let shown = show(&first.query(text));
        assert!(!shown.starts_with('!'), "{text}: {shown}");
    }
    let whole = "DESCRIBE SCHEMA WITH INTERNALS AND PASSWORDS";
    let statements = described(&first, whole).expect("a superuser sees all");
    assert!(statements.iter().any(|text| text.contains("HASHED PASSWORD = '$2a$")), "{statements:?}");
    let (_, second) = node();
    // A statement of the description may be several.
    for text in statements.iter().flat_map(|text| text.split(";\n")) {
        let shown = show(&second.query(text.trim_end_matches(';')));
        assert!(!shown.starts_with('!'), "{text}: {shown}");
    }
    assert_eq!(described(&second, whole).expect("a superuser sees all"), statements);

    let plain = described(&first, "DESCRIBE SCHEMA WITH INTERNALS").expect("a superuser sees all");
    assert!(plain.iter().any(|text| text.starts_with("CREATE ROLE")));
    assert!(!plain.iter().any(|text| text.contains("HASHED")));
    let short = described(&first, "DESCRIBE SCHEMA").expect("anybody sees the tables");
    assert!(!short.iter().any(|text| text.contains("ROLE")));
    first.log_in("Ann's");
    assert!(described(&first, whole).unwrap_err().starts_with("! Unauthorized"));
    let hers = described(&first, "DESCRIBE SCHEMA WITH INTERNALS").expect("anybody sees the tables");
    assert!(!hers.iter().any(|text| text.contains("ROLE")));
}

/// A permission on all keyspaces extends to none of the server's.
#[test]
fn the_keyspaces_of_the_server_are_known_to_authorization() {
    let (_, node) = node();
    let mut names = Vec::new();
    for table in ["system_schema.keyspaces", "system_virtual_schema.keyspaces"] {
        let AnswerBody::Result(ResultBody::Rows(rows)) =
            node.query(&format!("SELECT keyspace_name FROM {table}")).body
        else {
            panic!("rows")
        };
        for row in rows.to_vec().expect("rows") {
            names.push(String::from_utf8(row[0].clone().expect("a name").to_vec()).expect("text"));
        }
    }
    assert!(names.len() >= 7, "{names:?}");
    assert!(names.iter().all(|name| auth::is_system_keyspace(name)), "{names:?}");
}
