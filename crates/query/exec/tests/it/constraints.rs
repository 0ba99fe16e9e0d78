//! Constraints of columns (`testdata/constraints.txt`), comments and security labels (`testdata/descriptions.txt`), with literal and
//! with bound values, and after a description was carried out again.

use exec::backend::Coordinator as _;
use exec::{ExecLimits, Guardrails};
use schema::Keyspace;
use wire::Value;
use wire::client::{AnswerBody, Prepared, ResultBody};

use crate::golden::{Node, check, show};

#[test]
fn constraints() {
    check("constraints.txt");
}

#[test]
fn descriptions() {
    check("descriptions.txt");
}

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

fn node(statements: &[&str]) -> Node {
    let node = Node::new();
    node.run(KEYSPACE);
    statements.iter().for_each(|statement| node.run(statement));
    node
}

fn prepare(node: &Node, text: &str) -> Prepared {
    match node.request(|request| request.prepare(text, None)).body {
        AnswerBody::Result(ResultBody::Prepared(prepared)) => prepared,
        other => panic!("{text}: {other:?}"),
    }
}

fn execute(node: &Node, prepared: &Prepared, values: &[Value<'_>]) -> String {
    let known = prepared.result_metadata_id.clone().unwrap_or_default();
    show(&node.request(|request| request.execute(&prepared.metadata.id, &known, &Node::values(values))))
}

/// Prepares a statement, and executes it with each list of values.
fn bound(node: &Node, text: &str, cases: &[(&[Value<'_>], &str)]) {
    let prepared = prepare(node, text);
    for (values, expected) in cases {
        assert_eq!(execute(node, &prepared, values), *expected, "{text}: {values:?}");
    }
}

#[test]
fn bound_values_are_held_against_constraints() {
    let node = node(&[
        "CREATE TABLE ks.t (k int CHECK k > 0 PRIMARY KEY, v int CHECK v < 10, w text CHECK REGEXP() = '[a-z]*')",
        "CREATE TABLE ks.r (k int PRIMARY KEY, v int NOT NULL, w int)",
    ]);
    let int = |number: &'static [u8; 4]| Value::Set(number);
    let (one, zero, ten) = (int(&[0, 0, 0, 1]), int(&[0; 4]), int(&[0, 0, 0, 10]));
    let null = |column: &str| {
        format!(
            "! Invalid: Column value does not satisfy value constraint for column '{column}' as it is null."
        )
    };
    let unmet = |column: &str, bound: &str| {
        format!(
            "! Invalid: Column value does not satisfy value constraint for column '{column}'. It should be {column} {bound}"
        )
    };
    let cases: &[(&[Value<'_>], &str)] = &[
        (&[one, one, Value::Set(b"abc")], "void"),
        (&[one, ten, Value::Set(b"abc")], &unmet("v", "< 10")),
        (&[zero, one, Value::Set(b"abc")], &unmet("k", "> 0")),
        (&[one, one, Value::Set(b"aBc")], "! Invalid: Value does not match regular expression '[a-z]*'"),
        (&[one, Value::Null, Value::Set(b"abc")], &null("v")),
        (&[one, Value::Set(b""), Value::Set(b"abc")], &null("v")),
        (&[one, Value::Unset, Value::Set(b"abc")], "void"),
        (&[one, Value::Unset, Value::Unset], "void"),
    ];
    // All cells are bound values, which are copied as they are; then some are not.
    bound(&node, "INSERT INTO ks.t (k, v, w) VALUES (?, ?, ?)", cases);
    bound(&node, "INSERT INTO ks.t (k, v, w) VALUES (?, (int) ?, ?)", cases);
    let missing = "! Invalid: Column 'v' has to be specified as part of this query.";
    let cases: &[(&[Value<'_>], &str)] =
        &[(&[one, ten], "void"), (&[one, Value::Null], &null("v")), (&[one, Value::Unset], missing)];
    bound(&node, "INSERT INTO ks.r (k, v) VALUES (?, ?)", cases);
    let answer =
        show(&node.request(|request| request.prepare("INSERT INTO ks.r (k, w) VALUES (?, ?)", None)));
    assert_eq!(answer, missing, "it is refused before it has values");
}

#[test]
fn a_prepared_statement_follows_its_table() {
    let node = node(&["CREATE TABLE ks.t (k int PRIMARY KEY, v int)"]);
    let text = "INSERT INTO ks.t (k, v) VALUES (1, 5)";
    let old = prepare(&node, text);
    assert_eq!(execute(&node, &old, &[]), "void");
    node.run("ALTER TABLE ks.t ALTER v CHECK v > 5");
    let unprepared = execute(&node, &old, &[]);
    assert!(unprepared.starts_with("! Unprepared"), "{unprepared}");
    let refused = execute(&node, &prepare(&node, text), &[]);
    assert!(refused.ends_with("It should be v > 5"), "{refused}");
    node.run("ALTER TABLE ks.t ALTER v DROP CHECK");
    assert_eq!(execute(&node, &prepare(&node, text), &[]), "void");
}

/// The keyspace without ids, which differ between two that were made alike.
fn content(node: &Node) -> Keyspace {
    let schema = node.cluster().schema();
    let keyspace = schema.keyspace("ks").expect("it is there");
    Keyspace::clone(keyspace)
}

#[test]
fn a_schema_is_made_again_from_its_description() {
    let made = node(&[
        "CREATE TYPE ks.u (f int, \"G\" text)",
        "CREATE TYPE ks.outer (u frozen<u>)",
        "CREATE TABLE ks.t (p int CHECK p != 5 AND p < 10, c text CHECK LENGTH() <= 3, s int STATIC NOT NULL, \"V\" text NOT NULL \
         CHECK JSON AND OCTET_LENGTH() > 1, r text CHECK REGEXP() != 'it''s \\d+' AND REGEXP() != '%', f double CHECK f >= -1.5e-7, \
         PRIMARY KEY (p, c))",
        "ALTER TABLE ks.t DROP r",
        "ALTER TABLE ks.t ADD r text CHECK LENGTH() > 7",
        "COMMENT ON KEYSPACE ks IS 'a;''b'",
        "SECURITY LABEL ON KEYSPACE ks IS 'c'",
        "COMMENT ON TABLE ks.t IS 'd'",
        "SECURITY LABEL ON TABLE ks.t IS 'e'",
        "COMMENT ON COLUMN ks.t.\"V\" IS 'f'",
        "SECURITY LABEL ON COLUMN ks.t.p IS 'g'",
        "COMMENT ON TYPE ks.u IS 'h'",
        "SECURITY LABEL ON FIELD ks.u.\"G\" IS 'i'",
        "COMMENT ON FIELD ks.outer.u IS 'j'",
    ]);
    let before = content(&made);
    for text in ["DESCRIBE KEYSPACE ks", "DESCRIBE KEYSPACE ks WITH INTERNALS"] {
        let rows = made.rows(text);
        let again = Node::new();
        for row in rows {
            let statements = String::from_utf8(row[3].clone().expect("a statement")).expect("text");
            for statement in cql::split(&statements) {
                again.run(statement);
            }
        }
        let after = content(&again);
        assert_eq!(after.description, before.description, "{text}");
        assert_eq!(after.type_descriptions, before.type_descriptions, "{text}");
        let (old, new) = (&before.tables["t"], &after.tables["t"]);
        assert_eq!(new.security_label, old.security_label);
        assert_eq!(new.options.comment, old.options.comment);
        assert_eq!(old.constrained_columns().count(), 6);
        for column in old.columns() {
            let same = new.column(&column.name).expect("the column");
            assert_eq!(same.constraints, column.constraints, "{}", column.name);
            assert_eq!(same.description, column.description, "{}", column.name);
        }
    }
}

#[test]
fn descriptions_need_the_permission_to_alter_and_break_no_guardrail() {
    let mut limits = ExecLimits { bcrypt_cost: 4, ..ExecLimits::default() };
    limits.guardrails = Guardrails { simplestrategy_enabled: false, ..Guardrails::default() };
    let node = Node::with_superuser(limits);
    node.run(KEYSPACE);
    node.run("CREATE TYPE ks.u (f int)");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY)");
    node.run("CREATE ROLE ann");
    let statements = [
        ("COMMENT ON KEYSPACE ks IS 'x'", "KEYSPACE ks"),
        ("SECURITY LABEL ON KEYSPACE ks IS 'x'", "KEYSPACE ks"),
        ("COMMENT ON TABLE ks.t IS 'x'", "ks.t"),
        ("SECURITY LABEL ON COLUMN ks.t.k IS 'x'", "ks.t"),
        ("COMMENT ON TYPE ks.u IS 'x'", "ALL TABLES IN KEYSPACE ks"),
        ("SECURITY LABEL ON FIELD ks.u.f IS 'x'", "ALL TABLES IN KEYSPACE ks"),
    ];
    for (statement, resource) in statements {
        node.log_in("ann");
        let refused = show(&node.query(statement));
        assert!(
            refused.starts_with("! Unauthorized: User ann has no ALTER permission"),
            "{statement}: {refused}"
        );
        node.log_in("cassandra");
        node.run(&format!("GRANT ALTER ON {resource} TO ann"));
        node.log_in("ann");
        node.run(statement);
        node.log_in("cassandra");
        node.run(&format!("REVOKE ALTER ON {resource} FROM ann"));
    }
}
