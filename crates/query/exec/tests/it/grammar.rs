//! Statements about everything that is no plain table, made at random: roles, permissions, service levels, indexes, views, masks,
//! functions, types, captures of changes, DESCRIBE, batches, and relations of every operator. For the fuzzers.

use testkit::fuzz::Random;

use crate::fuzz::{LITERALS, TYPES, expression};

/// Columns of `ks.b`.
const COLUMNS: &[&str] =
    &["k", "c", "v", "w", "s", "l", "st", "m", "fl", "e", "u", "uu", "d", "tu", "n", "nosuch"];
const TABLES: &[&str] = &[
    "ks.b",
    "ks.b",
    "ks.b",
    "ks.by_v",
    "ks.n",
    "ks.counted",
    "ks.b_scylla_cdc_log",
    "ks.nosuch",
    "system.local",
    "system_schema.tables",
    "system_auth.roles",
    "system_views.settings",
    "system_distributed.cdc_generation_timestamps",
];
const ROLES: &[&str] = &["ann", "bob", "cassandra", "\"\"", "\"\u{e9} x\"", "'ann'", "nosuch"];
const LEVELS: &[&str] = &["fast", "slow", "\"default\"", "\"\"", "nosuch"];
const INDEXES: &[&str] = &["near", "values_of_v", "x", "\"A b\"", "nosuch"];
const VIEWS: &[&str] = &["by_v", "x", "b", "nosuch"];
const FUNCTIONS: &[&str] = &["f", "plus", "total", "x", "\"A b\"", "min", "nosuch"];
const BODIES: &[&str] = &[
    "return a",
    "return s",
    "",
    "return nil",
    "return 1",
    "return {}",
    "return {1, 2}",
    "return 0/0",
    "return a + 1",
    "return tostring(a)",
    "return string.rep(\"x\", 1 << 40)",
    "while true do end",
    "error(\"no\")",
    "error({})",
    "return (function(...) return select(\"#\", ...) end)(a)",
    "local t = {} for i = 1, 1e9 do t[i] = {} end return 1",
    "local function r() return 1 + r() end return r()",
    "return string.find(string.rep(\"a\", 200), string.rep(\"a?\", 200) .. \"b\")",
    "return coroutine and 1",
    "return os.exit()",
    "return load(\"return 1\")()",
    "return (",
    "--[[",
    "return a --",
    "goto x",
    "\\0",
];
const MASKS: &[&str] = &[
    "DEFAULT",
    "mask_default()",
    "mask_null()",
    "mask_replace('x')",
    "mask_replace(null)",
    "mask_replace(7)",
    "mask_inner(1, 1)",
    "mask_inner(-1, 2147483647, '\u{e9}')",
    "mask_inner(null, null)",
    "mask_outer(2147483647, 0)",
    "mask_hash()",
    "mask_hash('MD5')",
    "mask_hash('nope')",
    "ks.f()",
    "nosuch()",
    "now()",
    "mask_inner(9223372036854775808, 1)",
];
const CONSTRAINTS: &[&str] = &[
    "NOT NULL",
    "JSON",
    "v > 3 AND v != 5",
    "v < -1e400",
    "> NaN",
    "v = 9223372036854775808",
    "LENGTH() < 3 AND OCTET_LENGTH() != -2147483648",
    "LENGTH(v) >= 2147483648",
    "REGEXP() = '(a|b)*c?'",
    "REGEXP() != '('",
    "REGEXP() = '(((a{99}){99}){99}){99}'",
    "REGEXP() = '\\p{L}+' AND REGEXP() != '\u{e9}'",
    "NOSUCH() = 1",
];
const PERMISSIONS: &[&str] = &[
    "ALL",
    "ALL PERMISSIONS",
    "SELECT",
    "MODIFY",
    "SELECT, MODIFY",
    "CREATE",
    "ALTER",
    "DROP",
    "AUTHORIZE",
    "DESCRIBE",
    "EXECUTE",
    "UNMASK",
    "SELECT_MASKED",
];
const RESOURCES: &[&str] = &[
    "ALL KEYSPACES",
    "KEYSPACE ks",
    "KEYSPACE nosuch",
    "ks.b",
    "TABLE ks.by_v",
    "ALL TABLES IN KEYSPACE ks",
    "ALL ROLES",
    "ROLE ann",
    "ROLE nosuch",
    "ALL FUNCTIONS",
    "ALL FUNCTIONS IN KEYSPACE ks",
    "FUNCTION ks.f(int)",
    "FUNCTION ks.f(nosuch)",
    "FUNCTION system.abs(int)",
    "ALL MBEANS",
    "MBEAN 'x'",
    "system.local",
];

/// Statements that create the objects of the others.
pub const MADE: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE ks.us (x int, y text)",
    "CREATE FUNCTION ks.f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'",
    "CREATE FUNCTION ks.plus(s int, a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return (s or 0) + (a or 0)'",
    "CREATE AGGREGATE ks.total(int) SFUNC plus STYPE int INITCOND 0",
    "CREATE TABLE ks.b (k int, c int, v int, w text, s int static, l list<int>, st set<text>, m map<text, int>, \
     fl frozen<list<int>>, e vector<float, 2>, u frozen<us>, uu us, d duration, tu timeuuid, n decimal, PRIMARY KEY (k, c))",
    "CREATE TABLE ks.counted (k int, c int, v counter, PRIMARY KEY (k, c))",
    "CREATE INDEX near ON ks.b (e) USING 'sai'",
    "CREATE INDEX values_of_v ON ks.b (v)",
    "CREATE INDEX ON ks.b (w) USING 'sai'",
    "CREATE INDEX ON ks.b (entries(m)) USING 'sai'",
    "CREATE INDEX ON ks.b (s) USING 'sai'",
    "CREATE MATERIALIZED VIEW ks.by_v AS SELECT k, c, v, w, l, m, u, e FROM ks.b WHERE k IS NOT NULL AND c IS NOT NULL AND \
     v IS NOT NULL PRIMARY KEY (v, k, c)",
    "CREATE ROLE ann WITH PASSWORD = 'a' AND LOGIN = true",
    "CREATE SERVICE LEVEL fast WITH timeout = 50ms",
    "GRANT SELECT ON ks.b TO ann",
    "GRANT MODIFY ON ks.b TO ann",
    "INSERT INTO ks.b (k, c, v, w, s, l, st, m, fl, e, u, uu, d, tu, n) VALUES (1, 1, 7, 'abc', 3, [1, 2], {'a'}, {'x': 1}, [], \
     [0.5, 1.5], {x: 1}, {y: 'a'}, 1mo, 50554d6e-29bb-11e5-b345-feff819cdc9f, 1.5)",
    "INSERT INTO ks.b (k, c) VALUES (1, 2)",
    "UPDATE ks.counted SET v = v + 9223372036854775807 WHERE k = 1 AND c = 1",
];

/// The user from here on; not a statement, but a marker that the fuzzers read.
pub const LOG_IN: &str = "@";

/// A statement, or a change of the role that asks.
pub fn object_statement(random: &mut Random) -> String {
    match random.below(26) {
        23 => constraints(random),
        24 => descriptions(random),
        0..=2 => roles(random),
        3 => permissions(random),
        4 => service_levels(random),
        5 | 6 => indexes(random),
        7 | 8 => views(random),
        9 => masks(random),
        10 | 11 => functions(random),
        12 => types(random),
        13 => capture(random),
        14 | 15 => describe(random),
        16 | 17 => batch(random),
        18..=20 => select(random),
        21 | 22 => modification(random),
        _ => {
            format!("{LOG_IN}{}", random.of(&["ann", "bob", "cassandra", "cassandra", "cassandra", "nosuch"]))
        }
    }
}

fn roles(random: &mut Random) -> String {
    let (role, other) = (*random.of(ROLES), *random.of(ROLES));
    let option = |random: &mut Random| match random.below(10) {
        0 => format!("PASSWORD = {}", random.of(LITERALS)),
        1 => format!("HASHED PASSWORD = {}", random.of(LITERALS)),
        2 => "HASHED PASSWORD = '$2a$04$abcdefghijklmnopqrstuuJ0WJZ4tB0H4qgY3jGoMfYsYHtl8gZrS'".to_owned(),
        3 => "GENERATED PASSWORD".to_owned(),
        4 => format!("LOGIN = {}", random.of(LITERALS)),
        5 => format!("SUPERUSER = {}", random.of(&["true", "false", "1", "null"])),
        6 => format!("OPTIONS = {{'a': {}}}", random.of(LITERALS)),
        7 => format!("ACCESS TO DATACENTERS {{{}}}", random.of(&["'datacenter1'", "'nosuch'", "", "1"])),
        8 => "ACCESS TO ALL DATACENTERS".to_owned(),
        _ => "LOGIN = true AND PASSWORD = 'x'".to_owned(),
    };
    match random.below(14) {
        0..=2 => format!("CREATE ROLE {role} WITH {}", option(random)),
        3 => format!("CREATE ROLE IF NOT EXISTS {role}"),
        4 => format!("ALTER ROLE {role} WITH {} AND {}", option(random), option(random)),
        5 => format!("CREATE USER {role} WITH PASSWORD {} SUPERUSER", random.of(LITERALS)),
        6 => format!("ALTER USER {role} WITH PASSWORD {}", random.of(LITERALS)),
        7 => format!("DROP ROLE {}{role}", random.of(&["", "IF EXISTS "])),
        8 | 9 => format!("GRANT {role} TO {other}"),
        10 => format!("REVOKE {role} FROM {other}"),
        11 => format!("LIST ROLES OF {role} NORECURSIVE"),
        12 => "LIST USERS".to_owned(),
        _ => format!("LIST ROLES OF {role}"),
    }
}

fn permissions(random: &mut Random) -> String {
    let (what, on, role) = (*random.of(PERMISSIONS), *random.of(RESOURCES), *random.of(ROLES));
    match random.below(5) {
        0 | 1 => format!("GRANT {what} ON {on} TO {role}"),
        2 => format!("REVOKE {what} ON {on} FROM {role}"),
        3 => format!("LIST {what} ON {on} OF {role}"),
        _ => format!("LIST ALL PERMISSIONS OF {role} NORECURSIVE"),
    }
}

fn service_levels(random: &mut Random) -> String {
    let (level, role) = (*random.of(LEVELS), *random.of(ROLES));
    let option = |random: &mut Random| match random.below(3) {
        0 => {
            let timeout =
                random.of(&["1ms", "24h", "25h", "0s", "1ns", "-1s", "1mo", "'null'", "null", "5", "'1ms'"]);
            format!("timeout = {timeout}")
        }
        1 => format!("shares = {}", random.of(LITERALS)),
        _ => format!("workload_type = {}", random.of(&["'batch'", "'interactive'", "'x'", "1", "'null'"])),
    };
    match random.below(9) {
        0 | 1 => format!("CREATE SERVICE LEVEL {level} WITH {}", option(random)),
        2 => format!("ALTER SERVICE LEVEL {level} WITH {} AND {}", option(random), option(random)),
        3 => format!("DROP SERVICE LEVEL {}{level}", random.of(&["", "IF EXISTS "])),
        4 | 5 => format!("ATTACH SERVICE LEVEL {level} TO {role}"),
        6 => format!("DETACH SERVICE LEVEL FROM {role}"),
        7 => format!(
            "LIST {}",
            random.of(&["ALL SERVICE LEVELS", "SERVICE LEVEL fast", "ALL ATTACHED SERVICE LEVELS"])
        ),
        _ => format!("LIST ATTACHED SERVICE LEVEL OF {role}"),
    }
}

fn indexes(random: &mut Random) -> String {
    let (name, table, column) = (*random.of(INDEXES), *random.of(TABLES), *random.of(COLUMNS));
    let target = match random.below(7) {
        0 => format!("keys({column})"),
        1 => format!("values({column})"),
        2 => format!("entries({column})"),
        3 => format!("full({column})"),
        4 => format!("(k), {column}"),
        _ => column.to_owned(),
    };
    let class = random.of(&[
        "'sai'",
        "'StorageAttachedIndex'",
        "'vector_index'",
        "'org.apache.cassandra.index.sasi.SASIIndex'",
        "''",
        "'\0'",
    ]);
    let option = format!(
        "'{}': {}",
        random.of(&[
            "similarity_function",
            "case_sensitive",
            "normalize",
            "ascii",
            "construction_beam_width",
            "target",
            "x"
        ]),
        random.of(&[
            "'cosine'",
            "'euclidean'",
            "'dot_product'",
            "'true'",
            "'0'",
            "'-1'",
            "'2147483648'",
            "''",
            "1",
            "null"
        ]),
    );
    match random.below(8) {
        0..=2 => {
            format!("CREATE INDEX {name} ON {table} ({target}) USING {class} WITH OPTIONS = {{{option}}}")
        }
        3 => format!("CREATE INDEX IF NOT EXISTS {name} ON {table} ({target})"),
        4 => format!("CREATE CUSTOM INDEX ON {table} ({target}) USING {class}"),
        5 => format!("DROP INDEX {}ks.{name}", random.of(&["", "IF EXISTS "])),
        6 => format!("ALTER TABLE {table} DROP {column}"),
        _ => format!("ALTER TABLE {table} RENAME {column} TO {}", random.of(COLUMNS)),
    }
}

fn views(random: &mut Random) -> String {
    let (view, table) = (*random.of(VIEWS), *random.of(TABLES));
    let condition = |random: &mut Random| {
        let column = random.of(COLUMNS);
        match random.below(4) {
            0 | 1 => format!("{column} IS NOT NULL"),
            2 => format!("{column} = {}", expression(random, 2)),
            _ => relation(random),
        }
    };
    let key = match random.below(4) {
        0 => format!("({}, {}), {}", random.of(COLUMNS), random.of(COLUMNS), random.of(COLUMNS)),
        1 => format!("v, k, c, {}", random.of(COLUMNS)),
        _ => format!("{}, k, c", random.of(COLUMNS)),
    };
    let selected = match random.below(4) {
        0 => format!("k, c, {}", expression(random, 2)),
        1 => "*".to_owned(),
        _ => "k, c, v, w".to_owned(),
    };
    match random.below(8) {
        0..=3 => format!(
            "CREATE MATERIALIZED VIEW ks.{view} AS SELECT {selected} FROM {table} WHERE k IS NOT NULL AND c IS NOT NULL AND {} \
             PRIMARY KEY ({key})",
            condition(random)
        ),
        4 => format!("DROP MATERIALIZED VIEW ks.{view}"),
        5 => format!("ALTER MATERIALIZED VIEW ks.{view} WITH comment = {}", random.of(LITERALS)),
        6 => format!("PRUNE MATERIALIZED VIEW ks.{view} WHERE {}", relation(random)),
        _ => format!("SELECT * FROM ks.{view} WHERE {} ALLOW FILTERING", relation(random)),
    }
}

fn masks(random: &mut Random) -> String {
    let (table, column, mask) = (*random.of(TABLES), *random.of(COLUMNS), *random.of(MASKS));
    match random.below(4) {
        0 | 1 => format!("ALTER TABLE {table} ALTER {column} MASKED WITH {mask}"),
        2 => format!("ALTER TABLE {table} ALTER {column} DROP MASKED"),
        _ => format!(
            "CREATE TABLE ks.n (k int MASKED WITH {mask} PRIMARY KEY, v {} MASKED WITH {mask})",
            random.of(TYPES)
        ),
    }
}

fn constraints(random: &mut Random) -> String {
    let (table, column, check) = (*random.of(TABLES), *random.of(COLUMNS), *random.of(CONSTRAINTS));
    match random.below(4) {
        0 | 1 => format!("ALTER TABLE {table} ALTER {column} CHECK {check}"),
        2 => format!("ALTER TABLE {table} ALTER {column} DROP CHECK"),
        _ => format!("CREATE TABLE ks.n (k int PRIMARY KEY, v {} CHECK {check})", random.of(TYPES)),
    }
}

fn descriptions(random: &mut Random) -> String {
    let what = random.of(&["COMMENT", "SECURITY LABEL", "SECURITY LABEL FOR p"]);
    let of = match random.below(4) {
        0 => "KEYSPACE ks".to_owned(),
        1 => format!("TABLE {}", random.of(TABLES)),
        2 => format!("COLUMN {}.{}", random.of(TABLES), random.of(COLUMNS)),
        _ => (*random.of(&["TYPE ks.u", "FIELD ks.u.x", "TYPE ks.nosuch"])).to_owned(),
    };
    format!("{what} ON {of} IS {}", random.of(&["NULL", "''", "'x'", "'it''s'", "$$;$$"]))
}

fn functions(random: &mut Random) -> String {
    let (name, body) = (*random.of(FUNCTIONS), random.of(BODIES).replace('\'', "''"));
    let (first, second) = (*random.of(TYPES), *random.of(TYPES));
    let null = random.of(&["CALLED", "RETURNS NULL"]);
    match random.below(11) {
        0..=3 => {
            // Most of them can be called.
            let argument = if random.one_in(3) { first } else { "int" };
            let returned = if random.one_in(3) { second } else { "int" };
            let or = random.of(&["", "OR REPLACE ", "OR REPLACE "]);
            format!(
                "CREATE {or}FUNCTION ks.{name}(a {argument}) {null} ON NULL INPUT RETURNS {returned} LANGUAGE {} AS '{body}'",
                random.of(&["lua", "lua", "lua", "LUA", "java", "wasm", "\"\""])
            )
        }
        4 => format!(
            "CREATE OR REPLACE FUNCTION ks.{name}(s {first}, a int) {null} ON NULL INPUT RETURNS {first} LANGUAGE lua AS '{body}'"
        ),
        5 | 6 => format!(
            "CREATE OR REPLACE AGGREGATE ks.{name}({}) SFUNC {} STYPE {} FINALFUNC {} INITCOND {}",
            random.of(&["int", "int", "text", "us", ""]),
            random.of(FUNCTIONS),
            random.of(&["int", "int", "tuple<int, int>", "map<text, int>"]),
            random.of(FUNCTIONS),
            random.of(LITERALS)
        ),
        7 => format!("DROP FUNCTION ks.{name}{}", random.of(&["", "(int)", "(nosuch)", "(frozen<us>)"])),
        8 => format!("DROP AGGREGATE ks.{name}{}", random.of(&["", "(int)", "(text)"])),
        9 => format!("SELECT ks.{name}({}) FROM ks.b", expression(random, 2)),
        _ => format!("SELECT k, ks.{name}(v), ks.total({}) FROM ks.b GROUP BY k", random.of(COLUMNS)),
    }
}

fn types(random: &mut Random) -> String {
    let (ty, field) = (*random.of(TYPES), *random.of(&["x", "y", "z", "\"A b\"", "\"\""]));
    match random.below(9) {
        0 => format!("CREATE TYPE ks.x ({field} {ty}, b frozen<us>)"),
        1 => format!("ALTER TYPE ks.us ADD {field} {ty}"),
        2 => format!("ALTER TYPE ks.us RENAME {field} TO {}", random.of(&["x", "q", "\"\""])),
        3 => format!("DROP TYPE ks.{}", random.of(&["us", "x"])),
        4 => format!(
            "ALTER TABLE ks.b ADD {field} frozen<{}>",
            random.of(&["us", "x", "list<us>", "map<us, x>"])
        ),
        5 => format!("UPDATE ks.b SET uu.{field} = {} WHERE k = 1 AND c = 1", expression(random, 2)),
        6 => format!("DELETE uu.{field} FROM ks.b WHERE k = 1 AND c = 1"),
        7 => format!("SELECT u.{field}, uu.{field}, writetime(uu.{field}) FROM ks.b"),
        _ => format!(
            "INSERT INTO ks.b (k, c, u, uu) VALUES (1, 1, {}, {{x: 1, {field}: null}})",
            expression(random, 3)
        ),
    }
}

fn capture(random: &mut Random) -> String {
    let option = match random.below(7) {
        0 => "true".to_owned(),
        1 => "{'enabled': true, 'preimage': 'full', 'postimage': true}".to_owned(),
        2 => "{'enabled': true, 'delta': 'keys'}".to_owned(),
        3 => "{'enabled': false}".to_owned(),
        4 => format!("{{'ttl': {}}}", random.of(LITERALS)),
        5 => format!("{{{}: {}}}", random.of(LITERALS), random.of(LITERALS)),
        _ => (*random.of(LITERALS)).to_owned(),
    };
    match random.below(5) {
        0 | 1 => format!("ALTER TABLE {} WITH cdc = {option}", random.of(TABLES)),
        2 => format!(
            "CREATE TABLE ks.n (k int PRIMARY KEY, \"cdc$time\" int, v {}) WITH cdc = {option}",
            random.of(TYPES)
        ),
        3 => "SELECT * FROM ks.b_scylla_cdc_log".to_owned(),
        _ => format!("SELECT {} FROM ks.b_scylla_cdc_log WHERE {}", expression(random, 2), relation(random)),
    }
}

fn describe(random: &mut Random) -> String {
    let what = match random.below(14) {
        0 => "CLUSTER".to_owned(),
        1 => (*random.of(&[
            "SCHEMA",
            "FULL SCHEMA",
            "KEYSPACES",
            "TABLES",
            "TYPES",
            "FUNCTIONS",
            "AGGREGATES",
        ]))
        .to_owned(),
        2 => format!("KEYSPACE {}", random.of(&["ks", "system", "nosuch", "\"\""])),
        3 => format!("ONLY KEYSPACE {}", random.of(&["ks", "nosuch"])),
        4 | 5 => format!("TABLE {}", random.of(TABLES)),
        6 => format!("INDEX ks.{}", random.of(INDEXES)),
        7 => format!("MATERIALIZED VIEW ks.{}", random.of(VIEWS)),
        8 => format!("FUNCTION ks.{}", random.of(FUNCTIONS)),
        9 => format!("AGGREGATE ks.{}", random.of(FUNCTIONS)),
        10 => format!("TYPE ks.{}", random.of(&["us", "x"])),
        11 => format!("ks.{}", random.of(FUNCTIONS)),
        _ => (*random.of(TABLES)).to_owned(),
    };
    let internals = if random.one_in(3) { " WITH INTERNALS" } else { "" };
    format!("{} {what}{internals}", random.of(&["DESCRIBE", "DESC"]))
}

/// A relation of any operator.
pub fn relation(random: &mut Random) -> String {
    let column = *random.of(COLUMNS);
    let one = |random: &mut Random| {
        let depth = random.below(3);
        if random.one_in(4) { "?".to_owned() } else { expression(random, depth) }
    };
    match random.below(15) {
        0 | 1 => format!("{column} {} {}", random.of(&["=", "<", ">", "<=", ">=", "!="]), one(random)),
        2 => format!("{column} BETWEEN {} AND {}", one(random), one(random)),
        3 => format!(
            "{column} LIKE {}",
            random.of(&["'a%'", "'%'", "'%b%'", "''", "'%%%_'", "null", "?", "1", "'\\%'"])
        ),
        4 => format!("{column} IN ({}, {})", one(random), one(random)),
        5 => format!("{column} NOT IN ({}, {})", one(random), one(random)),
        6 => format!("{column} {} ?", random.of(&["IN", "NOT IN"])),
        7 => format!("{column} {} {}", random.of(&["CONTAINS", "CONTAINS KEY"]), one(random)),
        8 => format!("{column} {} {}", random.of(&["NOT CONTAINS", "NOT CONTAINS KEY"]), one(random)),
        9 => format!("{column}[{}] {} {}", one(random), random.of(&["=", "<", "!=", ">="]), one(random)),
        10 => format!("{column}.{} = {}", random.of(&["x", "y", "nosuch"]), one(random)),
        11 => format!(
            "(k, c) {} ({}, {})",
            random.of(&["=", ">", "<=", "IN", "NOT IN"]),
            one(random),
            one(random)
        ),
        12 => format!("(c) IN (({}), ({}))", one(random), one(random)),
        13 => format!(
            "token({}) {} {}",
            random.of(&["k", "c", "k, c"]),
            random.of(&["=", ">", "<=", "BETWEEN 1 AND"]),
            one(random)
        ),
        _ => format!("{column} IS {}", random.of(&["NOT NULL", "NULL"])),
    }
}

fn select(random: &mut Random) -> String {
    let table = random.of(TABLES);
    let selected = match random.below(5) {
        0 => "*".to_owned(),
        1 => "JSON *".to_owned(),
        2 => "DISTINCT k, s".to_owned(),
        3 => "count(*)".to_owned(),
        _ => expression(random, 3),
    };
    let conditions: Vec<String> = (0..random.below(3)).map(|_| relation(random)).collect();
    let conditions =
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let end = match random.below(8) {
        0 => format!(" ORDER BY e ANN OF {} LIMIT {}", expression(random, 2), random.of(LITERALS)),
        1 => " ORDER BY e ANN OF [0.5, 1.5] LIMIT 10".to_owned(),
        2 => format!(" ORDER BY {} DESC", random.of(COLUMNS)),
        3 => format!(" GROUP BY {}, {}", random.of(COLUMNS), random.of(COLUMNS)),
        4 => format!(" PER PARTITION LIMIT {} LIMIT {}", random.of(LITERALS), random.of(LITERALS)),
        5 => format!(" BYPASS CACHE USING TIMEOUT {}", random.of(LITERALS)),
        _ => String::new(),
    };
    format!("SELECT {selected} FROM {table}{conditions}{end}{}", random.of(&["", " ALLOW FILTERING"]))
}

/// A modification, which may have conditions.
fn modification(random: &mut Random) -> String {
    let (table, column) = (*random.of(TABLES), *random.of(COLUMNS));
    let value = if random.one_in(4) { "?".to_owned() } else { expression(random, 2) };
    let key = match random.below(4) {
        0 => relation(random),
        1 => format!("k = 1 AND {}", relation(random)),
        _ => format!("k = 1 AND c = {}", random.of(&["1", "2", "?", "3"])),
    };
    let condition = match random.below(6) {
        0 => " IF EXISTS".to_owned(),
        1 => " IF NOT EXISTS".to_owned(),
        2 => format!(" IF {}", relation(random)),
        3 => format!(" IF {} AND {}", relation(random), relation(random)),
        _ => String::new(),
    };
    match random.below(8) {
        0 | 1 => format!("INSERT INTO {table} (k, c, {column}) VALUES (1, 1, {value}){condition}"),
        2 | 3 => format!("UPDATE {table} SET {column} = {value} WHERE {key}{condition}"),
        4 => format!(
            "UPDATE {table} SET {column} = {column} {} {value} WHERE {key}{condition}",
            random.of(&["+", "-"])
        ),
        5 => format!("DELETE {column} FROM {table} WHERE {key}{condition}"),
        6 => format!("DELETE FROM {table} USING TIMESTAMP {} WHERE {key}{condition}", random.of(LITERALS)),
        _ => format!("TRUNCATE {table}"),
    }
}

fn batch(random: &mut Random) -> String {
    let kind = random.of(&["", "UNLOGGED ", "COUNTER "]);
    let using =
        if random.one_in(4) { format!("USING TIMESTAMP {} ", random.of(LITERALS)) } else { String::new() };
    let statements: Vec<String> = (0..random.below(4))
        .map(|_| match random.below(4) {
            0 => "UPDATE ks.counted SET v = v + 9223372036854775807 WHERE k = 1 AND c = 1".to_owned(),
            1 => format!(
                "UPDATE ks.b SET v = {} WHERE k = 1 AND c = 1 IF {}",
                random.of(LITERALS),
                relation(random)
            ),
            _ => modification(random),
        })
        .collect();
    format!("BEGIN {kind}BATCH {using}{}; APPLY BATCH", statements.join("; "))
}
