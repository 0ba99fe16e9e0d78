//! Names and options of objects that are no tables, with the values that a hostile client sends ([`crate::options`] has those of tables and
//! keyspaces): types, roles, service levels, indexes, views. Accepted ones survive the cluster's log and DESCRIBE; all others
//! are refused with an error of the protocol, and no message repeats a client's text at length.

use exec::ExecLimits;
use exec::backend::Coordinator as _;
use schema::Role;

use crate::golden::Node;
use crate::options::{PLAIN, accepted, quoted, start, values};

/// A name with its case, in the quotes of an identifier.
fn identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The statement that a DESCRIBE shows.
fn described(node: &Node, what: &str) -> String {
    let rows = node.rows(&format!("DESCRIBE {what}"));
    String::from_utf8(rows[0][3].clone().unwrap()).unwrap()
}

fn node() -> Node {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node
}

#[test]
fn names_of_types_and_fields_survive_the_log_and_describe_or_are_refused() {
    let node = node();
    let mut taken = 0;
    // Words that are types, constants or have call syntax of their own are names in quotes only.
    let words = ["int", "text", "counter", "true", "count", "json", "ttl", "key", "list", "frozen", "select"];
    for value in values().into_iter().chain(words.map(str::to_owned)) {
        let value = identifier(&value);
        for (name, field) in [(&*value, "f"), ("u", &*value)] {
            let made = accepted(&node, &format!("CREATE TYPE ks.{name} ({field} int)"));
            // One that is there, or is not.
            assert!(!made || !accepted(&node, &format!("CREATE TYPE ks.{name} (other int)")));
            for change in [
                "ADD f int".to_owned(),
                format!("ADD {field} int"),
                format!("RENAME {field} TO {field}"),
                format!("RENAME nope{} TO a", start(name).len()),
                format!("ADD {field} {value}"),
            ] {
                accepted(&node, &format!("ALTER TYPE ks.{name} {change}"));
            }
            if !made {
                assert!(!accepted(&node, &format!("DROP TYPE ks.{name}")));
                assert!(!accepted(
                    &node,
                    &format!("CREATE TABLE ks.t (k int PRIMARY KEY, v frozen<{name}>)")
                ));
                continue;
            }
            taken += 1;
            let create = format!(
                "CREATE TABLE ks.t (k int PRIMARY KEY, v frozen<{name}>, w map<int, frozen<{name}>>)"
            );
            assert!(accepted(&node, &create), "{}", start(&create));
            assert!(!accepted(&node, &format!("DROP TYPE ks.{name}")), "a table uses it");
            let types = || node.cluster().schema().keyspace("ks").unwrap().types.clone();
            let (before, ty, table) =
                (types(), described(&node, &format!("TYPE ks.{name}")), described(&node, "TABLE ks.t"));
            node.run("DROP TABLE ks.t");
            node.run(&format!("DROP TYPE ks.{name}"));
            assert!(accepted(&node, &ty), "DESCRIBE told {}", start(&ty));
            assert_eq!(types(), before, "DESCRIBE told {}", start(&ty));
            assert!(accepted(&node, &table), "DESCRIBE told {}", start(&table));
            assert_eq!(described(&node, "TABLE ks.t"), table);
            node.run("DROP TABLE ks.t");
            node.run(&format!("DROP TYPE ks.{name}"));
        }
    }
    assert!(taken > 100, "{taken} names were accepted");
}

#[test]
fn constraints_and_descriptions_survive_the_log_and_describe_or_are_refused() {
    let node = node();
    node.run("CREATE TYPE ks.u (f int)");
    let mut taken = [0; 2];
    for value in values() {
        let text = quoted(&value);
        let checks = [
            ("text", format!("REGEXP() = {text}")),
            ("text", format!("REGEXP() != {text}")),
            ("text", format!("LENGTH() < {value}")),
            ("double", format!("> {value}")),
            ("decimal", format!("<= {value}")),
            ("varint", format!("{} != {value}", identifier(&value))),
            ("int", format!("{value} NOT NULL")),
        ];
        for (ty, check) in checks {
            let create = format!("CREATE TABLE ks.t (k int PRIMARY KEY, v {ty} CHECK {check})");
            if !accepted(&node, &create) {
                continue;
            }
            taken[0] += 1;
            let constraints = || {
                let schema = node.cluster().schema();
                schema.table("ks", "t").unwrap().column("v").unwrap().constraints.clone()
            };
            let (before, again) = (constraints(), described(&node, "TABLE ks.t"));
            assert!(!before.is_empty(), "{}", start(&check));
            accepted(&node, "INSERT INTO ks.t JSON '{\"k\": 1, \"v\": \"0\"}'");
            node.run("DROP TABLE ks.t");
            assert!(accepted(&node, &again), "DESCRIBE showed {}", start(&again));
            assert_eq!(constraints(), before, "DESCRIBE showed {}", start(&again));
            node.run("DROP TABLE ks.t");
        }
        let said = || {
            let schema = node.cluster().schema();
            let keyspace = schema.keyspace("ks").unwrap();
            (keyspace.description.clone(), keyspace.type_descriptions.clone())
        };
        for element in ["KEYSPACE ks", "TYPE ks.u", "FIELD ks.u.f"] {
            for what in ["COMMENT", "SECURITY LABEL"] {
                if !accepted(&node, &format!("{what} ON {element} IS {text}")) {
                    continue;
                }
                taken[1] += 1;
                let before = said();
                let shown = if element == "KEYSPACE ks" { "ONLY KEYSPACE ks" } else { "TYPE ks.u" };
                let again = described(&node, shown);
                node.run(&format!("{what} ON {element} IS NULL"));
                assert_eq!(said(), Default::default());
                // The statements behind CREATE.
                let again = cql::split(&again).into_iter().skip(1);
                again.for_each(|statement| assert!(accepted(&node, statement), "{}", start(statement)));
                assert_eq!(said(), before, "{}", start(&value));
                node.run(&format!("{what} ON {element} IS NULL"));
            }
        }
    }
    assert!(taken.iter().all(|taken| *taken > 50), "{taken:?} were accepted");
}

/// The statement that makes a role again, its password included.
fn made_again(node: &Node, name: &str) -> String {
    let rows = node.rows("DESCRIBE SCHEMA WITH INTERNALS AND PASSWORDS");
    let text = |cell: &Option<Vec<u8>>| String::from_utf8(cell.clone().unwrap_or_default()).unwrap();
    let shown = types::quote_identifier(name);
    let row = rows.iter().find(|row| text(&row[1]) == "role" && text(&row[2]) == shown);
    text(&row.unwrap_or_else(|| panic!("no role {}", start(name)))[3])
}

fn role(node: &Node, name: &str) -> Option<Role> {
    node.cluster().schema().role(name).map(|role| Role::clone(role))
}

#[test]
fn names_and_options_of_roles_survive_the_log_and_describe_or_are_refused() {
    let limits = ExecLimits { restricts_datacenters: true, bcrypt_cost: 4, ..ExecLimits::default() };
    let node = Node::with_superuser(limits);
    let mut taken = [0; 3];
    for value in values() {
        let text = quoted(&value);
        let cases = [
            (value.as_str(), identifier(&value), "LOGIN = true".to_owned()),
            (value.as_str(), text.clone(), "SUPERUSER = false".to_owned()),
            ("r", "r".to_owned(), format!("PASSWORD = {text}")),
            ("r", "r".to_owned(), format!("PASSWORD = {value}")),
            ("r", "r".to_owned(), format!("HASHED PASSWORD = {text}")),
            ("r", "r".to_owned(), format!("LOGIN = {value}")),
            ("r", "r".to_owned(), format!("LOGIN = {text}")),
            ("r", "r".to_owned(), format!("SUPERUSER = {value}")),
            ("r", "r".to_owned(), format!("OPTIONS = {{{text}: {text}}}")),
            ("r", "r".to_owned(), format!("ACCESS TO DATACENTERS {{{text}}}")),
            ("r", "r".to_owned(), format!("ACCESS FROM CIDRS {{{text}}}")),
        ];
        for (at, (name, written, option)) in cases.into_iter().enumerate() {
            // Of a role that is not there.
            for statement in [
                format!("ALTER ROLE {written} WITH {option}"),
                format!("GRANT {written} TO cassandra"),
                format!("GRANT cassandra TO {written}"),
                format!("REVOKE {written} FROM cassandra"),
                format!("GRANT SELECT ON ALL KEYSPACES TO {written}"),
                format!("GRANT ALTER ON ROLE {written} TO cassandra"),
                format!("ATTACH SERVICE LEVEL {written} TO cassandra"),
                format!("ALTER SERVICE LEVEL {written} WITH SHARES = 7"),
                format!("DROP ROLE {written}"),
                format!("DROP USER {written}"),
            ] {
                assert!(!accepted(&node, &statement), "{}", start(&statement));
            }
            if !accepted(&node, &format!("CREATE ROLE {written} WITH {option}")) {
                assert_eq!(role(&node, name), None, "a refused role is not there");
                continue;
            }
            taken[at.min(2)] += 1;
            assert!(!accepted(&node, &format!("CREATE ROLE {written}")), "it is there");
            let before = role(&node, name);
            assert!(before.is_some(), "{}", start(&option));
            let again = made_again(&node, name);
            node.run(&format!("DROP ROLE {written}"));
            assert!(accepted(&node, &again), "DESCRIBE told {}", start(&again));
            assert_eq!(role(&node, name), before, "DESCRIBE told {}", start(&again));
            assert!(accepted(&node, &format!("ALTER ROLE {written} WITH {option}")), "{}", start(&option));
            node.run(&format!("LIST ROLES OF {written}"));
            node.run(&format!("DROP ROLE {written}"));
        }
    }
    assert!(taken.iter().all(|taken| *taken > 50), "{taken:?} were accepted");
}

#[test]
fn names_and_attributes_of_service_levels_survive_the_log_or_are_refused() {
    let limits = ExecLimits { bcrypt_cost: 4, ..ExecLimits::default() };
    let node = Node::with_superuser(limits);
    let mut taken = [0; 2];
    for value in values() {
        let text = quoted(&value);
        for (at, (name, attribute)) in [
            (identifier(&value), "SHARES = 7".to_owned()),
            ("l".to_owned(), format!("SHARES = {value}")),
            ("l".to_owned(), format!("SHARES = {text}")),
            ("l".to_owned(), format!("TIMEOUT = {value}")),
            ("l".to_owned(), format!("TIMEOUT = {text}")),
            ("l".to_owned(), format!("WORKLOAD_TYPE = {text}")),
            ("l".to_owned(), format!("{} = 7", identifier(&value))),
        ]
        .into_iter()
        .enumerate()
        {
            if !accepted(&node, &format!("CREATE SERVICE LEVEL {name} WITH {attribute}")) {
                assert!(
                    !accepted(&node, &format!("DROP SERVICE LEVEL {name}")),
                    "a refused level is not there"
                );
                continue;
            }
            taken[at.min(1)] += 1;
            let levels = || node.cluster().schema().service_levels().cloned().collect::<Vec<_>>();
            let before = levels();
            assert_eq!(before.len(), 1, "{}", start(&attribute));
            assert!(!accepted(&node, &format!("CREATE SERVICE LEVEL {name}")), "it is there");
            assert!(accepted(&node, &format!("ALTER SERVICE LEVEL {name} WITH {attribute}")));
            assert_eq!(levels(), before, "{}", start(&attribute));
            node.run(&format!("DROP SERVICE LEVEL {name}"));
        }
    }
    assert!(taken.iter().all(|taken| *taken > 3), "{taken:?} were accepted");
}

/// Options of indexes: the class, the column, the option.
const INDEXES: &[(&str, &str, &[&str])] = &[
    ("sai", "v", &["ascii", "case_sensitive", "normalize", "index_analyzer", "query_analyzer", "other"]),
    (
        "StorageAttachedIndex",
        "e",
        &["similarity_function", "maximum_node_connections", "construction_beam_width", "optimize_for"],
    ),
    (
        "vector_index",
        "e",
        &["similarity_function", "search_beam_width", "quantization", "oversampling", "rescoring", "other"],
    ),
    ("org.apache.cassandra.index.sasi.SASIIndex", "v", &["mode", "analyzed", "analyzer_class", "other"]),
    ("legacy_local_table", "v", &["other"]),
];

#[test]
fn options_of_indexes_survive_the_log_and_describe_or_are_refused() {
    let node = node();
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v text, e vector<float, 3>)");
    let check = |statement: &str| {
        if !accepted(&node, statement) {
            return 0;
        }
        let indexes = || node.cluster().schema().table("ks", "t").unwrap().indexes.clone();
        let before = indexes();
        let name = before.keys().next().expect("it was made").clone();
        let text = described(&node, &format!("INDEX ks.{}", identifier(&name)));
        node.run(&format!("DROP INDEX ks.{}", identifier(&name)));
        assert!(accepted(&node, &text), "{}: DESCRIBE told {}", start(statement), start(&text));
        assert_eq!(indexes(), before, "{}: DESCRIBE told {}", start(statement), start(&text));
        node.run(&format!("DROP INDEX ks.{}", identifier(&name)));
        1
    };
    let mut taken = 0;
    for value in values() {
        let text = quoted(&value);
        for (class, column, names) in INDEXES {
            for name in *names {
                let begin =
                    format!("CREATE CUSTOM INDEX i ON ks.t ({column}) USING '{class}' WITH OPTIONS =");
                taken += check(&format!("{begin} {{'{name}': {text}}}"));
                check(&format!("{begin} {{'{name}': {value}}}"));
            }
            check(&format!(
                "CREATE CUSTOM INDEX i ON ks.t ({column}) USING '{class}' WITH OPTIONS = {{{text}: 'true'}}"
            ));
            check(&format!("CREATE CUSTOM INDEX {} ON ks.t ({column}) USING '{class}'", identifier(&value)));
        }
        check(&format!("CREATE CUSTOM INDEX i ON ks.t (v) USING {text}"));
        check(&format!("CREATE INDEX i ON ks.t (v) USING {text}"));
        check(&format!("CREATE INDEX {} ON ks.t (v)", identifier(&value)));
        check(&format!("CREATE INDEX i ON ks.t ({})", identifier(&value)));
        check(&format!("CREATE INDEX i ON ks.t (v) WITH {} = {{'a': 'b'}}", identifier(&value)));
        assert!(!accepted(&node, &format!("DROP INDEX ks.{}", identifier(&value))));
    }
    assert!(taken > 20, "{taken} values were accepted");
}

#[test]
fn options_of_views_survive_the_log_and_describe_or_are_refused() {
    let node = node();
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    let create = |name: &str| {
        format!(
            "CREATE MATERIALIZED VIEW ks.{name} AS SELECT * FROM ks.t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)"
        )
    };
    let options = || {
        let mut options = node.options("ks", "w");
        options.incremental_backups.get_or_insert(true);
        options
    };
    let names = PLAIN.iter().chain(&["synchronous_updates", "other"]);
    for name in names {
        let mut taken = 0;
        for value in values() {
            for value in [quoted(&value), value] {
                let option = format!("{name} = {value}");
                if !accepted(&node, &format!("{} WITH {option}", create("w"))) {
                    continue;
                }
                taken += 1;
                let (before, text) = (options(), described(&node, "MATERIALIZED VIEW ks.w"));
                node.run("DROP MATERIALIZED VIEW ks.w");
                assert!(accepted(&node, &text), "{}: DESCRIBE told {}", start(&option), start(&text));
                assert_eq!(options(), before, "{}: DESCRIBE told {}", start(&option), start(&text));
                // It may refuse values that CREATE takes: no grace at all, as in Cassandra.
                accepted(&node, &format!("ALTER MATERIALIZED VIEW ks.w WITH {option}"));
                assert_eq!(options(), before, "{}", start(&option));
                node.run("DROP MATERIALIZED VIEW ks.w");
            }
        }
        let never = ["default_time_to_live", "other"].contains(name);
        assert_eq!(taken > 0, !never, "{taken} values of {name} are accepted");
    }
    for value in values() {
        let name = identifier(&value);
        if accepted(&node, &create(&name)) {
            node.run(&format!("DROP MATERIALIZED VIEW ks.{name}"));
        } else {
            assert!(!accepted(&node, &format!("DROP MATERIALIZED VIEW ks.{name}")));
        }
    }
}

#[test]
fn the_definition_of_a_table_makes_it_anew_with_its_types_and_indexes() {
    let node = node();
    node.run("CREATE TYPE ks.inner (f int)");
    node.run("CREATE TYPE ks.outer (f frozen<inner>)");
    node.run("CREATE TYPE ks.other (f int)");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v frozen<outer>, w int)");
    node.run("CREATE INDEX by_w ON ks.t (w)");
    node.run("CREATE MATERIALIZED VIEW ks.m AS SELECT k, w FROM ks.t WHERE w IS NOT NULL AND k IS NOT NULL PRIMARY KEY (w, k)");
    let schema = node.cluster().schema();
    let definition = |name: &str| exec::describe::definition(&schema, schema.table("ks", name).unwrap());
    let text = definition("t");
    let begins: Vec<&str> = text.lines().filter(|line| line.starts_with("CREATE")).collect();
    let expected = [
        "CREATE TYPE IF NOT EXISTS ks.inner (",
        "CREATE TYPE IF NOT EXISTS ks.outer (",
        "CREATE TABLE IF NOT EXISTS ks.t (",
        "CREATE INDEX IF NOT EXISTS by_w ON ks.t (w);",
    ];
    assert_eq!(begins, expected);
    assert!(definition("m").starts_with("CREATE MATERIALIZED VIEW IF NOT EXISTS ks.m AS"));
    let id = schema.table("ks", "t").unwrap().id;
    let again = Node::new();
    again.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    // By the blank line or the line end that ends a statement.
    for statement in text.split_inclusive(";\n") {
        again.run(statement.trim_end());
    }
    assert_eq!(again.cluster().schema().table("ks", "t").unwrap().id, id);
}
